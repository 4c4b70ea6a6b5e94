//! The rows one by one.

use crate::dispatch::for_float;
use crate::kernels::Real;
use crate::kernels::rows::{sum, sum_of_squares, two_sums};
use crate::kernels::simd::vectorized;
use crate::normalization::{self, RowGradient};
use hankel_core::{Buffer, Result, Tensor, parallel};

pub(super) fn forward(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let width = x.shape().last();
    for_float!(x, super::NAME, T => {
        let (source, weight, bias) = (x.data::<T>()?, weight.data()?, bias.map(Tensor::data).transpose()?);
        let mut y = Buffer::<T>::unspecified(source.len());
        parallel::for_rows(&mut y, width, |first, y| {
            vectorized(#[inline(always)] || forward_rows(&source[first * width..], weight, bias, eps as T, y));
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
fn forward_rows<T: Real>(x: &[T], weight: &[T], bias: Option<&[T]>, eps: T, y: &mut [T]) {
    let width = weight.len();
    for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
        let (mean, inverse) = moments(x, eps);
        match bias {
            Some(bias) => {
                for (((y, &x), &w), &b) in y.iter_mut().zip(x).zip(weight).zip(bias) {
                    *y = (x - mean) * inverse * w + b;
                }
            }
            None => {
                for ((y, &x), &w) in y.iter_mut().zip(x).zip(weight) {
                    *y = (x - mean) * inverse * w;
                }
            }
        }
    }
}

/// What the gradient of a row of `x` needs of all its elements.
struct Row<T> {
    mean: T,
    inverse: T,
    mean_h: T,
    mean_hn: T,
}

impl<T: Real> RowGradient<T> for Row<T> {
    #[inline(always)]
    fn of(x: &[T], weight: &[T], eps: T, g: &[T]) -> Self {
        let scale = T::of(1.0 / x.len() as f64);
        let (mean, inverse) = moments(x, eps);
        let [sum_h, sum_hx] = two_sums(
            [x, g, weight],
            #[inline(always)]
            |x, g, w| [g * w, g * w * (x - mean)],
        );
        Row { mean, inverse, mean_h: sum_h * scale, mean_hn: sum_hx * inverse * scale }
    }

    #[inline(always)]
    fn gradient(&self, x: T, w: T, g: T) -> T {
        (g * w - self.mean_h - (x - self.mean) * self.inverse * self.mean_hn) * self.inverse
    }

    #[inline(always)]
    fn weight_rows(x: &[T], width: usize, g: &[T], eps: T, rows: &mut [T]) {
        for ((row, x), g) in rows.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(g.chunks_exact(width)) {
            let (mean, inverse) = moments(x, eps);
            for ((y, &x), &g) in row.iter_mut().zip(x).zip(g) {
                *y = g * (x - mean) * inverse;
            }
        }
    }
}

/// Mean, and the reciprocal of the standard deviation.
#[inline(always)]
fn moments<T: Real>(x: &[T], eps: T) -> (T, T) {
    let scale = T::of(1.0 / x.len() as f64);
    let mean = sum(x) * scale;
    (mean, T::one() / (sum_of_squares(x, mean) * scale + eps).sqrt())
}
