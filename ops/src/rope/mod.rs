//! Rotary position embedding (Su et al., 2021), with the halves of a head as pairs: the convention of Llama's and Mistral's
//! files.
//!
//! `x` `[batch, T, heads * head_dim]`, output the same. In each head, dimensions `k` and `k + head_dim / 2` are the two
//! coordinates of a plane, and token `t` is turned in it by `angle = (offset + t) theta^(-2 k / head_dim)`:
//!
//! ```text
//! y_k           = x_k cos(angle) - x_{k + half} sin(angle)
//! y_{k + half}  = x_k sin(angle) + x_{k + half} cos(angle)
//! ```
//!
//! The gradient is turned back by the same angles. Angles, sines and cosines are computed in doubles: at position 4,000 an
//! angle in single precision is off by 2e-4.

#[doc(hidden)]
pub mod cases;
mod cpu;
mod gpu;

use crate::check::for_float;
use cpu::Turns;
use hankel_core::{Buffer, Error, Result, Tensor};

/// What the angles depend on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotation {
    /// Width of a head, even.
    pub head_dim: usize,
    /// Position of the first token: how many came before it in the stream.
    pub offset: usize,
    /// Base of the wavelengths, 1e4 in Mistral-7B.
    pub theta: f64,
}

/// Turns every head of every token by its position.
///
/// # Errors
/// When the width is no multiple of the head's, the head's width is odd, or `theta` is not positive.
pub fn rope(x: &Tensor, rotation: Rotation) -> Result<Tensor> {
    let Rotation { head_dim, theta, .. } = rotation;
    let &[_, steps, width] = &x.shape()[..] else {
        return Err(Error::shape("rope", format!("expected [batch, T, width], found {}", x.shape())));
    };
    if head_dim == 0 || !head_dim.is_multiple_of(2) || !width.is_multiple_of(head_dim) {
        let problem = format!("heads of {head_dim} (it must be even) do not divide a width of {width}");
        return Err(Error::shape("rope", problem));
    }
    if !(theta > 0.0 && theta.is_finite()) {
        return Err(Error::invalid("rope", format!("theta = {theta} is not a positive number")));
    }
    if let Some(gpu) = x.gpu() {
        return gpu::rope(gpu, x, rotation);
    }
    for_float!(x, "rope", T => {
        let mut out = Buffer::<T>::unspecified(x.elements());
        cpu::turn(&Turns::forward(rotation, steps), x.data()?, width, &mut out);
        Tensor::from_buffer(out, x.shape())?.from_operator("rope", &[x], move |g, _| {
            let mut dx = Buffer::<T>::unspecified(g.elements());
            cpu::turn(&Turns::backward(rotation, steps), g.data()?, width, &mut dx);
            Ok(vec![Some(Tensor::from_buffer(dx, g.shape())?)])
        })
    })
}
