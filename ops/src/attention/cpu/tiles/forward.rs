//! The forward pass: softmax over tiles of keys with a running maximum (FlashAttention, Dao et al. 2022).

use super::{Heads, Output, Shape, cap_scores, gather};
use crate::kernels::gemm::Mat;
use crate::kernels::gemm::tiles::{Packed, Products, tile_cols, tile_rows};
use crate::kernels::scratch::Scratch;
use crate::kernels::simd::{self, Real, dispatch};
use hankel_core::{Element, parallel, trace};
use pulp::{Simd, WithSimd};
use std::f64::consts::LOG2_E;

/// `out = softmax(scale Q K^T + mask) V`, `[batch, queries, heads, head_dim]`; `lse` `[batch, heads, queries]` receives
/// the logarithm to base 2 of each row's sum of exponentials, which is all that the backward pass needs to know of the softmax: in another
/// base, rounding of a large score would be a factor of all its probabilities.
pub(super) fn forward<T: Real, P: Products<T>>(
    products: P,
    shape: Shape,
    scale: T,
    q: Heads<T>,
    k: Heads<T>,
    v: Heads<T>,
    out: &mut [T],
    lse: &mut [T],
) {
    shape.check();
    assert_eq!(lse.len(), shape.batch * shape.heads * shape.queries, "log-sum-exps of another size");
    let out = Output::new(out, shape.batch, shape.queries, shape.heads, shape.head_dim);
    if lse.is_empty() {
        return;
    }
    trace::operations(|| 2 * shape.operations());
    let pack = |i| dispatch(Pack { products, shape, k, v, b: i / shape.kv_heads, kv_head: i % shape.kv_heads });
    let attend = |right: &Right<P::Packed>, head: usize, first: usize, lse: &mut [T]| {
        let (b, h) = (head / shape.heads, head % shape.heads);
        dispatch(Head { products, shape, scale, q, right, b, h, first, out: &out, lse });
    };
    let heads = shape.batch * shape.kv_heads;
    if heads >= TASKS * rayon::current_num_threads() {
        // Packed keys and values are read while they are in the cache.
        return parallel::for_chunks(lse, shape.group() * shape.queries, |i, lse| {
            let right = pack(i);
            for (h, lse) in lse.chunks_mut(shape.queries).enumerate() {
                attend(&right, i * shape.group() + h, 0, lse);
            }
        });
    }
    let right: Vec<Right<P::Packed>> = parallel::collect(heads, pack);
    let mut tasks: Vec<(usize, usize, &mut [T])> = lse
        .chunks_mut(shape.queries)
        .enumerate()
        .flat_map(|(head, lse)| lse.chunks_mut(QUERIES).enumerate().map(move |(i, lse)| (head, i * QUERIES, lse)))
        .collect();
    parallel::for_chunks(&mut tasks, 1, |_, task| {
        for (head, first, lse) in task {
            attend(&right[*head / shape.group()], *head, *first, lse);
        }
    });
}

/// Replaces `x` by `2^(x - shift)`; returns their sum, in an order that depends on the length only.
#[inline(always)]
fn powers<S: Simd, T: Real>(simd: S, x: &mut [T], shift: T) -> T {
    let mut sums = [T::zero(); 32];
    let (chunks, rest) = x.as_chunks_mut::<32>();
    for chunk in chunks {
        for (x, sum) in chunk.iter_mut().zip(&mut sums) {
            *x = (*x - shift).vexp2();
            *sum += *x;
        }
    }
    for (x, sum) in rest.iter_mut().zip(&mut sums) {
        *x = (*x - shift).vexp2();
        *sum += *x;
    }
    simd::sum(simd, &sums)
}

/// Heads of keys for each thread that are tasks enough.
const TASKS: usize = 4;
/// Queries of a task, a multiple of those of a block.
const QUERIES: usize = 192;

/// Rows of a block of queries and of keys.
#[inline(always)]
fn blocks<S: Simd, T: Real, P: Products<T>>() -> (usize, usize) {
    ((2 * tile_rows::<S>()).max(P::strip_rows::<S>()), 32 * tile_rows::<S>())
}

/// Keys and values of a head in the order in which the tiles read them: all keys transposed; the values in blocks of keys.
struct Right<E: Element> {
    keys: Scratch<E>,
    values: Scratch<E>,
}

struct Pack<'a, T, P> {
    products: P,
    shape: Shape,
    k: Heads<'a, T>,
    v: Heads<'a, T>,
    b: usize,
    kv_head: usize,
}

impl<T: Real, P: Products<T>> WithSimd for Pack<'_, T, P> {
    type Output = Right<P::Packed>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Self::Output {
        let Pack { products, shape, k, v, b, kv_head } = self;
        let (dim, keys) = (shape.head_dim, shape.keys);
        let (_, block_k) = blocks::<S, T, P>();
        let mut rows = Scratch::<T>::new(keys * dim);
        let mut keys_packed = Scratch::new(P::steps(dim) * P::cols::<S>(keys));
        gather(&k, b, kv_head, dim, 0..keys, T::one(), &mut rows);
        products.pack::<S>(Mat::new(&rows, keys, dim).t(), &mut keys_packed);
        let value_cols = P::cols::<S>(dim);
        let mut values_packed = Scratch::new(P::steps(keys) * value_cols);
        gather(&v, b, kv_head, dim, 0..keys, T::one(), &mut rows);
        for first in (0..keys).step_by(block_k) {
            let n = block_k.min(keys - first);
            products
                .pack::<S>(Mat::new(&rows[first * dim..], n, dim), &mut values_packed[P::steps(first) * value_cols..]);
        }
        Right { keys: keys_packed, values: values_packed }
    }
}

/// Queries of one head from `first` on, as many as there are places for their sums.
struct Head<'a, T: Real, P: Products<T>> {
    products: P,
    shape: Shape,
    scale: T,
    q: Heads<'a, T>,
    right: &'a Right<P::Packed>,
    b: usize,
    h: usize,
    first: usize,
    out: &'a Output<T>,
    lse: &'a mut [T],
}

impl<T: Real, P: Products<T>> WithSimd for Head<'_, T, P> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Head { products, shape, b, h, first, .. } = self;
        let (dim, keys) = (shape.head_dim, shape.keys);
        let (block_q, block_k) = blocks::<S, T, P>();
        let (keys_packed, values_packed) = (&self.right.keys, &self.right.values);
        let value_cols = P::cols::<S>(dim);

        let mut queries = Scratch::<T>::new(block_q * dim);
        let mut acc = Scratch::<T>::new(block_q * dim);
        let mut scores = Scratch::<T>::new(block_q * block_k);
        let mut left_queries = Scratch::new(P::room(block_q, dim));
        let mut left_scores = Scratch::new(P::room(block_q, block_k));
        let (mut maximum, mut total) = (vec![T::zero(); block_q], vec![T::zero(); block_q]);
        // Scores are logarithms to base 2.
        let log2_e = T::of(LOG2_E);
        let end = first + self.lse.len();
        for first_q in (first..end).step_by(block_q) {
            let rows = block_q.min(end - first_q);
            gather(&self.q, b, h, dim, first_q..first_q + rows, self.scale * log2_e, &mut queries);
            let left_queries = products.left(Mat::new(&queries, rows, dim), &mut left_queries);
            acc.fill(T::zero());
            maximum.fill(T::neg_infinity());
            total.fill(T::zero());
            let seen = shape.visible(first_q).start..shape.visible(first_q + rows - 1).end;
            let mut first_k = seen.start / block_k * block_k;
            while first_k < seen.end {
                let n = block_k.min(keys - first_k);
                // Score columns up to the last visible one, in whole register tiles.
                let cols = (seen.end - first_k).next_multiple_of(tile_cols::<S, T>()).min(n);
                let right = Packed { data: &keys_packed[first_k * P::steps(dim)..], k: dim, n: cols };
                products.product(simd, T::one(), left_queries, right, false, &mut scores, block_k, |_, _| 0..dim);
                for (i, row) in scores.chunks_exact_mut(block_k).take(rows).enumerate() {
                    let row = &mut row[..cols];
                    let visible = shape.visible(first_q + i);
                    let start = visible.start.saturating_sub(first_k).min(cols);
                    let end = visible.end.saturating_sub(first_k).min(cols);
                    if start >= end {
                        row.fill(T::zero());
                        continue;
                    }
                    if let Some(cap) = shape.cap {
                        cap_scores(row, T::of(cap * LOG2_E));
                    }
                    row[..start].fill(T::neg_infinity());
                    row[end..].fill(T::neg_infinity());
                    let new = maximum[i].max(simd::max(simd, row));
                    let shrink = (maximum[i] - new).vexp2();
                    total[i] = total[i] * shrink + powers(simd, row, new);
                    maximum[i] = new;
                    if shrink < T::one() {
                        for x in &mut acc[i * dim..(i + 1) * dim] {
                            *x *= shrink;
                        }
                    }
                }
                let left = products.left(Mat::strided(&scores, rows, cols, block_k), &mut left_scores);
                let right = Packed { data: &values_packed[P::steps(first_k) * value_cols..], k: n, n: dim };
                products.product(simd, T::one(), left, right, true, &mut acc, dim, |i, rows| {
                    let start = shape.visible(first_q + i).start;
                    let end = shape.visible(first_q + i + rows - 1).end;
                    start.saturating_sub(first_k)..end.saturating_sub(first_k)
                });
                first_k += block_k;
            }
            for (i, lse) in self.lse[first_q - first..][..rows].iter_mut().enumerate() {
                *lse = maximum[i] + total[i].log2();
            }
            // SAFETY: `forward` makes one task for these queries of each head.
            unsafe { self.out.write_head(b, h, first_q, &acc[..rows * dim], |i| T::one() / total[i]) };
        }
    }
}
