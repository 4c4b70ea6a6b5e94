//! AdaLoRA (Zhang et al., 2023): a low-rank update in the form of a singular value decomposition, whose rank is shared out
//! among the projections while training.
//!
//! ```text
//! y = W x + s P (E * (Q drop(x))),    s = lora_alpha / (init_rank + 1e-5)
//! loss + orth_reg_weight * mean of || Q Q^T - I ||_F and || P^T P - I ||_F over all projections
//! ```
//!
//! `Q` `[rank, in]` (`lora_A` in files), `E` `[rank, 1]` (`lora_E`), `P` `[out, rank]` (`lora_B`). `E` starts at zero, `P` and `Q`
//! normal with standard deviation 0.02. The scale keeps `init_rank` whatever is pruned later, as in PEFT.

mod allocation;
mod schedule;

pub use allocation::Allocation;
pub(super) use allocation::Allocator;
pub use schedule::Schedule;

use super::linear_adapter::{dropped, trainable};
use super::lora::{check_rank, check_update};
use super::placement::LinearSite;
use crate::linear::Linear;
use crate::parameter::{Parameter, Role};
use crate::pass::Pass;
use hankel_core::{Error, Random, Result, Tensor};
use hankel_ops::{Gate, Side, add_linear, linear, orthogonality, scale_columns};

/// Added to the rank that the scale is divided by.
const EPS: f64 = 1e-5;
/// Standard deviation of the initial singular vectors.
const STD: f64 = 0.02;

/// Settings of AdaLoRA.
#[derive(Debug, Clone, PartialEq)]
pub struct AdaLoraConfig {
    /// Rank of every projection at the start.
    pub init_rank: usize,
    /// Mean rank at the end.
    pub target_rank: usize,
    /// The update is scaled by `lora_alpha / (init_rank + 1e-5)`.
    pub lora_alpha: f64,
    /// Probability of dropout on the input of `Q`, while training.
    pub dropout: f64,
    /// Projections that get one (see [`Placement::select`](super::Placement::select)).
    pub targets: Vec<String>,
    /// When the rank is reduced.
    pub schedule: Schedule,
    /// Decay of the running mean of the sensitivities.
    pub beta1: f64,
    /// Decay of the running mean of their deviations.
    pub beta2: f64,
    /// Weight of the orthogonality penalty.
    pub orth_reg_weight: f64,
}

impl AdaLoraConfig {
    /// From rank `init_rank` to `target_rank` on the query and value projections in `total_steps` optimizer steps, with a
    /// scale of 1, a tenth of the steps before the reduction and a third after it.
    pub fn new(init_rank: usize, target_rank: usize, total_steps: usize) -> Self {
        AdaLoraConfig {
            init_rank,
            target_rank,
            lora_alpha: init_rank as f64,
            dropout: 0.0,
            targets: vec!["q_proj".into(), "v_proj".into()],
            schedule: Schedule { tinit: total_steps / 10, tfinal: total_steps / 3, delta_t: 10, total_steps },
            beta1: 0.85,
            beta2: 0.85,
            orth_reg_weight: 0.5,
        }
    }

    /// What the update is multiplied by.
    pub fn scale(&self) -> f64 {
        self.lora_alpha / (self.init_rank as f64 + EPS)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        check_rank("init_rank", self.init_rank)?;
        check_rank("target_rank", self.target_rank)?;
        if self.target_rank > self.init_rank {
            return Err(format!("target_rank = {} is above init_rank = {}", self.target_rank, self.init_rank));
        }
        check_update(self.lora_alpha, self.dropout, &self.targets)?;
        for (key, beta) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            if !(beta > 0.0 && beta < 1.0) {
                return Err(format!("{key} = {beta} is not between 0 and 1"));
            }
        }
        if !(self.orth_reg_weight >= 0.0 && self.orth_reg_weight.is_finite()) {
            return Err(format!("orth_reg_weight = {} is not a weight", self.orth_reg_weight));
        }
        self.schedule.check()
    }
}

/// The update of one projection. Cloning shares the parameters.
#[derive(Clone)]
pub struct AdaLora {
    path: String,
    scale: f64,
    dropout: f64,
    q: Parameter,
    e: Parameter,
    p: Parameter,
}

impl AdaLora {
    /// `rank` is that of the tensors: `init_rank`, or less for a pruned adapter from a file.
    pub(crate) fn new(config: &AdaLoraConfig, rank: usize, site: &LinearSite, layer: usize, seed: u64) -> Result<Self> {
        config.check().map_err(|problem| Error::invalid("adalora", problem))?;
        let path = site.path(layer);
        let vectors = |name: &str, shape: [usize; 2]| {
            let name = format!("{path}.{name}");
            let values = Random::new(seed, &name, 0).normal_vec::<f32>(shape[0] * shape[1], STD);
            trainable(name, Role::Matrix, &Tensor::from_vec(values, shape)?)
        };
        Ok(AdaLora {
            q: vectors("lora_A", [rank, site.inputs])?,
            e: trainable(format!("{path}.lora_E"), Role::Vector, &Tensor::zeros::<f32>([rank, 1]))?,
            p: vectors("lora_B", [site.outputs, rank])?,
            scale: config.scale(),
            dropout: config.dropout,
            path,
        })
    }

    pub(crate) fn apply(&self, layer: &Linear, base: Option<&Tensor>, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = layer.plain(base, x)?;
        let e = self.e.tensor();
        if e.elements() == 0 {
            return Ok(y);
        }
        let dropped = dropped(x, self.dropout, &self.path, pass)?;
        let low = linear(dropped.as_ref().unwrap_or(x), &self.q.tensor(), None)?;
        let low = scale_columns(&low, &e.reshape([e.elements()])?, None)?;
        add_linear(&y, &low, &self.p.tensor(), None, Gate::Fixed(self.scale))
    }

    /// The two terms of the penalty: how far `Q` and `P` are from orthonormal.
    pub(super) fn penalties(&self) -> Result<[Tensor; 2]> {
        Ok([orthogonality(&self.q.tensor(), Side::Rows)?, orthogonality(&self.p.tensor(), Side::Columns)?])
    }

    /// Name of the projection: `model.layers.2.self_attn.q_proj`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What the update is multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Number of singular values that are not 0.
    pub fn rank(&self) -> usize {
        self.e.tensor().to_f64_vec().iter().filter(|e| **e != 0.0).count()
    }

    /// `Q` `[rank, in]`, `E` `[rank, 1]` and `P` `[out, rank]`.
    pub fn factors(&self) -> [Tensor; 3] {
        [self.q.tensor(), self.e.tensor(), self.p.tensor()]
    }

    /// `Q`, `E` and `P`.
    pub fn parameters(&self) -> Vec<Parameter> {
        vec![self.q.clone(), self.e.clone(), self.p.clone()]
    }
}
