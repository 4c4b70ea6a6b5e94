//! Kernels over rows.

use crate::kernels::Real;
use crate::kernels::rows::{LANES, sum_of_squares, total};
use crate::kernels::simd::vectorized;
use hankel_core::parallel;

/// `y` gets the normalised rows of `x`.
pub fn forward<T: Real>(x: &[T], weight: &[T], bias: Option<&[T]>, eps: T, y: &mut [T]) {
    parallel::for_rows(y, weight.len(), |first, y| {
        vectorized(
            #[inline(always)]
            || forward_rows(&x[first * weight.len()..], weight, bias, eps, y),
        );
    });
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

/// The gradient of the output in `g` becomes that of the input.
pub fn backward<T: Real>(x: &[T], weight: &[T], eps: T, g: &mut [T]) {
    let width = weight.len();
    parallel::for_rows(g, width, |first, g| {
        vectorized(
            #[inline(always)]
            || input_rows(&x[first * width..], weight, eps, g),
        );
    });
}

/// `gain` gets the rows whose sum is the gradient of the weight.
pub fn gain<T: Real>(x: &[T], width: usize, g: &[T], eps: T, gain: &mut [T]) {
    parallel::for_rows(gain, width, |first, gain| {
        vectorized(
            #[inline(always)]
            || gain_rows(&x[first * width..], width, &g[first * width..], eps, gain),
        );
    });
}

#[inline(always)]
fn input_rows<T: Real>(x: &[T], weight: &[T], eps: T, g: &mut [T]) {
    let width = weight.len();
    let scale = T::of(1.0 / width as f64);
    for (x, g) in x.chunks_exact(width).zip(g.chunks_exact_mut(width)) {
        let (mean, inverse) = moments(x, eps);
        let (mut sum_h, mut sum_hx) = ([T::zero(); LANES], [T::zero(); LANES]);
        for ((x, g), w) in x.chunks(LANES).zip(g.chunks(LANES)).zip(weight.chunks(LANES)) {
            for lane in 0..x.len() {
                let h = g[lane] * w[lane];
                sum_h[lane] += h;
                sum_hx[lane] += h * (x[lane] - mean);
            }
        }
        let mean_h = total(sum_h) * scale;
        let mean_hn = total(sum_hx) * inverse * scale;
        for ((g, &x), &w) in g.iter_mut().zip(x).zip(weight) {
            *g = (*g * w - mean_h - (x - mean) * inverse * mean_hn) * inverse;
        }
    }
}

#[inline(always)]
fn gain_rows<T: Real>(x: &[T], width: usize, g: &[T], eps: T, gain: &mut [T]) {
    for ((gain, x), g) in gain.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(g.chunks_exact(width)) {
        let (mean, inverse) = moments(x, eps);
        for ((gain, &x), &g) in gain.iter_mut().zip(x).zip(g) {
            *gain = g * (x - mean) * inverse;
        }
    }
}

/// Mean, and the reciprocal of the standard deviation.
#[inline(always)]
fn moments<T: Real>(x: &[T], eps: T) -> (T, T) {
    let scale = T::of(1.0 / x.len() as f64);
    let mut sums = [T::zero(); LANES];
    for x in x.chunks(LANES) {
        for (sum, &x) in sums.iter_mut().zip(x) {
            *sum += x;
        }
    }
    let mean = total(sums) * scale;
    (mean, T::one() / (sum_of_squares(x, mean) * scale + eps).sqrt())
}
