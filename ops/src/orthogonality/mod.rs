//! Distance of a matrix from orthonormal rows or columns: the penalty of AdaLoRA (Zhang et al., 2023, equation 4).
//!
//! ```text
//! rows     v = || X X^T - I ||_F     dX = 2 (X X^T - I) X / v
//! columns  v = || X^T X - I ||_F     dX = 2 X (X^T X - I) / v
//! ```
//!
//! `X` `[m, n]`, output a scalar. At `v = 0` the gradient is 0.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use hankel_core::{Error, Result, Tensor};

const NAME: &str = "orthogonality";

/// Which vectors should be orthonormal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The rows: at most as many as columns.
    Rows,
    /// The columns: at most as many as rows.
    Columns,
}

/// `|| X X^T - I ||_F` or `|| X^T X - I ||_F`.
///
/// # Errors
/// When `x` is not a matrix of `f32` or `f64`.
pub fn orthogonality(x: &Tensor, side: Side) -> Result<Tensor> {
    check::float(NAME, x)?;
    if x.shape().len() != 2 {
        return Err(Error::shape(NAME, format!("expected a matrix, found {}", x.shape())));
    }
    let (norm, difference) = on_device!(x, forward(x, side))?;
    let (saved_x, saved_norm) = (x.detach(), norm.clone());
    norm.from_operator(NAME, &[Some(x)], move |g, _| {
        Ok(vec![Some(on_device!(g, backward(&saved_x, side, &difference, &saved_norm, &g))?)])
    })
}
