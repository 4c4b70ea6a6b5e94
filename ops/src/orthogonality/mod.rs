//! How far a matrix is from having orthonormal rows or columns: the penalty of AdaLoRA (Zhang et al., 2023, equation 4).
//!
//! ```text
//! rows     v = || X X^T - I ||_F     dX = 2 (X X^T - I) X / v
//! columns  v = || X^T X - I ||_F     dX = 2 X (X^T X - I) / v
//! ```
//!
//! `X` `[m, n]`, output a scalar. At `v = 0` the gradient is 0.

#[doc(hidden)]
pub mod cases;
mod gpu;

use crate::dispatch::for_float;
use crate::kernels::{Accumulate, Mat, Real, gemm};
use hankel_core::{Buffer, Error, Result, Tensor};

/// What should be orthonormal.
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
    let &[m, n] = &x.shape()[..] else {
        return Err(Error::shape("orthogonality", format!("expected a matrix, found {}", x.shape())));
    };
    if let Some(gpu) = x.gpu() {
        return gpu::orthogonality(gpu, x, side);
    }
    for_float!(x, "orthogonality", T => {
        let (matrix, size) = (Mat::new(x.data::<T>()?, m, n), if side == Side::Rows { m } else { n });
        let (left, right) = if side == Side::Rows { (matrix, matrix.t()) } else { (matrix.t(), matrix) };
        let mut difference = Buffer::<T>::unspecified(size * size);
        gemm(1.0, left, &right, Accumulate::Overwrite, &mut difference, size);
        difference.iter_mut().step_by(size + 1).for_each(|x| *x -= 1.0);
        let norm = difference.iter().map(|&x| hankel_core::Float::f64(x).powi(2)).sum::<f64>().sqrt();
        let saved = x.detach();
        Tensor::scalar(norm as T).from_operator("orthogonality", &[Some(x)], move |g, _| {
            let factor = if norm > 0.0 { 2.0 * g.data::<T>()?[0] / norm as T } else { 0.0 };
            Ok(vec![Some(times_difference(factor, &saved, side, &difference)?)])
        })
    })
}

/// `factor E X` for rows, `factor X E` for columns, `E` the symmetric difference.
fn times_difference<T: Real>(factor: T, x: &Tensor, side: Side, difference: &[T]) -> Result<Tensor> {
    let (m, n) = (x.shape()[0], x.shape()[1]);
    let matrix = Mat::new(x.data::<T>()?, m, n);
    let mut out = Buffer::unspecified(m * n);
    match side {
        Side::Rows => gemm(factor, Mat::new(difference, m, m), &matrix, Accumulate::Overwrite, &mut out, n),
        Side::Columns => gemm(factor, matrix, &Mat::new(difference, n, n), Accumulate::Overwrite, &mut out, n),
    }
    Tensor::from_buffer(out, x.shape())
}
