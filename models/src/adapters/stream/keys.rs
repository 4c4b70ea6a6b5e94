//! Parts of the kinds whose state is a matrix that keys change.

use hankel_core::{Result, Tensor};
use hankel_ops::{exp, rms_norm, scale, softplus};

/// What keeps a key of zero from being divided by its norm, which is 0.
const EPSILON: f64 = 1e-6;

/// The most heads, and the most rows or columns of a head's state.
pub(crate) const MOST_HEADS: usize = 1 << 12;
pub(crate) const MOST_STATES: usize = 1 << 8;

/// `1 / (1 + exp(-x))`.
pub(crate) fn sigmoid(x: &Tensor) -> Result<Tensor> {
    exp(&scale(&softplus(&scale(x, -1.0)?)?, -1.0)?)
}

/// `x` `[batch, T, h n]` as `[batch, T', width]`, every run of `n` numbers divided by its norm `sqrt(|k|^2 + n eps)`.
pub(crate) fn unit(x: &Tensor, n: usize, shape: [usize; 3]) -> Result<Tensor> {
    let weight = x.full_like([n], 1.0 / (n as f64).sqrt())?;
    rms_norm(&x.reshape([x.elements() / n, n])?, &weight, EPSILON)?.reshape(shape)
}
