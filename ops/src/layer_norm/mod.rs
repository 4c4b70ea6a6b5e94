//! Layer normalisation: `y = w (x - mean) / sqrt(variance + eps) + b` over the last dimension (Ba et al., 2016).
//!
//! `x` `[..., width]`, `weight` `[width]`, `bias` `[width]`. With `n = (x - mean) / sqrt(variance + eps)` and `h = g w`:
//!
//! | | gradient |
//! | --- | --- |
//! | input | `(h - mean(h) - n mean(h n)) / sqrt(variance + eps)` |
//! | weight | `sum over rows g n` |
//! | bias | `sum over rows g` |

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use crate::sums::column_sums;
use hankel_core::{Result, Tensor, autograd};

const NAME: &str = "layer_norm";

/// Normalises every row.
///
/// # Errors
/// When shapes, element types or devices do not fit.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let width = x.shape().last();
    check::float(NAME, x)?;
    check::input(NAME, "weight", weight, &[width], x)?;
    if let Some(bias) = bias {
        check::input(NAME, "bias", bias, &[width], x)?;
    }
    let y = on_device!(x, forward(x, weight, bias, eps))?;
    let learns = autograd::needs_gradient(x) || autograd::needs_gradient(weight);
    let saved = learns.then(|| (x.detach(), weight.detach()));
    y.from_operator(NAME, &[Some(x), Some(weight), bias], move |g, wanted| {
        let d_bias = wanted[2].then(|| column_sums(&g, None)).transpose()?;
        let Some((x, weight)) = saved else { return Ok(vec![None, None, d_bias]) };
        let sum = wanted.take_sum(0);
        let (d_x, rows) = on_device!(x, backward(&x, &weight, eps, g, sum, wanted[1]))?;
        let d_weight = rows.map(|rows| column_sums(&rows, None)).transpose()?;
        Ok(vec![Some(d_x), d_weight, d_bias])
    })
}
