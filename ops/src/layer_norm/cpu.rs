//! Kernels over rows.

use crate::kernels::Real;
use crate::kernels::simd::vectorized;
use hankel_core::parallel;

/// `y` gets the normalised rows of `x`.
pub fn forward<T: Real>(x: &[T], weight: &[T], bias: Option<&[T]>, eps: T, y: &mut [T]) {
    let width = weight.len();
    parallel::for_rows(y, width, |first, piece| {
        vectorized(|| {
            for (y, x) in piece.chunks_mut(width).zip(x[first * width..].chunks(width)) {
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
                let (mean, inverse) = moments(x, eps);
                let mut sums = [[T::zero(); LANES]; 2];
                for_lanes(width, |i, lane| {
                    let h = g[i] * weight[i];
                    sums[0][lane] += h;
                    sums[1][lane] += h * (x[i] - mean);
                });
                let mean_h = total(sums[0]) * scale;
                let mean_hn = total(sums[1]) * inverse * scale;
                for (((dx, &x), &g), &w) in dx.iter_mut().zip(x).zip(g).zip(weight) {
                    *dx = (g * w - mean_h - (x - mean) * inverse * mean_hn) * inverse;
                }
            }
        });
    });
    if let Some(gain) = gain {
        parallel::for_rows(gain, width, |first, piece| {
            vectorized(|| {
                let (x, g) = (&x[first * width..], &g[first * width..]);
                for ((gain, x), g) in piece.chunks_mut(width).zip(x.chunks(width)).zip(g.chunks(width)) {
                    let (mean, inverse) = moments(x, eps);
                    for ((gain, &x), &g) in gain.iter_mut().zip(x).zip(g) {
                        *gain = g * (x - mean) * inverse;
                    }
                }
            });
        });
    }
}

/// Accumulators side by side: a sum in vector registers, in an order that depends on the length only.
const LANES: usize = 16;

#[inline(always)]
fn for_lanes(n: usize, mut f: impl FnMut(usize, usize)) {
    let whole = n / LANES * LANES;
    for first in (0..whole).step_by(LANES) {
        for lane in 0..LANES {
            f(first + lane, lane);
        }
    }
    for i in whole..n {
        f(i, i - whole);
    }
}

#[inline(always)]
fn total<T: Real>(lanes: [T; LANES]) -> T {
    lanes.into_iter().fold(T::zero(), |sum, x| sum + x)
}

/// Mean, and the reciprocal of the standard deviation.
#[inline(always)]
fn moments<T: Real>(x: &[T], eps: T) -> (T, T) {
    let scale = T::of(1.0 / x.len() as f64);
    let mut sums = [T::zero(); LANES];
    for_lanes(x.len(), |i, lane| sums[lane] += x[i]);
    let mean = total(sums) * scale;
    let mut squares = [T::zero(); LANES];
    for_lanes(x.len(), |i, lane| squares[lane] += (x[i] - mean) * (x[i] - mean));
    (mean, T::one() / (total(squares) * scale + eps).sqrt())
}
