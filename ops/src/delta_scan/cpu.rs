//! Step by step, batches side by side.

use super::{NAME, Saved, Sizes};
use crate::dispatch::for_float;
use crate::kernels::simd::{Real, vectorized};
use hankel_core::{Buffer, Result, Tensor, parallel};

pub(super) fn forward(sizes: Sizes, [k, v, beta]: [&Tensor; 3], initial: Option<&Tensor>) -> Result<Tensor> {
    for_float!(k, NAME, T => {
        let mut states = Buffer::<T>::unspecified(sizes.batch * sizes.steps * sizes.state());
        let start = initial.map(Tensor::data::<T>).transpose()?;
        run(sizes, [k.data()?, v.data()?, beta.data()?], start, &mut states);
        Tensor::from_buffer(states, [sizes.batch, sizes.steps, sizes.state()])
    })
}

/// The adjoint states `G_t`.
pub(super) fn adjoint(saved: &Saved, g: &Tensor) -> Result<Tensor> {
    for_float!(g, NAME, T => {
        let mut adjoint = Buffer::<T>::unspecified(g.elements());
        run_back(saved.sizes, saved.k.data()?, saved.beta.data()?, g.data()?, &mut adjoint);
        Tensor::from_buffer(adjoint, g.shape())
    })
}

/// `G_0 (I - beta_0 k_0 k_0^T)` of each sequence.
pub(super) fn initial_gradient(saved: &Saved, adjoint: &Tensor) -> Result<Tensor> {
    let Sizes { batch, steps, heads, keys, .. } = saved.sizes;
    let state = saved.sizes.state();
    for_float!(adjoint, NAME, T => {
        let mut first = Buffer::<T>::zeros(batch * state);
        let (all, k, beta) = (adjoint.data::<T>()?, saved.k.data::<T>()?, saved.beta.data::<T>()?);
        for (b, first) in first.chunks_mut(state).enumerate().filter(|_| steps > 0) {
            first.copy_from_slice(&all[b * steps * state..][..state]);
            let at = b * steps * heads;
            deflate(saved.sizes, &k[at * keys..], &beta[at..], first);
        }
        Tensor::from_buffer(first, [batch, state])
    })
}

/// Those of keys, values and shares.
pub(super) fn gradients(saved: &Saved, adjoint: &Tensor) -> Result<[Tensor; 3]> {
    let Sizes { batch, steps, heads, keys, values } = saved.sizes;
    let (rows, width) = (batch * steps * heads, keys + values + 1);
    for_float!(adjoint, NAME, T => {
        let mut all = Buffer::<T>::unspecified(rows * width);
        let start = saved.initial.as_ref().map(Tensor::data::<T>).transpose()?;
        let data = [saved.k.data()?, saved.v.data()?, saved.beta.data()?, saved.states.data()?, adjoint.data()?];
        sums(saved.sizes, data, start, &mut all);
        let part = |first: usize, size: usize| {
            let values: Vec<T> = all.chunks(width).flat_map(|row| row[first..first + size].iter().copied()).collect();
            Tensor::from_vec(values, [batch, steps, heads * size])
        };
        Ok([part(0, keys)?, part(keys, values)?, part(keys + values, 1)?])
    })
}

#[inline(always)]
fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    a.iter().zip(b).fold(T::zero(), |sum, (&a, &b)| sum + a * b)
}

fn run<T: Real>(sizes: Sizes, [k, v, beta]: [&[T]; 3], initial: Option<&[T]>, out: &mut [T]) {
    let Sizes { steps, heads, keys, values, .. } = sizes;
    let state = sizes.state();
    if out.is_empty() {
        return;
    }
    parallel::for_chunks(out, steps * state, |b, out| {
        let mut before = initial.map_or_else(|| vec![T::zero(); state], |s| s[b * state..][..state].to_vec());
        vectorized(
            #[inline(always)]
            || {
                for (t, now) in out.chunks_mut(state).enumerate() {
                    for (h, head) in before.chunks_mut(values * keys).enumerate() {
                        let at = (b * steps + t) * heads + h;
                        let (key, share) = (&k[at * keys..][..keys], beta[at]);
                        for (row, &value) in head.chunks_mut(keys).zip(&v[at * values..]) {
                            let step = share * (value - dot(row, key));
                            row.iter_mut().zip(key).for_each(|(s, &k)| *s += step * k);
                        }
                    }
                    now.copy_from_slice(&before);
                }
            },
        );
    });
}

/// `G (I - beta k k^T)` in place of `G`, for the keys and shares of one step.
#[inline(always)]
fn deflate<T: Real>(sizes: Sizes, k: &[T], beta: &[T], state: &mut [T]) {
    let Sizes { keys, values, .. } = sizes;
    for (h, head) in state.chunks_mut(values * keys).enumerate() {
        let (key, share) = (&k[h * keys..][..keys], beta[h]);
        for row in head.chunks_mut(keys) {
            let step = share * dot(row, key);
            row.iter_mut().zip(key).for_each(|(s, &k)| *s -= step * k);
        }
    }
}

fn run_back<T: Real>(sizes: Sizes, k: &[T], beta: &[T], g: &[T], out: &mut [T]) {
    let Sizes { steps, heads, keys, .. } = sizes;
    let state = sizes.state();
    if out.is_empty() {
        return;
    }
    parallel::for_chunks(out, steps * state, |b, out| {
        let mut later = vec![T::zero(); state];
        vectorized(
            #[inline(always)]
            || {
                for (t, now) in out.chunks_mut(state).enumerate().rev() {
                    let at = b * steps + t;
                    let g = &g[at * state..][..state];
                    now.iter_mut().zip(g).zip(&later).for_each(|((out, &g), &later)| *out = g + later);
                    later.copy_from_slice(now);
                    deflate(sizes, &k[at * heads * keys..], &beta[at * heads..], &mut later);
                }
            },
        );
    });
}

/// `out` `[batch T heads, n + m + 1]` gets the gradients of each key, value and share.
fn sums<T: Real>(sizes: Sizes, [k, v, beta, states, adjoint]: [&[T]; 5], initial: Option<&[T]>, out: &mut [T]) {
    let Sizes { steps, heads, keys, values, .. } = sizes;
    let (state, head, width) = (sizes.state(), values * keys, keys + values + 1);
    let rest = vec![T::zero(); head];
    parallel::for_rows(out, width, |first, piece| {
        vectorized(
            #[inline(always)]
            || {
                for (at, out) in (first..).zip(piece.chunks_mut(width)) {
                    let (token, h) = (at / heads, at % heads);
                    let before = match (token % steps, initial) {
                        (0, None) => &rest[..],
                        (0, Some(initial)) => &initial[token / steps * state + h * head..][..head],
                        _ => &states[(token - 1) * state + h * head..][..head],
                    };
                    let adjoint = &adjoint[token * state + h * head..][..head];
                    let (key, share) = (&k[at * keys..][..keys], beta[at]);
                    let (d_key, others) = out.split_at_mut(keys);
                    let (d_value, d_share) = others.split_at_mut(values);
                    d_key.fill(T::zero());
                    d_share[0] = T::zero();
                    for (i, (s, g)) in before.chunks(keys).zip(adjoint.chunks(keys)).enumerate() {
                        let (c, e) = (dot(g, key), v[at * values + i] - dot(s, key));
                        d_value[i] = share * c;
                        d_share[0] += e * c;
                        let of_row = d_key.iter_mut().zip(s).zip(g);
                        of_row.for_each(|((d, &s), &g)| *d += share * (e * g - c * s));
                    }
                }
            },
        );
    });
}
