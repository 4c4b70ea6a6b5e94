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

#[doc(hidden)]
pub mod cases;
mod cpu;
mod gpu;

use crate::dispatch::for_float;
use cpu::Turns;
use hankel_core::{Buffer, Error, Result, Tensor};
use std::sync::Arc;

/// How fast each plane of a head turns. Cloning shares the frequencies.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotary {
    /// Radians per token in each plane: `[head_dim / 2]`.
    pub frequencies: Arc<[f64]>,
    /// What the turned vectors are multiplied by.
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
/// When the width is no multiple of the head's, or a frequency or the magnitude is not finite.
pub fn rope(x: &Tensor, rotary: &Rotary, offset: usize) -> Result<Tensor> {
    let &[_, steps, width] = &x.shape()[..] else {
        return Err(Error::shape("rope", format!("expected [batch, T, width], found {}", x.shape())));
    };
    let head_dim = rotary.head_dim();
    if head_dim == 0 || !width.is_multiple_of(head_dim) {
        return Err(Error::shape("rope", format!("heads of {head_dim} do not divide a width of {width}")));
    }
    if let Some(bad) = rotary.frequencies.iter().chain([&rotary.magnitude]).find(|value| !value.is_finite()) {
        return Err(Error::invalid("rope", format!("a frequency or magnitude of {bad}")));
    }
    if let Some(gpu) = x.gpu() {
        return gpu::rope(gpu, x, rotary, offset);
    }
    for_float!(x, "rope", T => {
        let mut out = Buffer::<T>::unspecified(x.elements());
        cpu::turn(&Turns::forward(rotary, offset, steps), x.data()?, width, &mut out);
        let rotary = rotary.clone();
        Tensor::from_buffer(out, x.shape())?.from_operator("rope", &[Some(x)], move |g, _| {
            let mut dx = Buffer::<T>::unspecified(g.elements());
            cpu::turn(&Turns::backward(&rotary, offset, steps), g.data()?, width, &mut dx);
            Ok(vec![Some(Tensor::from_buffer(dx, g.shape())?)])
        })
    })
}
