//! Two products of matrices.

use super::{NAME, Side};
use crate::dispatch::for_float;
use crate::kernels::{Accumulate, Mat, gemm};
use hankel_core::{Buffer, Float, Result, Tensor};

/// The norm, and the difference from the identity.
pub(super) fn forward(x: &Tensor, side: Side) -> Result<(Tensor, Tensor)> {
    let (m, n) = (x.shape()[0], x.shape()[1]);
    for_float!(x, NAME, T => {
        let (matrix, size) = (Mat::new(x.data::<T>()?, m, n), if side == Side::Rows { m } else { n });
        let (left, right) = if side == Side::Rows { (matrix, matrix.t()) } else { (matrix.t(), matrix) };
        let mut difference = Buffer::<T>::unspecified(size * size);
        gemm(1.0, left, &right, Accumulate::Overwrite, &mut difference, size);
        difference.iter_mut().step_by(size + 1).for_each(|x| *x -= 1.0);
        let norm = difference.iter().map(|x| x.f64().powi(2)).sum::<f64>().sqrt();
        Ok((Tensor::scalar(norm as T), Tensor::from_buffer(difference, [size, size])?))
    })
}

/// `2 g E X / norm` for rows, `2 g X E / norm` for columns, `E` the difference.
pub(super) fn backward(x: &Tensor, side: Side, difference: &Tensor, norm: &Tensor, g: &Tensor) -> Result<Tensor> {
    let (m, n) = (x.shape()[0], x.shape()[1]);
    for_float!(x, NAME, T => {
        let (g, norm) = (g.data::<T>()?[0], norm.data::<T>()?[0]);
        let factor = if norm > 0.0 { 2.0 * g / norm } else { 0.0 };
        let (matrix, difference) = (Mat::new(x.data::<T>()?, m, n), difference.data::<T>()?);
        let mut d_x = Buffer::<T>::unspecified(m * n);
        match side {
            Side::Rows => gemm(factor, Mat::new(difference, m, m), &matrix, Accumulate::Overwrite, &mut d_x, n),
            Side::Columns => gemm(factor, matrix, &Mat::new(difference, n, n), Accumulate::Overwrite, &mut d_x, n),
        }
        Tensor::from_buffer(d_x, x.shape())
    })
}
