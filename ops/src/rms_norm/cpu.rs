//! The rows one by one.

use crate::dispatch::for_float;
use crate::kernels::Real;
use crate::kernels::rows::{sum_of_products, sum_of_squares};
use crate::kernels::simd::vectorized;
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

/// The gradient of `x`, in the memory of `g`, and if wanted the rows whose sum is the gradient of the weight.
pub(super) fn backward(
    x: &Tensor,
    weight: &Tensor,
    eps: f64,
    mut g: Tensor,
    of_weight: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let width = x.shape().last();
    for_float!(x, super::NAME, T => {
        let (source, weight, eps) = (x.data::<T>()?, weight.data()?, eps as T);
        let rows = if of_weight {
            let (mut rows, g) = (Buffer::<T>::unspecified(source.len()), g.data()?);
            parallel::for_rows(&mut rows, width, |first, rows| {
                let (source, g) = (&source[first * width..], &g[first * width..]);
                vectorized(#[inline(always)] || weight_rows(source, width, g, eps, rows));
            });
            Some(Tensor::from_buffer(rows, x.shape())?)
        } else {
            None
        };
        parallel::for_rows(g.data_mut()?, width, |first, g| {
            vectorized(#[inline(always)] || input_rows(&source[first * width..], weight, eps, g));
        });
        Ok((g, rows))
    })
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

#[inline(always)]
fn input_rows<T: Real>(x: &[T], weight: &[T], eps: T, g: &mut [T]) {
    let width = weight.len();
    let scale = T::of(1.0 / width as f64);
    for (x, g) in x.chunks_exact(width).zip(g.chunks_exact_mut(width)) {
        let inverse = inverse_deviation(x, eps);
        let sum_hx = sum_of_products([x, g, weight]);
        let mean_hx = sum_hx * scale * inverse * inverse;
        for ((g, &x), &w) in g.iter_mut().zip(x).zip(weight) {
            *g = (*g * w - x * mean_hx) * inverse;
        }
    }
}

#[inline(always)]
fn weight_rows<T: Real>(x: &[T], width: usize, g: &[T], eps: T, rows: &mut [T]) {
    for ((row, x), g) in rows.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(g.chunks_exact(width)) {
        let inverse = inverse_deviation(x, eps);
        for ((y, &x), &g) in row.iter_mut().zip(x).zip(g) {
            *y = g * x * inverse;
        }
    }
}

#[inline(always)]
fn inverse_deviation<T: Real>(x: &[T], eps: T) -> T {
    T::one() / (sum_of_squares(x, T::zero()) * T::of(1.0 / x.len() as f64) + eps).sqrt()
}
