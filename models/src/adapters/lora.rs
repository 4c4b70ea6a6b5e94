//! Low-rank adaptation (Hu et al., 2021): `y = W x + (lora_alpha / rank) B A drop(x)`.
//!
//! `A` `[rank, in]`, `B` `[out, rank]`. `B` starts at zero, so the model starts unchanged; `A` is uniform in
//! `+- 1/sqrt(in)`, as PEFT draws it. The update is added in the pass that reads the projection's output.

use super::placement::LinearSite;
use crate::parameter::{Parameter, Role};
use crate::pass::Pass;
use hankel_core::{Error, Random, Result, Tensor};
use hankel_ops::{Gate, add_linear, dropout, linear};

/// Settings of LoRA.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraConfig {
    /// Rank r.
    pub rank: usize,
    /// The update is scaled by `lora_alpha / rank`.
    pub lora_alpha: f64,
    /// Probability of dropout on the input of `A`, while training.
    pub dropout: f64,
    /// Projections that get one.
    pub targets: Vec<String>,
}

impl LoraConfig {
    /// Rank `rank` on the query and value projections with a scale of 1.
    pub fn new(rank: usize) -> Self {
        LoraConfig { rank, lora_alpha: rank as f64, dropout: 0.0, targets: vec!["q_proj".into(), "v_proj".into()] }
    }
}

/// The low-rank update of one projection.
#[derive(Clone)]
pub struct LinearAdapter {
    name: String,
    scale: f64,
    dropout: f64,
    a: Parameter,
    b: Parameter,
}

impl LinearAdapter {
    pub(crate) fn new(config: &LoraConfig, site: &LinearSite, layer: usize, seed: u64) -> Result<Self> {
        if config.rank == 0 {
            return Err(Error::invalid("lora", "rank must be at least 1"));
        }
        let name = format!("model.layers.{layer}.{}.{}", site.module, site.name);
        let bound = 1.0 / (site.inputs as f64).sqrt();
        let random = Random::new(seed, &format!("{name}.lora_A"), 0);
        let a = (0..(config.rank * site.inputs) as u64).map(|i| (bound * (2.0 * random.uniform(i) - 1.0)) as f32);
        let a = Tensor::from_vec(a.collect(), [config.rank, site.inputs])?;
        let adapter = LinearAdapter {
            scale: config.lora_alpha / config.rank as f64,
            dropout: config.dropout,
            a: Parameter::new(format!("{name}.lora_A.weight"), Role::Matrix, &a),
            b: Parameter::new(
                format!("{name}.lora_B.weight"),
                Role::Matrix,
                &Tensor::zeros::<f32>([site.outputs, config.rank]),
            ),
            name,
        };
        adapter.parameters().iter().try_for_each(|p| p.set_trainable(true))?;
        Ok(adapter)
    }

    /// `y + scale B A drop(x)`.
    pub(crate) fn apply(&self, y: &Tensor, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let dropped = match pass.training {
            Some(key) if self.dropout > 0.0 => dropout(x, self.dropout, key.random(&self.name))?,
            _ => x.clone(),
        };
        let low = linear(&dropped, &self.a.tensor(), None)?;
        add_linear(y, &low, &self.b.tensor(), None, Gate::Fixed(self.scale))
    }

    /// `A` and `B`.
    pub fn parameters(&self) -> Vec<Parameter> {
        vec![self.a.clone(), self.b.clone()]
    }
}
