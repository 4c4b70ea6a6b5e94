//! Kernels over rows.

use crate::kernels::Real;
use crate::kernels::simd::vectorized;
use hankel_core::parallel;

/// `y` gets the normalised rows of `x`.
pub fn forward<T: Real>(x: &[T], weight: &[T], eps: T, y: &mut [T]) {
    let width = weight.len();
    parallel::for_rows(y, width, |first, piece| {
        vectorized(|| {
            for (y, x) in piece.chunks_mut(width).zip(x[first * width..].chunks(width)) {
                let inverse = inverse_deviation(x, eps);
                for ((y, &x), &w) in y.iter_mut().zip(x).zip(weight) {
                    *y = x * inverse * w;
                }
            }
        });
    });
}

/// `dx` gets the gradient of the input; `gain`, if wanted, the rows whose sum is the gradient of the weight.
pub fn backward<T: Real>(x: &[T], weight: &[T], g: &[T], eps: T, dx: &mut [T], gain: Option<&mut [T]>) {
    let width = weight.len();
    let scale = T::of(1.0 / width as f64);
    parallel::for_rows(dx, width, |first, piece| {
        vectorized(|| {
            let (x, g) = (&x[first * width..], &g[first * width..]);
            for ((dx, x), g) in piece.chunks_mut(width).zip(x.chunks(width)).zip(g.chunks(width)) {
                let inverse = inverse_deviation(x, eps);
                let mean_hx = weighted_sum(x, g, weight) * scale * inverse * inverse;
                for (((dx, &x), &g), &w) in dx.iter_mut().zip(x).zip(g).zip(weight) {
                    *dx = (g * w - x * mean_hx) * inverse;
                }
            }
        });
    });
    if let Some(gain) = gain {
        parallel::for_rows(gain, width, |first, piece| {
            vectorized(|| {
                let (x, g) = (&x[first * width..], &g[first * width..]);
                for ((gain, x), g) in piece.chunks_mut(width).zip(x.chunks(width)).zip(g.chunks(width)) {
                    let inverse = inverse_deviation(x, eps);
                    for ((gain, &x), &g) in gain.iter_mut().zip(x).zip(g) {
                        *gain = g * x * inverse;
                    }
                }
            });
        });
    }
}

/// Accumulators side by side: a sum in vector registers, in an order that depends on the length only.
const LANES: usize = 16;

#[inline(always)]
fn weighted_sum<T: Real>(x: &[T], g: &[T], w: &[T]) -> T {
    let mut sums = [T::zero(); LANES];
    for ((x, g), w) in x.chunks(LANES).zip(g.chunks(LANES)).zip(w.chunks(LANES)) {
        for lane in 0..x.len() {
            sums[lane] += x[lane] * g[lane] * w[lane];
        }
    }
    sums.into_iter().fold(T::zero(), |sum, x| sum + x)
}

#[inline(always)]
fn inverse_deviation<T: Real>(x: &[T], eps: T) -> T {
    let mut squares = [T::zero(); LANES];
    for x in x.chunks(LANES) {
        for lane in 0..x.len() {
            squares[lane] += x[lane] * x[lane];
        }
    }
    let mean = squares.into_iter().fold(T::zero(), |sum, x| sum + x) * T::of(1.0 / x.len() as f64);
    T::one() / (mean + eps).sqrt()
}
