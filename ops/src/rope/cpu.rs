//! Token by token, with a table of cosines and sines.

use super::{NAME, Rotary};
use crate::dispatch::for_float;
use crate::kernels::Real;
use crate::kernels::simd::vectorized;
use hankel_core::{Buffer, Result, Tensor, parallel};

pub(super) fn forward(x: &Tensor, rotary: &Rotary, offset: usize) -> Result<Tensor> {
    turn(x, rotary, offset, 1.0)
}

/// By the opposite angles.
pub(super) fn backward(g: &Tensor, rotary: &Rotary, offset: usize) -> Result<Tensor> {
    turn(g, rotary, offset, -1.0)
}

fn turn(x: &Tensor, rotary: &Rotary, offset: usize, sign: f64) -> Result<Tensor> {
    let (steps, width) = (x.shape()[1], x.shape()[2]);
    for_float!(x, NAME, T => {
        let mut y = Buffer::<T>::unspecified(x.elements());
        turn_rows(&Turns::new(rotary, offset, steps, sign), x.data()?, width, &mut y);
        Tensor::from_buffer(y, x.shape())
    })
}

/// Cosines and sines `[T, head_dim / 2]`.
pub(super) struct Turns<T> {
    pub(super) cos: Vec<T>,
    pub(super) sin: Vec<T>,
    head_dim: usize,
    steps: usize,
}

/// Angles of a task.
const ANGLES: usize = 8192;
/// A position's turn is the product of two: that of the last multiple of this number up to it, and that of the remainder.
const FINE: usize = 32;

impl<T: Real> Turns<T> {
    /// By the angles of `steps` positions from `first` on, times `sign`. A position has the same turn wherever a sequence begins.
    pub(super) fn new(rotary: &Rotary, first: usize, steps: usize, sign: f64) -> Self {
        let Rotary { frequencies, magnitude } = rotary;
        let half = frequencies.len();
        let turns = |position: usize| frequencies.iter().map(move |f| (sign * position as f64 * f).sin_cos());
        let coarse_first = first / FINE;
        let coarse: Vec<(f64, f64)> =
            (coarse_first..(first + steps).div_ceil(FINE)).flat_map(|i| turns(i * FINE)).collect();
        let fine: Vec<(f64, f64)> = (0..FINE.min(first + steps)).flat_map(turns).collect();
        let (mut cos, mut sin) = (vec![T::zero(); steps * half], vec![T::zero(); steps * half]);
        let rows = (ANGLES / half.max(1)).max(1);
        let fill = |task: usize, cos: &mut [T], sin: &mut [T]| {
            for (i, (cos, sin)) in cos.chunks_exact_mut(half).zip(sin.chunks_exact_mut(half)).enumerate() {
                let position = first + task * rows + i;
                let coarse = &coarse[(position / FINE - coarse_first) * half..][..half];
                let fine = &fine[position % FINE * half..][..half];
                for (k, (cos, sin)) in cos.iter_mut().zip(sin).enumerate() {
                    let ((s, c), (s_fine, c_fine)) = (coarse[k], fine[k]);
                    *cos = T::of(magnitude * (c * c_fine - s * s_fine));
                    *sin = T::of(magnitude * (s * c_fine + c * s_fine));
                }
            }
        };
        if half > 0 {
            parallel::for_paired_chunks((&mut cos, rows * half), (&mut sin, rows * half), fill);
        }
        Turns { cos, sin, head_dim: rotary.head_dim(), steps }
    }
}

/// `y` gets the rows of `x`, of `width` elements each, turned; row `i` is token `i % T`.
fn turn_rows<T: Real>(turns: &Turns<T>, x: &[T], width: usize, y: &mut [T]) {
    let (head_dim, half) = (turns.head_dim, turns.head_dim / 2);
    parallel::for_rows(y, width, |first, piece| {
        let x = &x[first * width..];
        vectorized(
            #[inline(always)]
            || {
                for (row, (y, x)) in piece.chunks_mut(width).zip(x.chunks(width)).enumerate() {
                    let at = (first + row) % turns.steps * half;
                    let (cos, sin) = (&turns.cos[at..at + half], &turns.sin[at..at + half]);
                    for (y, x) in y.chunks_exact_mut(head_dim).zip(x.chunks_exact(head_dim)) {
                        let ((y0, y1), (x0, x1)) = (y.split_at_mut(half), x.split_at(half));
                        for k in 0..half {
                            y0[k] = x0[k] * cos[k] - x1[k] * sin[k];
                            y1[k] = x0[k] * sin[k] + x1[k] * cos[k];
                        }
                    }
                }
            },
        );
    });
}
