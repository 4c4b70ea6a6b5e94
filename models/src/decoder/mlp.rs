//! The part of the MLP before its last projection: gated or not.

use super::attention::columns;
use super::block::{Parts, Projection};
use super::config::{Activation, DecoderConfig};
use super::layout::{Slot, Up};
use crate::adapters::LayerAdapters;
use crate::pass::Pass;
use hankel_core::{Result, Tensor};
use hankel_ops::{gelu_tanh, multiply, swiglu};

#[derive(Clone)]
pub(super) struct Mlp {
    /// Gate and value, both in one, or a value that is not gated.
    up: Vec<Projection>,
    gated: bool,
    width: usize,
    activation: Activation,
}

impl Mlp {
    pub(super) fn new(config: &DecoderConfig, parts: &mut Parts) -> Self {
        Mlp {
            up: parts.projections(Slot::Up),
            gated: !matches!(config.family.names.up, Up::Plain(_)),
            width: config.d_ff,
            activation: config.activation,
        }
    }

    /// What the last projection reads, `[batch, T, d_ff]`.
    pub(super) fn forward(&self, x: &Tensor, adapters: &LayerAdapters, pass: &Pass) -> Result<Tensor> {
        let x = &x.keep_conversion();
        let first = self.up[0].forward(x, adapters, pass)?;
        if !self.gated {
            return match self.activation {
                Activation::GeluTanh => gelu_tanh(&first),
                Activation::Silu => swiglu(&first, &first.full_like(first.shape(), 1.0)?),
            };
        }
        let (gate, up) = match self.up.get(1) {
            Some(up) => (first, up.forward(x, adapters, pass)?),
            None => (columns(&first, self.width, 0, 1)?, columns(&first, self.width, 1, 1)?),
        };
        match self.activation {
            Activation::Silu => swiglu(&gate, &up),
            Activation::GeluTanh => multiply(&gelu_tanh(&gate)?, &up),
        }
    }
}
