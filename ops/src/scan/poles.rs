//! State matrices as the kernels see them.

use hankel_core::{Error, Float, Result, Tensor};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// How a recurrence is evaluated. All agree within rounding (R3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanPath {
    /// Step by step: the definition.
    #[default]
    Sequential,
    /// Chunks side by side, then the states between them.
    Chunked,
    /// Causal convolution with the powers of the poles by FFT. Dense state matrices run step by step.
    Fft,
}

impl ScanPath {
    /// The evaluation that `auto` stands for, by a fixed rule on the length and the number of states.
    pub fn auto(_steps: usize, _state_dim: usize) -> Self {
        // On a CPU the states fit the cache and the recurrence is vectorised over channels: one pass over memory, which
        // neither of the others can beat.
        ScanPath::Sequential
    }
}

/// The state matrix of a recurrence.
#[derive(Clone)]
pub enum Poles {
    /// Real poles `[d]`.
    Diagonal(Tensor),
    /// `real` signed poles, then `pairs` of complex ones: `d = real + 2 pairs`.
    Modal {
        /// `[real + pairs]`.
        radius: Tensor,
        /// `[pairs]`, in radians.
        angle: Tensor,
        /// `[real]`, 1 or -1, untracked.
        sign: Tensor,
    },
    /// Any matrix `[d, d]`.
    Dense(Tensor),
}

impl Poles {
    /// Signed real poles `sign * radius[..real]`, then blocks `radius [cos -sin; sin cos]` of two states each.
    ///
    /// # Errors
    /// When the lengths do not fit.
    pub fn modal(radius: &Tensor, angle: &Tensor, sign: &Tensor) -> Result<Self> {
        if radius.elements() != angle.elements() + sign.elements() {
            let problem = format!(
                "{} radii for {} real poles and {} pairs",
                radius.elements(),
                sign.elements(),
                angle.elements()
            );
            return Err(Error::shape("scan", problem));
        }
        Ok(Poles::Modal { radius: radius.clone(), angle: angle.clone(), sign: sign.detach() })
    }

    /// Number of states.
    pub fn state_dim(&self) -> usize {
        match self {
            Poles::Diagonal(a) => a.elements(),
            Poles::Modal { radius, angle, .. } => radius.elements() + angle.elements(),
            Poles::Dense(a) => a.shape().last(),
        }
    }

    pub(super) fn parents(&self) -> Vec<&Tensor> {
        match self {
            Poles::Diagonal(a) | Poles::Dense(a) => vec![a],
            Poles::Modal { radius, angle, .. } => vec![radius, angle],
        }
    }

    pub(super) fn detach(&self) -> Poles {
        match self {
            Poles::Diagonal(a) => Poles::Diagonal(a.detach()),
            Poles::Modal { radius, angle, sign } => {
                Poles::Modal { radius: radius.detach(), angle: angle.detach(), sign: sign.clone() }
            }
            Poles::Dense(a) => Poles::Dense(a.detach()),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Direction {
    /// `s_t = A s_{t-1} + u_t`.
    Forward,
    /// `s_t = A^T s_{t+1} + u_t`.
    Backward,
}

/// Numbers of a state matrix.
pub(super) enum Matrix<T> {
    Modal { real: Vec<T>, pairs: Vec<[T; 2]> },
    Dense { a: Vec<T>, d: usize },
}

impl<T: Float> Matrix<T> {
    pub(super) fn new(poles: &Poles) -> Result<Self> {
        Ok(match poles {
            Poles::Diagonal(a) => Matrix::Modal { real: a.data::<T>()?.to_vec(), pairs: Vec::new() },
            Poles::Modal { radius, angle, sign } => {
                let (radius, sign) = (radius.data::<T>()?, sign.data::<T>()?);
                let real = sign.iter().zip(radius).map(|(&s, &r)| s * r).collect();
                let pairs = radius[sign.len()..].iter().zip(angle.data::<T>()?);
                Matrix::Modal { real, pairs: pairs.map(|(&r, &t)| [r * t.cos(), r * t.sin()]).collect() }
            }
            Poles::Dense(a) => Matrix::Dense { a: a.data::<T>()?.to_vec(), d: a.shape().last() },
        })
    }

    fn state_dim(&self) -> usize {
        match self {
            Matrix::Modal { real, pairs } => real.len() + 2 * pairs.len(),
            Matrix::Dense { d, .. } => *d,
        }
    }

    /// `next += A state`, or `A^T state`.
    fn advance(&self, state: &[T], direction: Direction, next: &mut [T]) {
        match self {
            Matrix::Modal { real, pairs } => {
                let r = real.len();
                for ((y, &x), &a) in next.iter_mut().zip(state).zip(real) {
                    *y += a * x;
                }
                for ((y, x), &[cos, sin]) in next[r..].chunks_mut(2).zip(state[r..].chunks(2)).zip(pairs) {
                    let sin = if direction == Direction::Forward { sin } else { -sin };
                    y[0] += cos * x[0] - sin * x[1];
                    y[1] += sin * x[0] + cos * x[1];
                }
            }
            Matrix::Dense { a, d } => {
                for (i, y) in next.iter_mut().enumerate() {
                    for (j, &x) in state.iter().enumerate() {
                        *y += x * if direction == Direction::Forward { a[i * d + j] } else { a[j * d + i] };
                    }
                }
            }
        }
    }

    /// `next = A^T state`.
    pub(super) fn step_transposed(&self, state: &[T], next: &mut [T]) {
        next.fill(T::zero());
        self.advance(state, Direction::Backward, next);
    }

    /// All states of the recurrence over `u`.
    pub(super) fn run(
        &self,
        u: &[T],
        initial: Option<&[T]>,
        steps: usize,
        direction: Direction,
        _path: ScanPath,
        states: &mut [T],
    ) {
        let d = self.state_dim();
        let size = steps * d;
        if size == 0 {
            return;
        }
        states.par_chunks_mut(size).zip(u.par_chunks(size)).enumerate().for_each(|(batch, (states, u))| {
            states.copy_from_slice(u);
            let start = initial.map(|initial| &initial[batch * d..][..d]);
            match direction {
                Direction::Forward => {
                    if let Some(start) = start {
                        self.advance(start, direction, &mut states[..d]);
                    }
                    for t in 1..steps {
                        let (before, after) = states.split_at_mut(t * d);
                        self.advance(&before[(t - 1) * d..], direction, &mut after[..d]);
                    }
                }
                Direction::Backward => {
                    for t in (1..steps).rev() {
                        let (before, after) = states.split_at_mut(t * d);
                        self.advance(&after[..d], direction, &mut before[(t - 1) * d..]);
                    }
                }
            }
        });
    }

    /// Gradients of the tensors of `poles` from states and adjoint states.
    pub(super) fn gradient(
        &self,
        poles: &Poles,
        states: &[T],
        initial: Option<&[T]>,
        adjoint: &[T],
        steps: usize,
    ) -> Result<Vec<Option<Tensor>>> {
        let d = self.state_dim();
        let size = (steps * d).max(1);
        // Calls f(lam_t, s_{t-1}) for every step of a sequence that has a predecessor.
        let each = |batch: usize, f: &mut dyn FnMut(&[T], &[T])| {
            let (states, adjoint) = (&states[batch * size..][..steps * d], &adjoint[batch * size..][..steps * d]);
            if let (Some(initial), true) = (initial, steps > 0) {
                f(&adjoint[..d], &initial[batch * d..][..d]);
            }
            for t in 1..steps {
                f(&adjoint[t * d..][..d], &states[(t - 1) * d..][..d]);
            }
        };
        let batches = states.len() / size;
        // Sums are made per sequence and added in order: the same bits for any number of threads.
        let total = |n: usize, f: &(dyn Fn(&[T], &[T], &mut [T]) + Sync)| {
            let partial: Vec<Vec<T>> = (0..batches)
                .into_par_iter()
                .map(|batch| {
                    let mut sum = vec![T::zero(); n];
                    each(batch, &mut |adjoint, state| f(adjoint, state, &mut sum));
                    sum
                })
                .collect();
            partial.iter().fold(vec![T::zero(); n], |mut sum, part| {
                sum.iter_mut().zip(part).for_each(|(s, &p)| *s += p);
                sum
            })
        };
        match (self, poles) {
            (Matrix::Dense { .. }, Poles::Dense(a)) => {
                let sum = total(d * d, &|adjoint, state, sum| {
                    for (row, &l) in sum.chunks_mut(d).zip(adjoint) {
                        row.iter_mut().zip(state).for_each(|(g, &s)| *g += l * s);
                    }
                });
                Ok(vec![Some(Tensor::from_vec(sum, a.shape())?)])
            }
            (Matrix::Modal { real, .. }, _) => {
                let r = real.len();
                // For a pair: the gradients of `radius cos` and `radius sin`.
                let sum = total(d, &|adjoint, state, sum| {
                    for ((g, &l), &s) in sum.iter_mut().zip(adjoint).zip(state).take(r) {
                        *g += l * s;
                    }
                    let pairs = sum[r..].chunks_mut(2).zip(adjoint[r..].chunks(2)).zip(state[r..].chunks(2));
                    for ((g, l), s) in pairs {
                        g[0] += l[0] * s[0] + l[1] * s[1];
                        g[1] += l[1] * s[0] - l[0] * s[1];
                    }
                });
                let Poles::Modal { radius, angle, sign } = poles else {
                    return Ok(vec![Some(Tensor::from_vec(sum, [d])?)]);
                };
                let (sign, angles) = (sign.data::<T>()?, angle.data::<T>()?);
                let mut d_radius: Vec<T> = sum.iter().zip(sign).map(|(&g, &s)| g * s).collect();
                let mut d_angle = Vec::with_capacity(angles.len());
                for ((g, &t), &r) in sum[r..].chunks(2).zip(angles).zip(&radius.data::<T>()?[r..]) {
                    d_radius.push(g[0] * t.cos() + g[1] * t.sin());
                    d_angle.push(r * (g[1] * t.cos() - g[0] * t.sin()));
                }
                Ok(vec![
                    Some(Tensor::from_vec(d_radius, radius.shape())?),
                    Some(Tensor::from_vec(d_angle, angle.shape())?),
                ])
            }
            (Matrix::Dense { .. }, _) => Err(Error::invalid("scan", "a dense matrix was made from other poles")),
        }
    }
}
