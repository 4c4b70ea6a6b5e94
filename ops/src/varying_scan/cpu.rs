//! Recurrences with changing poles, for slices.
//!
//! The channels of a token lie side by side, so that a step is one vectorised pass over three rows; it is as fast as memory.
//! Batches run in parallel, in the chunked form chunks of time do too.

pub use crate::scan::cpu::Direction;

use crate::kernels::simd::{Real, vectorized};
use hankel_core::parallel;

/// Steps in a chunk of time.
pub const CHUNK: usize = 64;

/// Sizes of every sequence `[steps, dim]`, and the steps in a chunk if chunks are to run side by side.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// T.
    pub steps: usize,
    /// d.
    pub dim: usize,
    /// Steps in a chunk; `None` for step by step.
    pub chunk: Option<usize>,
}

/// All states, `a`, `u` and `out` of shape `[batch, steps, dim]`. Forwards `s_t = a_t s_{t-1} + u_t` from `initial` `[batch, dim]`
/// (zero when absent); backwards `s_t = a_{t+1} s_{t+1} + u_t` from zero.
///
/// # Panics
/// When sizes do not fit: that is the calling operator's to check.
pub fn scan<T: Real>(rows: Rows, direction: Direction, a: &[T], u: &[T], initial: Option<&[T]>, out: &mut [T]) {
    assert!(a.len() == u.len() && u.len() == out.len(), "poles, inputs and states of different sizes");
    let Rows { steps, dim, chunk } = rows;
    let size = steps * dim;
    if out.is_empty() {
        return;
    }
    parallel::for_chunks(out, size, |b, out| {
        let (a, u) = (&a[b * size..][..size], &u[b * size..][..size]);
        let mut state = initial.map_or_else(|| vec![T::zero(); dim], |s| s[b * dim..][..dim].to_vec());
        match chunk {
            Some(chunk) if chunk < steps => chunked(chunk.max(1), dim, direction, a, u, state, out),
            _ => advance(direction, a, u, &mut state, Some(out)),
        }
    });
}

/// Moves `state` over the steps of `u`, `[steps, dim]`. The rows of `a` begin with that of the first step; backwards, the step
/// `t` multiplies by row `t + 1`, and the last one, where there is none, keeps nothing of the state before it.
fn advance<T: Real>(direction: Direction, a: &[T], u: &[T], state: &mut [T], mut out: Option<&mut [T]>) {
    let dim = state.len();
    vectorized(
        #[inline(always)]
        || {
            let steps = u.len() / dim;
            for step in 0..steps {
                let (t, pole) = match direction {
                    Direction::Forward => (step, step),
                    Direction::Backward => (steps - 1 - step, steps - step),
                };
                let u = &u[t * dim..][..dim];
                match a.get(pole * dim..(pole + 1) * dim) {
                    Some(a) => state.iter_mut().zip(a).zip(u).for_each(|((s, &a), &u)| *s = a.mul_add(*s, u)),
                    None => state.copy_from_slice(u),
                }
                if let Some(out) = &mut out {
                    out[t * dim..][..dim].copy_from_slice(state);
                }
            }
        },
    );
}

/// Chunks of time side by side: from zero to the end of each, with the product of its poles; the state at the start of each;
/// then the steps within each.
fn chunked<T: Real>(chunk: usize, dim: usize, direction: Direction, a: &[T], u: &[T], initial: Vec<T>, out: &mut [T]) {
    let size = chunk * dim;
    let chunks = u.len().div_ceil(size);
    let forward = direction == Direction::Forward;
    // Rows of `a` from the chunk's first on; backwards a chunk needs one row more, the first of the next chunk.
    let poles = |c: usize| if forward { &a[c * size..a.len().min((c + 1) * size)] } else { &a[c * size..] };
    let mut ends = vec![T::zero(); chunks * dim];
    let mut products = vec![T::one(); chunks * dim];
    let inputs = |c: usize| &u[c * size..u.len().min((c + 1) * size)];
    parallel::for_paired_chunks((&mut ends, dim), (&mut products, dim), |c, state, product| {
        let u = inputs(c);
        advance(direction, poles(c), u, state, None);
        let steps = u.len() / dim;
        let rows = if forward { 0..steps } else { 1..steps + 1 };
        for row in rows {
            match poles(c).get(row * dim..(row + 1) * dim) {
                Some(a) => product.iter_mut().zip(a).for_each(|(p, &a)| *p *= a),
                None => product.fill(T::zero()),
            }
        }
    });
    let mut state = initial;
    for i in 0..chunks {
        let c = if forward { i } else { chunks - 1 - i };
        for (k, s) in state.iter_mut().enumerate() {
            let end = &mut ends[c * dim + k];
            let next = products[c * dim + k].mul_add(*s, *end);
            *end = *s;
            *s = next;
        }
    }
    parallel::for_paired_chunks((&mut ends, dim), (out, size), |c, state, out| {
        advance(direction, poles(c), inputs(c), state, Some(out));
    });
}

/// Gradient with respect to `a`: `lam_t s_{t-1}`.
///
/// # Panics
/// When sizes do not fit.
pub fn factor_gradient<T: Real>(rows: Rows, states: &[T], initial: Option<&[T]>, lam: &[T], out: &mut [T]) {
    let (dim, size) = (rows.dim, rows.steps * rows.dim);
    if out.is_empty() {
        return;
    }
    parallel::for_chunks(out, size, |b, out| {
        let (states, lam) = (&states[b * size..][..size], &lam[b * size..][..size]);
        let (first, rest) = out.split_at_mut(dim);
        match initial {
            Some(initial) => first.iter_mut().zip(&initial[b * dim..]).zip(lam).for_each(|((o, &s), &l)| *o = l * s),
            None => first.fill(T::zero()),
        }
        vectorized(
            #[inline(always)]
            || rest.iter_mut().zip(states).zip(&lam[dim..]).for_each(|((o, &s), &l)| *o = l * s),
        );
    });
}
