//! Low-rank adaptation (Hu et al., 2021): `y = W x + s B A drop(x)`, `s = lora_alpha / rank`; with rsLoRA
//! (Kalajdzievski, 2023) `s = lora_alpha / sqrt(rank)`, so that the update keeps its size as the rank grows.
//!
//! `A` `[rank, in]`, `B` `[out, rank]`. `B` starts at zero, so the model starts unchanged; `A` is uniform in
//! `+- 1/sqrt(in)`, as PEFT draws it. The update is added in the pass that reads the projection's output.

use super::linear_adapter::{dropped, trainable};
use super::placement::LinearSite;
use crate::linear::Linear;
use crate::parameter::{Parameter, Role};
use crate::pass::Pass;
use hankel_core::{Error, Random, Result, Tensor};
use hankel_ops::{Gate, add_linear, linear};

/// Settings of LoRA, rsLoRA and DoRA.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraConfig {
    /// Rank r.
    pub rank: usize,
    /// The update is scaled by `lora_alpha / rank`.
    pub lora_alpha: f64,
    /// Probability of dropout on the input of `A`, while training.
    pub dropout: f64,
    /// Projections that get one (see [`Placement::select`](super::Placement::select)).
    pub targets: Vec<String>,
    /// Scale by `lora_alpha / sqrt(rank)` instead.
    pub rslora: bool,
    /// Learn magnitude and direction of the rows apart (DoRA).
    pub dora: bool,
}

impl LoraConfig {
    /// Rank `rank` on the query and value projections with a scale of 1.
    pub fn new(rank: usize) -> Self {
        LoraConfig {
            rank,
            lora_alpha: rank as f64,
            dropout: 0.0,
            targets: vec!["q_proj".into(), "v_proj".into()],
            rslora: false,
            dora: false,
        }
    }

    /// What the update is multiplied by.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.lora_alpha / if self.rslora { rank.sqrt() } else { rank }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        check_rank("rank", self.rank)?;
        check_update(self.lora_alpha, self.dropout, &self.targets)
    }
}

pub(super) fn check_rank(key: &str, rank: usize) -> Result<(), String> {
    if (1..=1 << 20).contains(&rank) { Ok(()) } else { Err(format!("{key} = {rank} is out of range")) }
}

pub(super) fn check_update(lora_alpha: f64, dropout: f64, targets: &[String]) -> Result<(), String> {
    if !lora_alpha.is_finite() {
        return Err(format!("lora_alpha = {lora_alpha} is not finite"));
    }
    if !(0.0..1.0).contains(&dropout) {
        return Err(format!("dropout = {dropout} is not in 0 <= p < 1"));
    }
    if targets.is_empty() { Err("targets must name at least one projection".to_owned()) } else { Ok(()) }
}

/// The low-rank update of one projection. Cloning shares the parameters.
#[derive(Clone)]
pub struct Lora {
    path: String,
    scale: f64,
    dropout: f64,
    a: Parameter,
    b: Parameter,
}

impl Lora {
    pub(crate) fn new(config: &LoraConfig, site: &LinearSite, layer: usize, seed: u64) -> Result<Self> {
        config.check().map_err(|problem| Error::invalid("lora", problem))?;
        let path = site.path(layer);
        let bound = 1.0 / (site.inputs as f64).sqrt();
        let random = Random::new(seed, &format!("{path}.lora_A"), 0);
        let a = (0..(config.rank * site.inputs) as u64).map(|i| (bound * (2.0 * random.uniform(i) - 1.0)) as f32);
        let a = Tensor::from_vec(a.collect(), [config.rank, site.inputs])?;
        let b = Tensor::zeros::<f32>([site.outputs, config.rank]);
        Ok(Lora {
            scale: config.scale(),
            dropout: config.dropout,
            a: trainable(format!("{path}.lora_A.weight"), Role::Matrix, &a)?,
            b: trainable(format!("{path}.lora_B.weight"), Role::Matrix, &b)?,
            path,
        })
    }

    pub(crate) fn apply(&self, layer: &Linear, base: Option<&Tensor>, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = layer.plain(base, x)?;
        self.add_onto(&y, self.dropped(x, pass)?.as_ref().unwrap_or(x))
    }

    /// `y + s B A x`.
    pub(super) fn add_onto(&self, y: &Tensor, x: &Tensor) -> Result<Tensor> {
        add_linear(y, &linear(x, &self.a.tensor(), None)?, &self.b.tensor(), None, Gate::Fixed(self.scale))
    }

    pub(super) fn dropped(&self, x: &Tensor, pass: &Pass) -> Result<Option<Tensor>> {
        dropped(x, self.dropout, &self.path, pass)
    }

    /// Name of the projection: `model.layers.2.self_attn.q_proj`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What the update is multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Rank.
    pub fn rank(&self) -> usize {
        self.a.tensor().shape()[0]
    }

    /// `A` `[rank, in]` and `B` `[out, rank]`.
    pub fn factors(&self) -> [Tensor; 2] {
        [self.a.tensor(), self.b.tensor()]
    }

    /// `A` and `B`.
    pub fn parameters(&self) -> Vec<Parameter> {
        vec![self.a.clone(), self.b.clone()]
    }
}
