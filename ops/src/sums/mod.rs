//! Sums over rows, in which the gradients of weights and biases end.

mod cpu;
mod gpu;

use crate::dispatch::on_device;
use hankel_core::{Result, Tensor};

/// The sum over all rows of `g` `[..., width]`, or of `g * x` with `x` of the same shape: `[width]`.
///
/// On each device the order of the sum depends on the shape alone.
pub(crate) fn column_sums(g: &Tensor, x: Option<&Tensor>) -> Result<Tensor> {
    on_device!(g, column_sums(g, x))
}

/// The sum of all elements of `g * x`, both of one shape: a scalar.
pub(crate) fn dot(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    on_device!(g, dot(g, x))
}
