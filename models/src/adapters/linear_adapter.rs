//! What is attached to one projection: a low-rank update, its direction and magnitude, a pruned one, or scales.

use super::adalora::AdaLora;
use super::dora::Dora;
use super::ia3::Ia3;
use super::lora::Lora;
use crate::linear::Linear;
use crate::parameter::{Parameter, Role};
use crate::pass::Pass;
use hankel_core::{Result, Tensor};
use hankel_ops::{add, dropout};

/// The adapter of one projection. Cloning shares the parameters.
#[derive(Clone)]
pub enum LinearAdapter {
    /// LoRA or rsLoRA.
    Lora(Lora),
    /// DoRA.
    Dora(Dora),
    /// AdaLoRA.
    AdaLora(AdaLora),
    /// IA3.
    Ia3(Ia3),
}

impl LinearAdapter {
    /// `base + ` the adapted projection of `x`; without `base` the projection alone.
    pub(crate) fn apply(&self, layer: &Linear, base: Option<&Tensor>, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self {
            LinearAdapter::Lora(adapter) => adapter.apply(layer, base, x, pass),
            LinearAdapter::Dora(adapter) => adapter.apply(layer, base, x, pass),
            LinearAdapter::AdaLora(adapter) => adapter.apply(layer, base, x, pass),
            LinearAdapter::Ia3(adapter) => adapter.apply(layer, base, x),
        }
    }

    /// What is learnt.
    pub fn parameters(&self) -> Vec<Parameter> {
        match self {
            LinearAdapter::Lora(adapter) => adapter.parameters(),
            LinearAdapter::Dora(adapter) => adapter.parameters(),
            LinearAdapter::AdaLora(adapter) => adapter.parameters(),
            LinearAdapter::Ia3(adapter) => adapter.parameters(),
        }
    }

    /// Name of the projection: `model.layers.2.self_attn.q_proj`.
    pub fn path(&self) -> &str {
        match self {
            LinearAdapter::Lora(adapter) => adapter.path(),
            LinearAdapter::Dora(adapter) => adapter.update().path(),
            LinearAdapter::AdaLora(adapter) => adapter.path(),
            LinearAdapter::Ia3(adapter) => adapter.path(),
        }
    }

    /// The rank of the update; for AdaLoRA the number of its singular values that are not 0; `None` for IA3.
    pub fn rank(&self) -> Option<usize> {
        match self {
            LinearAdapter::Lora(adapter) => Some(adapter.rank()),
            LinearAdapter::Dora(adapter) => Some(adapter.update().rank()),
            LinearAdapter::AdaLora(adapter) => Some(adapter.rank()),
            LinearAdapter::Ia3(_) => None,
        }
    }
}

/// `x` after dropout with probability `p` under `name` while training; `None` where nothing is dropped.
pub(super) fn dropped(x: &Tensor, p: f64, name: &str, pass: &Pass) -> Result<Option<Tensor>> {
    pass.training.filter(|_| p > 0.0).map(|key| dropout(x, p, key.random(name))).transpose()
}

/// `base + y`, or `y`.
pub(super) fn add_base(base: Option<&Tensor>, y: &Tensor) -> Result<Tensor> {
    base.map_or_else(|| Ok(y.clone()), |base| add(base, y))
}

/// A new parameter that learns.
pub(super) fn trainable(name: String, role: Role, value: &Tensor) -> Result<Parameter> {
    let parameter = Parameter::new(name, role, value);
    parameter.set_trainable(true)?;
    Ok(parameter)
}
