//! Attention of a few queries to keys and values that lie in blocks of tokens: a step of generation.
//!
//! Nothing is packed. A task takes one block of one sequence and goes through its rows once, for all heads: every key is
//! multiplied with all queries of its group, then every value is added to them. The blocks' parts are put together in their order.

use super::tiles::{Shape, cap_scores};
use crate::attention::key_values::BLOCK;
use crate::attention::{Heads, ScoreSettings};
use crate::kernels::scratch::Scratch;
use crate::kernels::simd::{self, Real, dispatch};
use hankel_core::{parallel, trace};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Values added in one pass over the sums.
const TOGETHER: usize = 4;

/// Keys and values `[batch, BLOCK, width]`, of which `tokens` are there.
pub(crate) struct KeyBlock<'a, T> {
    pub keys: &'a [T],
    pub values: &'a [T],
    pub tokens: Range<usize>,
}

/// `softmax(q K^T / sqrt(head_dim) + mask) V`, scores capped as `settings` say, for `q` `[batch, queries, heads * head_dim]`, the last of the tokens in `blocks`.
pub(crate) fn decode<T: Real>(
    [batch, queries]: [usize; 2],
    heads: Heads,
    ScoreSettings { window, cap }: ScoreSettings,
    q: &[T],
    blocks: &[KeyBlock<T>],
    out: &mut [T],
) {
    let rows = queries * heads.query;
    if batch * rows == 0 || q.is_empty() || blocks.is_empty() {
        return;
    }
    let dim = q.len() / (batch * rows);
    let last = (blocks.len() - 1) * BLOCK + blocks[blocks.len() - 1].tokens.end;
    let shape = Shape {
        batch,
        heads: heads.query,
        kv_heads: heads.key_value,
        head_dim: dim,
        queries,
        keys: last,
        offset: last - queries,
        window,
        cap,
    };
    // The part of each row: sums of values, then the largest score and the sum of exponentials.
    let part = dim + 2;
    trace::operations(|| 4 * batch * rows * dim * last.min(window.unwrap_or(last)));
    let mut parts = Scratch::<T>::new(batch * blocks.len() * rows * part);
    parallel::for_chunks(&mut parts, rows * part, |i, parts| {
        let (b, index) = (i / blocks.len(), i % blocks.len());
        let q = &q[b * rows * dim..][..rows * dim];
        dispatch(OneBlock { shape, b, first: index * BLOCK, q, block: &blocks[index], parts });
    });
    for (b, out) in out.chunks_exact_mut(rows * dim).enumerate() {
        let parts = &parts[b * blocks.len() * rows * part..][..blocks.len() * rows * part];
        for (row, out) in out.chunks_exact_mut(dim).enumerate() {
            let of_row = || parts.chunks_exact(part).skip(row).step_by(rows).map(|part| part.split_at(dim));
            let largest = of_row().fold(T::neg_infinity(), |largest, (_, rest)| largest.max(rest[0]));
            out.fill(T::zero());
            let mut total = T::zero();
            for (sums, rest) in of_row().filter(|(_, rest)| rest[1] != T::zero()) {
                let factor = (rest[0] - largest).exp();
                total += factor * rest[1];
                out.iter_mut().zip(sums).for_each(|(y, &x)| *y += factor * x);
            }
            let inverse = T::one() / total;
            out.iter_mut().for_each(|y| *y *= inverse);
        }
    }
}

struct OneBlock<'a, T> {
    shape: Shape,
    b: usize,
    /// Position of the block's first token.
    first: usize,
    q: &'a [T],
    block: &'a KeyBlock<'a, T>,
    parts: &'a mut [T],
}

impl<T: Real> WithSimd for OneBlock<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let OneBlock { shape, b, first, q, block, parts } = self;
        let Shape { heads, kv_heads, head_dim: dim, queries, .. } = shape;
        let (rows, part) = (queries * heads, dim + 2);
        let (group, width) = (shape.group(), kv_heads * dim);
        let of_sequence = b * BLOCK * width..(b + 1) * BLOCK * width;
        let (keys, values) = (&block.keys[of_sequence.clone()], &block.values[of_sequence]);
        let scale = T::of(1.0 / (dim as f64).sqrt());
        // `q` is [queries, heads, dim]; row i is head `i % heads` of query `i / heads`.
        let seen = |row: usize| {
            let visible = shape.visible(row / heads);
            // The last queries of a piece may see nothing of a block that the first ones see.
            let start = visible.start.saturating_sub(first).clamp(block.tokens.start, block.tokens.end);
            start..visible.end.saturating_sub(first).min(block.tokens.end).max(start)
        };

        let mut scores = Scratch::<T>::new(rows * BLOCK);
        for j in block.tokens.clone() {
            let key = &keys[j * width..][..width];
            for row in 0..rows {
                let head = row % heads;
                let score = simd::dot(simd, &q[row * dim..][..dim], &key[head / group * dim..][..dim]);
                scores[row * BLOCK + j] = score * scale;
            }
        }
        for row in 0..rows {
            let scores = &mut scores[row * BLOCK..][..BLOCK];
            let seen = seen(row);
            let out = &mut parts[row * part..][..part];
            out.fill(T::zero());
            if let Some(cap) = shape.cap {
                cap_scores(&mut scores[seen.clone()], T::of(cap));
            }
            let largest = simd::max(simd, &scores[seen.clone()]);
            out[dim] = largest;
            let scores = &mut scores[seen];
            for score in scores.iter_mut() {
                *score = (*score - largest).vexp();
            }
            out[dim + 1] = simd::sum(simd, scores);
        }
        for j in block.tokens.clone().step_by(TOGETHER) {
            for row in 0..rows {
                let seen = seen(row);
                let together = j.max(seen.start)..(j + TOGETHER).min(seen.end);
                let weights = &scores[row * BLOCK..][..BLOCK];
                let head = row % heads / group;
                let value = |t: usize| &values[t * width + head * dim..][..dim];
                let sums = &mut parts[row * part..][..dim];
                if together.len() == TOGETHER {
                    let four = [weights[j], weights[j + 1], weights[j + 2], weights[j + 3]];
                    add_four(simd, sums, four, [value(j), value(j + 1), value(j + 2), value(j + 3)]);
                } else {
                    for t in together {
                        sums.iter_mut().zip(value(t)).for_each(|(sum, &x)| *sum += weights[t] * x);
                    }
                }
            }
        }
    }
}

/// `sums += w0 v0 + w1 v1 + w2 v2 + w3 v3`.
#[inline(always)]
fn add_four<S: Simd, T: Real>(simd: S, sums: &mut [T], weights: [T; 4], values: [&[T]; 4]) {
    let [v0, v1, v2, v3] = values.map(
        #[inline(always)]
        |values| T::split::<S>(values),
    );
    let [w0, w1, w2, w3] = weights.map(
        #[inline(always)]
        |weight| T::splat(simd, weight),
    );
    let (body, tail) = T::split_mut::<S>(sums);
    for ((((sum, &x0), &x1), &x2), &x3) in body.iter_mut().zip(v0.0).zip(v1.0).zip(v2.0).zip(v3.0) {
        let both = T::vmul_add(simd, w1, x1, T::vmul_add(simd, w0, x0, *sum));
        *sum = T::vmul_add(simd, w3, x3, T::vmul_add(simd, w2, x2, both));
    }
    for (i, sum) in tail.iter_mut().enumerate() {
        *sum += weights[0] * v0.1[i] + weights[1] * v1.1[i] + weights[2] * v2.1[i] + weights[3] * v3.1[i];
    }
}
