//! The part of the MLP before its last projection: gated or not.

use super::attention::columns;
use super::block::{Parts, Projection};
use super::config::DecoderConfig;
use super::layout::Slot;
use crate::adapters::LayerAdapters;
use crate::pass::Pass;
use hankel_core::{Result, Tensor};
use hankel_ops::swiglu;

#[derive(Clone)]
pub(super) struct Mlp {
    /// Gate and value, both in one, or a value that is not gated.
    up: Vec<Projection>,
    width: usize,
}

impl Mlp {
    pub(super) fn new(config: &DecoderConfig, parts: &mut Parts) -> Self {
        Mlp { up: parts.projections(Slot::Up), width: config.d_ff }
    }

    /// What the last projection reads, `[batch, T, d_ff]`.
    pub(super) fn forward(&self, x: &Tensor, adapters: &LayerAdapters, pass: &Pass) -> Result<Tensor> {
        let first = self.up[0].forward(x, adapters, pass)?;
        let (gate, up) = match self.up.get(1) {
            Some(up) => (first, up.forward(x, adapters, pass)?),
            None => (columns(&first, self.width, 0, 1)?, columns(&first, self.width, 1, 1)?),
        };
        swiglu(&gate, &up)
    }
}
