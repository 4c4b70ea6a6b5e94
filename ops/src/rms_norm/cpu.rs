//! The rows one by one.

use crate::dispatch::for_float;
use crate::kernels::Real;
use crate::kernels::rows::{sum_of_products, sum_of_squares};
use crate::kernels::simd::vectorized;
use crate::normalization::{self, RowGradient};
use hankel_core::{Buffer, Result, Tensor, parallel};

pub(super) fn forward(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let width = x.shape().last();
    for_float!(x, super::NAME, T => {
        let (source, weight) = (x.data::<T>()?, weight.data()?);
        let mut y = Buffer::<T>::unspecified(source.len());
        parallel::for_rows(&mut y, width, |first, y| {
            vectorized(#[inline(always)] || forward_rows(&source[first * width..], weight, eps as T, y));
        });
        Tensor::from_buffer(y, x.shape())
    })
}

/// The gradient of `x`, in the memory of `g` or added to `sum`, and if wanted the rows whose sum is the gradient of the weight.
pub(super) fn backward(
    x: &Tensor,
    weight: &Tensor,
    eps: f64,
    g: Tensor,
    sum: Option<Tensor>,
    of_weight: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    for_float!(x, super::NAME, T => normalization::backward::<T, Row<T>>(x, weight, eps as T, g, sum, of_weight))
}

#[inline(always)]
fn forward_rows<T: Real>(x: &[T], weight: &[T], eps: T, y: &mut [T]) {
    let width = weight.len();
    for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
        let inverse = inverse_deviation(x, eps);
        for ((y, &x), &w) in y.iter_mut().zip(x).zip(weight) {
            *y = x * inverse * w;
        }
    }
}

/// What the gradient of a row of `x` needs of all its elements.
struct Row<T> {
    inverse: T,
    mean_hx: T,
}

impl<T: Real> RowGradient<T> for Row<T> {
    #[inline(always)]
    fn of(x: &[T], weight: &[T], eps: T, g: &[T]) -> Self {
        let inverse = inverse_deviation(x, eps);
        let mean = sum_of_products([x, g, weight]) * T::of(1.0 / x.len() as f64);
        Row { inverse, mean_hx: mean * inverse * inverse }
    }

    #[inline(always)]
    fn gradient(&self, x: T, w: T, g: T) -> T {
        (g * w - x * self.mean_hx) * self.inverse
    }

    #[inline(always)]
    fn weight_rows(x: &[T], width: usize, g: &[T], eps: T, rows: &mut [T]) {
        for ((row, x), g) in rows.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(g.chunks_exact(width)) {
            let inverse = inverse_deviation(x, eps);
            for ((y, &x), &g) in row.iter_mut().zip(x).zip(g) {
                *y = g * x * inverse;
            }
        }
    }
}

#[inline(always)]
fn inverse_deviation<T: Real>(x: &[T], eps: T) -> T {
    T::one() / (sum_of_squares(x, T::zero()) * T::of(1.0 / x.len() as f64) + eps).sqrt()
}
