//! Layer normalisation: `y = w (x - mean) / sqrt(variance + eps) + b` over the last dimension (Ba et al., 2016).
//!
//! `x` `[..., width]`, `weight` `[width]`, `bias` `[width]`. With `n = (x - mean) / deviation` and `h = g w`, the gradient of
//! the input is `(h - mean(h) - n mean(h n)) / deviation`.

#[doc(hidden)]
pub mod cases;
mod cpu;
mod gpu;

use crate::check::{self, for_float};
use crate::linear::column_sums;
use hankel_core::{Buffer, Result, Tensor, autograd};

/// Normalises every row.
///
/// # Errors
/// When shapes or element types do not fit.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let width = x.shape().last();
    for (name, tensor) in [("weight", Some(weight)), ("bias", bias)] {
        if let Some(tensor) = tensor {
            check::shape("layer_norm", name, tensor, &[width])?;
            check::dtype("layer_norm", name, tensor, x.dtype())?;
        }
    }
    if let Some(gpu) = x.gpu() {
        return gpu::layer_norm(gpu, x, weight, bias, eps);
    }
    for_float!(x, "layer_norm", T => {
        let bias_data = bias.map(Tensor::data::<T>).transpose()?;
        let mut out = Buffer::unspecified(x.elements());
        cpu::forward(x.data::<T>()?, weight.data()?, bias_data, eps as T, &mut out);
        let out = Tensor::from_buffer(out, x.shape())?;

        let placeholder = Tensor::zeros::<T>([0]);
        let saved_x = (autograd::needs_gradient(x) || autograd::needs_gradient(weight)).then(|| x.detach());
        let saved_weight = weight.detach();
        out.from_operator("layer_norm", &[x, weight, bias.unwrap_or(&placeholder)], move |mut g, wanted| {
            let (mut dx, mut dw, mut db) = (None, None, None);
            if wanted[2] {
                db = Some(Tensor::from_buffer(column_sums(g.data::<T>()?, width), [width])?);
            }
            if let Some(x) = saved_x {
                let (x, eps) = (x.data::<T>()?, eps as T);
                if wanted[1] {
                    let mut gain = Buffer::unspecified(x.len());
                    cpu::gain(x, width, g.data()?, eps, &mut gain);
                    dw = Some(Tensor::from_buffer(column_sums(&gain, width), [width])?);
                }
                cpu::backward(x, saved_weight.data()?, eps, g.data_mut()?);
                dx = Some(g);
            }
            Ok(vec![dx, dw, db])
        })
    })
}
