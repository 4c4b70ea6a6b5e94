//! Rotary position embedding (Su et al., 2021), with the halves of a head as pairs: the convention of Llama's and Mistral's
//! files.
//!
//! `x` `[batch, T, heads * head_dim]`, output the same. In each head, dimensions `k` and `k + head_dim / 2` are the two
//! coordinates of a plane, and token `t` is turned in it by `angle = (offset + t) frequency_k`, in the original
//! `frequency_k = theta^(-2 k / head_dim)`:
//!
//! ```text
//! y_k           = m (x_k cos(angle) - x_{k + half} sin(angle))
//! y_{k + half}  = m (x_k sin(angle) + x_{k + half} cos(angle))
//! ```
//!
//! `m` is 1 but in some ways of stretching the context. The gradient is turned back by the same angles. Angles, sines and
//! cosines are computed in doubles: at position 4,000 an angle in single precision is off by 2e-4.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use hankel_core::{Error, Result, Tensor};
use std::sync::Arc;

const NAME: &str = "rope";

/// How fast each plane of a head turns. Cloning shares the frequencies.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotary {
    /// Radians per token in each plane: `[head_dim / 2]`.
    pub frequencies: Arc<[f64]>,
    /// Factor of the turned vectors.
    pub magnitude: f64,
}

impl Rotary {
    /// The original: `theta^(-2 k / head_dim)` for heads of `head_dim` elements (an even number), magnitude 1.
    pub fn new(head_dim: usize, theta: f64) -> Self {
        let frequencies = (0..head_dim / 2).map(|k| theta.powf(-2.0 * k as f64 / head_dim as f64)).collect();
        Rotary { frequencies, magnitude: 1.0 }
    }

    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        2 * self.frequencies.len()
    }
}

/// Turns every head of every token by its position; `offset` is the position of the first token: how many came before it
/// in the stream.
///
/// # Errors
/// When `head_dim` does not divide the width, a frequency or the magnitude is not finite, or the element type is not `f32`
/// or `f64`.
pub fn rope(x: &Tensor, rotary: &Rotary, offset: usize) -> Result<Tensor> {
    check::float(NAME, x)?;
    let &[_, _, width] = &x.shape()[..] else {
        return Err(Error::shape(NAME, format!("expected [batch, T, width], found {}", x.shape())));
    };
    let head_dim = rotary.head_dim();
    if head_dim == 0 || !width.is_multiple_of(head_dim) {
        return Err(Error::shape(NAME, format!("head_dim = {head_dim} does not divide the width {width}")));
    }
    if let Some(bad) = rotary.frequencies.iter().chain([&rotary.magnitude]).find(|value| !value.is_finite()) {
        return Err(Error::invalid(NAME, format!("a frequency or magnitude of {bad}, expected a finite number")));
    }
    let y = on_device!(x, forward(x, rotary, offset))?;
    let rotary = rotary.clone();
    y.from_operator(NAME, &[Some(x)], move |g, _| Ok(vec![Some(on_device!(g, backward(&g, &rotary, offset))?)]))
}
