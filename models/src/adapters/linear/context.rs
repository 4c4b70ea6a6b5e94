//! What the adapter of one projection is built from.

use crate::adapters::placement::LinearSite;
use crate::parameter::{Parameter, Role};
use hankel_core::{Random, Result, Tensor};

/// A projection of one layer. Parameters are trainable, in `f32`, and initial values depend on seed and name only.
pub struct LinearContext<'a> {
    /// Index of the layer.
    pub layer: usize,
    /// The projection.
    pub site: &'a LinearSite,
    path: String,
    seed: u64,
}

impl<'a> LinearContext<'a> {
    pub(crate) fn new(layer: usize, site: &'a LinearSite, seed: u64) -> Self {
        LinearContext { layer, site, path: site.path(layer), seed }
    }

    /// Name of the projection: `model.layers.2.self_attn.q_proj`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The random numbers of the parameter `name` of this projection.
    pub fn random(&self, name: &str) -> Random {
        Random::new(self.seed, &format!("{}.{name}", self.path), 0)
    }

    /// A parameter that learns, called `name` below the projection's path.
    ///
    /// # Errors
    /// When it is of a type that cannot be trained.
    pub fn parameter(&self, name: &str, role: Role, value: &Tensor) -> Result<Parameter> {
        let parameter = Parameter::new(format!("{}.{name}", self.path), role, value);
        parameter.set_trainable(true)?;
        Ok(parameter)
    }
}
