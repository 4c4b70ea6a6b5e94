//! The part of the MLP before its last projection: gated or not.

use super::attention::columns;
use super::block::{Parts, Projection};
use super::config::{Activation, DecoderConfig};
use super::layout::{Slot, Up};
use crate::adapters::LayerAdapters;
use crate::pass::Pass;
use hankel_core::{Result, Tensor};
use hankel_ops::{add, exp, multiply, scale, softplus, swiglu};
use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

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

/// GELU by its approximation with a hyperbolic tangent: `x sigmoid(u)`, `u = 2 sqrt(2 / pi) (x + 0.044715 x^3)`.
fn gelu_tanh(x: &Tensor) -> Result<Tensor> {
    let bend = add(&x.full_like(x.shape(), 1.0)?, &scale(&multiply(x, x)?, 0.044_715)?)?;
    let u = scale(&multiply(x, &bend)?, FRAC_2_SQRT_PI * SQRT_2)?;
    // sigmoid(u) = exp(-softplus(-u)), without overflow at either end.
    let sigmoid = exp(&scale(&softplus(&scale(&u, -1.0)?)?, -1.0)?)?;
    multiply(x, &sigmoid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_approximation_of_gelu_is_the_published_one() {
        let x: Vec<f64> = (-60..=60).map(|i| f64::from(i) / 4.0).collect();
        let y = gelu_tanh(&Tensor::from_vec(x.clone(), [x.len()]).unwrap()).unwrap().to_f64_vec();
        for (x, y) in x.iter().zip(y) {
            let expected = 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh());
            assert!((y - expected).abs() < 1e-14, "{x}: {y} {expected}");
        }
    }
}
