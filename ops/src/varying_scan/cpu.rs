//! Chunks of time and batches side by side.
//!
//! The channels of a token lie side by side, so that a step is one vectorised pass over three rows; it is as fast as memory.
//! Batches run in parallel, in the chunked form chunks of time do too.

use super::NAME;
use crate::dispatch::for_float;
use crate::kernels::simd::{Real, vectorized};
use crate::scan::ScanPath;
use crate::scan::cpu::recurrence::Direction;
use hankel_core::{Buffer, Result, Tensor, parallel};

/// Steps in a chunk of time.
const CHUNK: usize = 64;

pub(super) fn forward(a: &Tensor, u: &Tensor, initial: Option<&Tensor>, path: ScanPath) -> Result<Tensor> {
    run(Direction::Forward, a, u, initial, path)
}

/// The adjoint states `lam_t`.
pub(super) fn adjoint(a: &Tensor, g: &Tensor, path: ScanPath) -> Result<Tensor> {
    run(Direction::Backward, a, g, None, path)
}

fn run(direction: Direction, a: &Tensor, u: &Tensor, initial: Option<&Tensor>, path: ScanPath) -> Result<Tensor> {
    let chunk = (path == ScanPath::Chunked).then_some(CHUNK);
    let rows = Rows { steps: u.shape()[1], dim: u.shape()[2], chunk };
    for_float!(u, NAME, T => {
        let mut states = Buffer::<T>::unspecified(u.elements());
        let start = initial.map(Tensor::data::<T>).transpose()?;
        scan(rows, direction, a.data()?, u.data()?, start, &mut states);
        Tensor::from_buffer(states, u.shape())
    })
}

/// `lam_t s_{t-1}`: the gradient of `a`.
pub(super) fn pole_gradient(states: &Tensor, initial: Option<&Tensor>, adjoint: &Tensor) -> Result<Tensor> {
    let (steps, dim) = (states.shape()[1], states.shape()[2]);
    for_float!(states, NAME, T => {
        let mut d_a = Buffer::<T>::unspecified(states.elements());
        let start = initial.map(Tensor::data::<T>).transpose()?;
        products(steps, dim, states.data()?, start, adjoint.data()?, &mut d_a);
        Tensor::from_buffer(d_a, states.shape())
    })
}

/// `a_0 lam_0` of each sequence: the gradient of the initial state.
pub(super) fn initial_gradient(a: &Tensor, adjoint: &Tensor) -> Result<Tensor> {
    let [batch, steps, dim] = [a.shape()[0], a.shape()[1], a.shape()[2]];
    for_float!(a, NAME, T => {
        let mut first = Buffer::<T>::zeros(batch * dim);
        if steps * dim > 0 {
            let sequences = a.data::<T>()?.chunks(steps * dim).zip(adjoint.data::<T>()?.chunks(steps * dim));
            for (first, (a, lam)) in first.chunks_mut(dim).zip(sequences) {
                first.iter_mut().zip(a).zip(lam).for_each(|((d, &a), &lam)| *d = a * lam);
            }
        }
        Tensor::from_buffer(first, [batch, dim])
    })
}

/// Sizes of every sequence `[steps, dim]`, and the steps in a chunk if chunks are to run side by side.
#[derive(Clone, Copy)]
struct Rows {
    steps: usize,
    dim: usize,
    chunk: Option<usize>,
}

/// All states, `a`, `u` and `out` of shape `[batch, steps, dim]`. Forwards `s_t = a_t s_{t-1} + u_t` from `initial` `[batch, dim]`
/// (zero when absent); backwards `s_t = a_{t+1} s_{t+1} + u_t` from zero.
fn scan<T: Real>(rows: Rows, direction: Direction, a: &[T], u: &[T], initial: Option<&[T]>, out: &mut [T]) {
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

/// `out` gets `lam_t s_{t-1}`.
fn products<T: Real>(steps: usize, dim: usize, states: &[T], initial: Option<&[T]>, lam: &[T], out: &mut [T]) {
    let size = steps * dim;
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
