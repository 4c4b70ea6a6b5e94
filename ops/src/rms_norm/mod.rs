//! Root-mean-square normalisation: `y = w x / sqrt(mean(x^2) + eps)` over the last dimension (Zhang and Sennrich, 2019).
//!
//! `x` `[..., width]`, `weight` `[width]`. With `n = x / deviation` and `h = g w`, the gradient of the input is
//! `(h - n mean(h n)) / deviation`.

#[doc(hidden)]
pub mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::for_float;
use crate::linear::column_sums;
use hankel_core::{Buffer, Result, Tensor, autograd};

/// Normalises every row.
///
/// # Errors
/// When shapes or element types do not fit.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let width = x.shape().last();
    check::shape("rms_norm", "weight", weight, &[width])?;
    check::dtype("rms_norm", "weight", weight, x.dtype())?;
    if let Some(gpu) = x.gpu() {
        return gpu::rms_norm(gpu, x, weight, eps);
    }
    for_float!(x, "rms_norm", T => {
        let mut out = Buffer::unspecified(x.elements());
        cpu::forward(x.data::<T>()?, weight.data()?, eps as T, &mut out);
        let out = Tensor::from_buffer(out, x.shape())?;
        let saved_x = (autograd::needs_gradient(x) || autograd::needs_gradient(weight)).then(|| x.detach());
        let saved_weight = weight.detach();
        out.from_operator("rms_norm", &[Some(x), Some(weight)], move |g, wanted| {
            let Some(x) = saved_x else { return Ok(vec![None, None]) };
            let mut input = Buffer::unspecified(x.elements());
            let mut gain = wanted[1].then(|| Buffer::unspecified(x.elements()));
            cpu::backward(x.data::<T>()?, saved_weight.data()?, g.data()?, eps as T, &mut input, gain.as_deref_mut());
            let dw = gain.map(|gain| Tensor::from_buffer(column_sums(&gain, width), [width])).transpose()?;
            Ok(vec![Some(Tensor::from_buffer(input, g.shape())?), dw])
        })
    })
}
