//! Kernels over rows.

use crate::kernels::Real;
use crate::kernels::rows::{LANES, sum_of_squares, total};
use crate::kernels::simd::vectorized;
use hankel_core::parallel;

/// `y` gets the normalised rows of `x`.
pub fn forward<T: Real>(x: &[T], weight: &[T], eps: T, y: &mut [T]) {
    parallel::for_rows(y, weight.len(), |first, y| {
        vectorized(
            #[inline(always)]
            || forward_rows(&x[first * weight.len()..], weight, eps, y),
        );
    });
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

/// `dx` gets the gradient of the input; `gain`, if wanted, the rows whose sum is the gradient of the weight.
pub fn backward<T: Real>(x: &[T], weight: &[T], g: &[T], eps: T, dx: &mut [T], gain: Option<&mut [T]>) {
    let width = weight.len();
    parallel::for_rows(dx, width, |first, dx| {
        vectorized(
            #[inline(always)]
            || input_rows(&x[first * width..], weight, &g[first * width..], eps, dx),
        );
    });
    if let Some(gain) = gain {
        parallel::for_rows(gain, width, |first, gain| {
            vectorized(
                #[inline(always)]
                || gain_rows(&x[first * width..], width, &g[first * width..], eps, gain),
            );
        });
    }
}

#[inline(always)]
fn input_rows<T: Real>(x: &[T], weight: &[T], g: &[T], eps: T, dx: &mut [T]) {
    let width = weight.len();
    let scale = T::of(1.0 / width as f64);
    for ((dx, x), g) in dx.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(g.chunks_exact(width)) {
        let inverse = inverse_deviation(x, eps);
        let mut sums = [T::zero(); LANES];
        for ((x, g), w) in x.chunks(LANES).zip(g.chunks(LANES)).zip(weight.chunks(LANES)) {
            for lane in 0..x.len() {
                sums[lane] += x[lane] * g[lane] * w[lane];
            }
        }
        let mean_hx = total(sums) * scale * inverse * inverse;
        for (((dx, &x), &g), &w) in dx.iter_mut().zip(x).zip(g).zip(weight) {
            *dx = (g * w - x * mean_hx) * inverse;
        }
    }
}

#[inline(always)]
fn gain_rows<T: Real>(x: &[T], width: usize, g: &[T], eps: T, gain: &mut [T]) {
    for ((gain, x), g) in gain.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(g.chunks_exact(width)) {
        let inverse = inverse_deviation(x, eps);
        for ((gain, &x), &g) in gain.iter_mut().zip(x).zip(g) {
            *gain = g * x * inverse;
        }
    }
}

#[inline(always)]
fn inverse_deviation<T: Real>(x: &[T], eps: T) -> T {
    T::one() / (sum_of_squares(x, T::zero()) * T::of(1.0 / x.len() as f64) + eps).sqrt()
}
