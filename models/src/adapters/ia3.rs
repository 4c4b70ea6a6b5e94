//! IA3 (Liu et al., 2022): learned scales, and nothing else.
//!
//! ```text
//! keys, values     y = l * (W x + b)      l [out]
//! feed-forward     y = W (l * x) + b      l [in]
//! ```
//!
//! The scales start at 1, so the model starts unchanged. In files `l` is `[out, 1]` or `[1, in]`, as PEFT has it.

use super::linear_adapter::{add_base, trainable};
use super::placement::{LinearSite, matches};
use crate::linear::Linear;
use crate::parameter::{Parameter, Role};
use hankel_core::{Error, Result, Tensor};
use hankel_ops::scale_columns;

/// Settings of IA3.
#[derive(Debug, Clone, PartialEq)]
pub struct Ia3Config {
    /// Projections that get scales (see [`Placement::select`](super::Placement::select)).
    pub targets: Vec<String>,
    /// Those among them whose input is scaled instead of their output.
    pub feedforward: Vec<String>,
}

impl Default for Ia3Config {
    /// Keys, values and the input of the MLP's last projection.
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Ia3Config { targets: names(&["k_proj", "v_proj", "down_proj"]), feedforward: names(&["down_proj"]) }
    }
}

impl Ia3Config {
    /// Whether the input of the projection at `path` is scaled.
    pub fn scales_input(&self, path: &str) -> bool {
        self.feedforward.iter().any(|target| matches(target, path))
    }

    /// Number of scales at one projection.
    pub(crate) fn scales(&self, site: &LinearSite, layer: usize) -> usize {
        if self.scales_input(&site.path(layer)) { site.inputs } else { site.outputs }
    }
}

/// The scales of one projection. Cloning shares them.
#[derive(Clone)]
pub struct Ia3 {
    path: String,
    scales: Parameter,
    feedforward: bool,
}

impl Ia3 {
    pub(crate) fn new(config: &Ia3Config, site: &LinearSite, layer: usize) -> Result<Self> {
        if config.targets.is_empty() {
            return Err(Error::invalid("ia3", "targets must name at least one projection"));
        }
        let path = site.path(layer);
        let feedforward = config.scales_input(&path);
        let shape = if feedforward { [1, site.inputs] } else { [site.outputs, 1] };
        let scales = trainable(format!("{path}.ia3_l"), Role::Vector, &Tensor::full(shape, 1.0_f32))?;
        Ok(Ia3 { path, scales, feedforward })
    }

    pub(crate) fn apply(&self, layer: &Linear, base: Option<&Tensor>, x: &Tensor) -> Result<Tensor> {
        let scales = self.scales()?;
        if self.feedforward {
            layer.plain(base, &scale_columns(x, &scales, None)?)
        } else {
            add_base(base, &scale_columns(&layer.plain(None, x)?, &scales, None)?)
        }
    }

    /// Name of the projection: `model.layers.2.self_attn.k_proj`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// `l`, as a vector.
    ///
    /// # Errors
    /// Never for an adapter made by this module.
    pub fn scales(&self) -> Result<Tensor> {
        self.scales.tensor().reshape([self.scales.elements()])
    }

    /// Whether the input is scaled, not the output.
    pub fn scales_input(&self) -> bool {
        self.feedforward
    }

    /// The scales.
    pub fn parameters(&self) -> Vec<Parameter> {
        vec![self.scales.clone()]
    }
}
