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
const ANGLES: usize = 1024;

impl<T: Real> Turns<T> {
    /// By the angles of `steps` positions from `first` on, times `sign`.
    pub(super) fn new(rotary: &Rotary, first: usize, steps: usize, sign: f64) -> Self {
        let Rotary { frequencies, magnitude } = rotary;
        let half = frequencies.len();
        let turn = |i: usize| (sign * (first + i / half) as f64 * frequencies[i % half]).sin_cos();
        let (mut cos, mut sin) = (vec![T::zero(); steps * half], vec![T::zero(); steps * half]);
        parallel::for_paired_chunks((&mut cos, ANGLES), (&mut sin, ANGLES), |task, cos, sin| {
            for (i, (cos, sin)) in cos.iter_mut().zip(sin).enumerate() {
                let (s, c) = turn(task * ANGLES + i);
                (*cos, *sin) = (T::of(magnitude * c), T::of(magnitude * s));
            }
        });
        Turns { cos, sin, head_dim: rotary.head_dim(), steps }
    }
}

/// `y` gets the rows of `x`, of `width` elements each, turned; row `i` is token `i % T`.
fn turn_rows<T: Real>(turns: &Turns<T>, x: &[T], width: usize, y: &mut [T]) {
    let (head_dim, half) = (turns.head_dim, turns.head_dim / 2);
    parallel::for_rows(y, width, |first, piece| {
        vectorized(|| {
            for (row, (y, x)) in piece.chunks_mut(width).zip(x[first * width..].chunks(width)).enumerate() {
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
        });
    });
}
