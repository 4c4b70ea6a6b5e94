//! Linear recurrences over time, for slices.
//!
//! `s_t = A s_{t-1} + u_t` over `[batch, tokens, state_dim]`, where A is block diagonal: single real poles first, then
//! rotation-scalings of adjacent pairs of states. A pair's block is `[[re, -im], [im, re]]`, the multiplication of
//! `x + iy` by the pole `re + i im`.
//!
//! The channels of a token lie side by side, so the recurrence is vectorised over channels with the state in registers;
//! it is as fast as memory. Batches run in parallel, in the chunked form chunks of time do too.

#[cfg(test)]
mod tests;

use crate::kernels::simd::{Real, dispatch};
use hankel_core::parallel;
use num_complex::Complex;
use pulp::{Simd, WithSimd};

/// Eigenvalues of a recurrence: real ones, then those of pairs of states.
#[derive(Clone, Copy, Debug)]
pub struct Modes<'a, T> {
    /// Poles of single states.
    pub real: &'a [T],
    /// Real and imaginary part of the pole of each pair of the states that follow.
    pub pairs: &'a [[T; 2]],
}

impl<'a, T: Real> Modes<'a, T> {
    /// Real poles only.
    pub fn real(real: &'a [T]) -> Self {
        Modes { real, pairs: &[] }
    }

    /// Number of states.
    pub fn state_dim(&self) -> usize {
        self.real.len() + 2 * self.pairs.len()
    }
}

/// Which way time runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `s_t = A s_{t-1} + u_t`
    Forward,
    /// `s_t = A^T s_{t+1} + u_t`: the adjoint, which gradients need.
    Backward,
}

/// How a recurrence is evaluated. The results differ by rounding only (R3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluation {
    /// Step by step: the definition.
    Sequential,
    /// Chunks of this many steps side by side: first their final states from zero, then the state at the start of each,
    /// then the steps within each.
    Chunked(usize),
}

/// All states. `u` and `out` are `[batch, tokens, state_dim]`; `initial`, `[batch, state_dim]`, is the state before the
/// first step (after the last, backwards), zero when absent.
///
/// # Panics
/// When sizes do not fit: that is the calling operator's to check.
pub fn scan<T: Real>(
    evaluation: Evaluation,
    direction: Direction,
    modes: Modes<T>,
    tokens: usize,
    u: &[T],
    initial: Option<&[T]>,
    out: &mut [T],
) {
    let dim = modes.state_dim();
    assert_eq!(u.len(), out.len(), "inputs and states of different sizes");
    if out.is_empty() {
        return;
    }
    assert!(out.len().is_multiple_of(tokens * dim), "states that are not whole sequences");
    parallel::for_chunks(out, tokens * dim, |b, out| {
        let u = &u[b * tokens * dim..][..tokens * dim];
        let mut state = initial.map_or_else(|| vec![T::zero(); dim], |s| s[b * dim..][..dim].to_vec());
        match evaluation {
            Evaluation::Sequential => dispatch(Advance { direction, modes, u, state: &mut state, out: Some(out) }),
            Evaluation::Chunked(chunk) => chunked(chunk.max(1), direction, modes, u, state, out),
        }
    });
}

/// Moves `state` over the steps of `u`, `[steps, state_dim]`, of one sequence.
pub fn advance<T: Real>(modes: Modes<T>, u: &[T], state: &mut [T]) {
    dispatch(Advance { direction: Direction::Forward, modes, u, state, out: None });
}

/// Gradient of a loss with respect to the poles, from the adjoint states `lam` (the scan, backwards, of the gradient of
/// the states) and the states: `sum over t of lam_t s_{t-1}`. Returned as one vector in the order of the states: for a
/// pair the derivatives by its pole's real and imaginary part.
///
/// # Panics
/// When sizes do not fit.
pub fn pole_gradient<T: Real>(
    modes: Modes<T>,
    tokens: usize,
    lam: &[T],
    states: &[T],
    initial: Option<&[T]>,
) -> Vec<T> {
    let dim = modes.state_dim();
    let mut sum = vec![T::zero(); dim];
    if lam.is_empty() {
        return sum;
    }
    let size = tokens * dim;
    let partial: Vec<Vec<T>> = parallel::collect(lam.len() / size, |b| {
        let (lam, states) = (&lam[b * size..][..size], &states[b * size..][..size]);
        let mut sum = vec![T::zero(); dim];
        if let Some(initial) = initial {
            correlate(modes, &lam[..dim], &initial[b * dim..][..dim], &mut sum);
        }
        // Short sums first: the rounding errors of a long one in `f32` would add up.
        const SHORT: usize = 64;
        for (lam, states) in lam[dim..].chunks(SHORT * dim).zip(states.chunks(SHORT * dim)) {
            let mut short = vec![T::zero(); dim];
            correlate(modes, lam, states, &mut short);
            sum.iter_mut().zip(short).for_each(|(sum, x)| *sum += x);
        }
        sum
    });
    for partial in partial {
        sum.iter_mut().zip(partial).for_each(|(sum, x)| *sum += x);
    }
    sum
}

/// `A s`, or backwards `A^T s`, for each row of `states`, `[rows, state_dim]`. The gradient with respect to an initial
/// state is `A^T lam_0`.
pub fn advanced<T: Real>(direction: Direction, modes: Modes<T>, states: &[T]) -> Vec<T> {
    let dim = modes.state_dim();
    let (mut states, zero) = (states.to_vec(), vec![T::zero(); dim]);
    for state in states.chunks_exact_mut(dim.max(1)) {
        dispatch(Advance { direction, modes, u: &zero, state, out: None });
    }
    states
}

/// `sum += lam_t * states_t` by the derivative of each block.
fn correlate<T: Real>(modes: Modes<T>, lam: &[T], states: &[T], sum: &mut [T]) {
    let dim = modes.state_dim();
    let real = modes.real.len();
    crate::kernels::simd::vectorized(
        #[inline(always)]
        || {
            for (lam, s) in lam.chunks_exact(dim).zip(states.chunks_exact(dim)) {
                let (real_sum, pair_sum) = sum.split_at_mut(real);
                for (sum, (&l, &s)) in real_sum.iter_mut().zip(lam[..real].iter().zip(&s[..real])) {
                    *sum += l * s;
                }
                let pairs = lam[real..].as_chunks::<2>().0.iter().zip(s[real..].as_chunks::<2>().0);
                for (sum, (l, s)) in pair_sum.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
                    sum[0] += l[0] * s[0] + l[1] * s[1];
                    sum[1] += l[1] * s[0] - l[0] * s[1];
                }
            }
        },
    );
}

/// Chunks of time side by side.
fn chunked<T: Real>(chunk: usize, direction: Direction, modes: Modes<T>, u: &[T], initial: Vec<T>, out: &mut [T]) {
    let dim = modes.state_dim();
    let size = chunk * dim;
    let chunks = u.len().div_ceil(size);
    // Final state of each chunk from zero.
    let mut carries = vec![T::zero(); chunks * dim];
    let inputs = |c: usize| &u[c * size..u.len().min((c + 1) * size)];
    parallel::for_chunks(&mut carries, dim, |c, state| {
        dispatch(Advance { direction, modes, u: inputs(c), state, out: None });
    });
    // State at the start of each chunk, in the order of time; a short chunk can only be the last one of the sequence.
    let forward = direction == Direction::Forward;
    let power = Power::new(modes, chunk, forward);
    let last = Power::new(modes, u.len() / dim - (chunks - 1) * chunk, forward);
    let mut state = initial;
    for i in 0..chunks {
        let c = if forward { i } else { chunks - 1 - i };
        let carry = &mut carries[c * dim..][..dim];
        let mut next = state.clone();
        (if c + 1 == chunks { &last } else { &power }).apply(&mut next);
        next.iter_mut().zip(carry.iter()).for_each(|(next, &end)| *next += end);
        carry.copy_from_slice(&state);
        state = next;
    }
    parallel::for_paired_chunks((&mut carries, dim), (out, size), |c, state, out| {
        dispatch(Advance { direction, modes, u: inputs(c), state, out: Some(out) });
    });
}

/// `A^n` or its transpose, computed in doubles: in `f32` the errors of repeated squaring would reach the states.
struct Power<T> {
    pairs: Vec<(T, T)>,
    real: Vec<T>,
}

impl<T: Real> Power<T> {
    fn new(modes: Modes<T>, n: usize, forward: bool) -> Self {
        let pairs = modes.pairs.iter().map(|[re, im]| {
            let pole = Complex::new(re.f64(), im.f64()).powu(n as u32);
            (T::of(pole.re), T::of(if forward { pole.im } else { -pole.im }))
        });
        let real = modes.real.iter().map(|a| T::of(a.f64().powi(n as i32)));
        Power { pairs: pairs.collect(), real: real.collect() }
    }

    fn apply(&self, state: &mut [T]) {
        let (real, pairs) = state.split_at_mut(self.real.len());
        for (s, &(re, im)) in pairs.as_chunks_mut::<2>().0.iter_mut().zip(&self.pairs) {
            *s = [re * s[0] - im * s[1], im * s[0] + re * s[1]];
        }
        real.iter_mut().zip(&self.real).for_each(|(s, &a)| *s *= a);
    }
}

/// Steps of one sequence, from `state` to `state`.
struct Advance<'a, T> {
    direction: Direction,
    modes: Modes<'a, T>,
    u: &'a [T],
    state: &'a mut [T],
    out: Option<&'a mut [T]>,
}

impl<T: Real> WithSimd for Advance<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Advance { direction, modes, u, state, out } = self;
        let rows = Rows { u, dim: modes.state_dim() };
        match (direction, out) {
            (Direction::Forward, Some(out)) => rows.channels::<S, false, true>(simd, modes, state, out),
            (Direction::Forward, None) => rows.channels::<S, false, false>(simd, modes, state, &mut []),
            (Direction::Backward, Some(out)) => rows.channels::<S, true, true>(simd, modes, state, out),
            (Direction::Backward, None) => rows.channels::<S, true, false>(simd, modes, state, &mut []),
        }
    }
}

/// The inputs `[steps, dim]` of one sequence.
#[derive(Clone, Copy)]
struct Rows<'a, T> {
    u: &'a [T],
    dim: usize,
}

impl<T: Real> Rows<'_, T> {
    /// All channels, in groups whose state fits in registers.
    #[inline(always)]
    fn channels<S: Simd, const BACK: bool, const WRITE: bool>(
        self,
        simd: S,
        modes: Modes<T>,
        state: &mut [T],
        out: &mut [T],
    ) {
        let lanes = T::lanes::<S>();
        let real = modes.real.len();
        let mut c = 0;
        while c < real {
            let (a, state) = (&modes.real[c..], &mut state[c..]);
            c += match a.len() {
                n if n >= 4 * lanes => self.vectors::<S, 4, BACK, WRITE>(simd, a, c, state, out),
                n if n >= 2 * lanes => self.vectors::<S, 2, BACK, WRITE>(simd, a, c, state, out),
                n if n >= lanes => self.vectors::<S, 1, BACK, WRITE>(simd, a, c, state, out),
                n if n >= 4 => self.scalars::<4, BACK, WRITE>(a, c, state, out),
                _ => self.scalars::<1, BACK, WRITE>(a, c, state, out),
            };
        }
        let mut pair = 0;
        while pair < modes.pairs.len() {
            let (poles, first) = (&modes.pairs[pair..], real + 2 * pair);
            pair += match poles.len() {
                n if n >= 4 => self.pairs::<4, BACK, WRITE>(poles, first, &mut state[first..], out),
                _ => self.pairs::<1, BACK, WRITE>(poles, first, &mut state[first..], out),
            };
        }
    }

    /// Starts of the rows in the order of the recurrence.
    #[inline(always)]
    fn starts<const BACK: bool>(self) -> impl Iterator<Item = usize> {
        let steps = self.u.len() / self.dim;
        (0..steps).map(move |step| (if BACK { steps - 1 - step } else { step }) * self.dim)
    }

    /// `N` registers of real channels from `first` on; returns how many channels those are.
    #[inline(always)]
    fn vectors<S: Simd, const N: usize, const BACK: bool, const WRITE: bool>(
        self,
        simd: S,
        a: &[T],
        first: usize,
        state: &mut [T],
        out: &mut [T],
    ) -> usize {
        let width = N * T::lanes::<S>();
        let a: &[T::Vector<S>; N] = T::split::<S>(&a[..width]).0.first_chunk().expect("whole registers");
        let state: &mut [T::Vector<S>; N] =
            T::split_mut::<S>(&mut state[..width]).0.first_chunk_mut().expect("whole registers");
        let mut s = *state;
        for row in self.starts::<BACK>() {
            let u = T::split::<S>(&self.u[row + first..row + first + width]).0;
            for ((s, &a), &u) in s.iter_mut().zip(a).zip(u) {
                *s = T::vmul_add(simd, a, *s, u);
            }
            if WRITE {
                T::split_mut::<S>(&mut out[row + first..row + first + width]).0.copy_from_slice(&s);
            }
        }
        *state = s;
        width
    }

    /// `N` real channels from `first` on; returns `N`.
    #[inline(always)]
    fn scalars<const N: usize, const BACK: bool, const WRITE: bool>(
        self,
        a: &[T],
        first: usize,
        state: &mut [T],
        out: &mut [T],
    ) -> usize {
        let mut s: [T; N] = std::array::from_fn(|i| state[i]);
        let a: [T; N] = std::array::from_fn(|i| a[i]);
        for row in self.starts::<BACK>() {
            let u = &self.u[row + first..row + first + N];
            for i in 0..N {
                s[i] = a[i].mul_add(s[i], u[i]);
            }
            if WRITE {
                out[row + first..row + first + N].copy_from_slice(&s);
            }
        }
        state[..N].copy_from_slice(&s);
        N
    }

    /// `N` pairs of channels from channel `first` on; returns `N`.
    #[inline(always)]
    fn pairs<const N: usize, const BACK: bool, const WRITE: bool>(
        self,
        poles: &[[T; 2]],
        first: usize,
        state: &mut [T],
        out: &mut [T],
    ) -> usize {
        let poles: [[T; 2]; N] = std::array::from_fn(|i| [poles[i][0], if BACK { -poles[i][1] } else { poles[i][1] }]);
        let mut s: [[T; 2]; N] = std::array::from_fn(|i| [state[2 * i], state[2 * i + 1]]);
        for row in self.starts::<BACK>() {
            let columns = row + first..row + first + 2 * N;
            let u = &self.u[columns.clone()];
            for i in 0..N {
                let ([re, im], [x, y]) = (poles[i], s[i]);
                s[i] = [re.mul_add(x, (-im).mul_add(y, u[2 * i])), im.mul_add(x, re.mul_add(y, u[2 * i + 1]))];
            }
            if WRITE {
                out[columns].copy_from_slice(s.as_flattened());
            }
        }
        state[..2 * N].copy_from_slice(s.as_flattened());
        N
    }
}
