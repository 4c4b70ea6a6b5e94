//! Gaussian error linear unit, exact: `y = x Φ(x)`, with `Φ` the normal distribution function (Hendrycks and Gimpel, 2016).
//!
//! Any shape. The gradient is `g (Φ(x) + x φ(x))`, with `φ` the density.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use hankel_core::{Result, Tensor, autograd};

const NAME: &str = "gelu";

/// `x Φ(x)`, element by element.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    check::float(NAME, x)?;
    let (y, saved) = on_device!(x, forward(x, autograd::needs_gradient(x)))?;
    y.from_operator(NAME, &[Some(x)], move |g, _| Ok(vec![Some(on_device!(g, backward(&saved, g))?)]))
}
