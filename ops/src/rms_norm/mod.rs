//! Root-mean-square normalisation: `y = w x / sqrt(mean(x^2) + eps)` over the last dimension (Zhang and Sennrich, 2019).
//!
//! `x` `[..., width]`, `weight` `[width]`. With `n = x / sqrt(mean(x^2) + eps)` and `h = g w`:
//!
//! | | gradient |
//! | --- | --- |
//! | input | `(h - n mean(h n)) / sqrt(mean(x^2) + eps)` |
//! | weight | `sum over rows g n` |

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use crate::sums::column_sums;
use hankel_core::{Result, Tensor};

const NAME: &str = "rms_norm";

/// Normalises every row.
///
/// # Errors
/// When shapes, element types or devices do not fit.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    check::float(NAME, x)?;
    check::input(NAME, "weight", weight, &[x.shape().last()], x)?;
    let y = on_device!(x, forward(x, weight, eps))?;
    let (saved_x, saved_weight) = (x.detach(), weight.detach());
    y.from_operator(NAME, &[Some(x), Some(weight)], move |g, wanted| {
        let sum = wanted.take_sum(0);
        let (d_x, rows) = on_device!(g, backward(&saved_x, &saved_weight, eps, g, sum, wanted[1]))?;
        let d_weight = rows.map(|rows| column_sums(&rows, None)).transpose()?;
        Ok(vec![Some(d_x), d_weight])
    })
}
