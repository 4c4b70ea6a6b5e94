//! The backward pass: the probabilities are computed again, tile by tile, from the scores and the log-sum-exps.
//!
//! With P = exp(S - lse), where S may be capped (see [`Shape::cap`]), and D_i = <dO_i, O_i>:
//!
//! ```text
//! dV = P^T dO      dP = dO V^T      dS = P * (dP - D)      dQ = scale dS K      dK = scale dS^T Q
//! ```
//!
//! With a cap, dS is multiplied by 1 - (S / cap)^2.

use super::{Heads, Output, Shape, cap_scores, gather};
use crate::kernels::gemm::Mat;
use crate::kernels::gemm::tiles::{Packed, pack, packed_cols, product, tile_cols, tile_rows};
use crate::kernels::scratch::Scratch;
use crate::kernels::simd::{self, Real, dispatch};
use hankel_core::{parallel, trace};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// The gradients that are wanted, each as long as what it is the gradient of, without gaps.
pub struct Gradients<'a, T> {
    /// `[batch, queries, heads, head_dim]`
    pub q: Option<&'a mut [T]>,
    /// `[batch, keys, kv_heads, head_dim]`
    pub k: Option<&'a mut [T]>,
    /// `[batch, keys, kv_heads, head_dim]`
    pub v: Option<&'a mut [T]>,
}

/// Gradients from that of the output, `d_out`, with `out` and `lse` as `forward` gave them.
///
/// # Panics
/// When sizes do not fit: that is the calling operator's to check.
pub fn backward<T: Real>(
    shape: Shape,
    scale: T,
    q: Heads<T>,
    k: Heads<T>,
    v: Heads<T>,
    out: Heads<T>,
    lse: &[T],
    d_out: Heads<T>,
    gradients: Gradients<T>,
) {
    shape.check();
    assert_eq!(lse.len(), shape.batch * shape.heads * shape.queries, "log-sum-exps of another size");
    let output = |data: &mut [T], tokens, heads| Output::new(data, shape.batch, tokens, heads, shape.head_dim);
    let mut gradients = gradients;
    let d_q = gradients.q.as_deref_mut().map(|data| output(data, shape.queries, shape.heads));
    let d_k = gradients.k.as_deref_mut().map(|data| output(data, shape.keys, shape.kv_heads));
    let d_v = gradients.v.as_deref_mut().map(|data| output(data, shape.keys, shape.kv_heads));
    if shape.head_dim == 0 {
        return;
    }
    trace::operations(|| 5 * shape.operations());
    if shape.group() == 1 || shape.batch * shape.kv_heads >= GROUPS {
        return parallel::for_each(shape.batch * shape.kv_heads, |i| {
            let (b, kv_head) = (i / shape.kv_heads, i % shape.kv_heads);
            let heads = kv_head * shape.group()..(kv_head + 1) * shape.group();
            let (d_q, d_k, d_v) = (d_q.as_ref(), d_k.as_ref(), d_v.as_ref());
            dispatch(Group { shape, scale, q, k, v, out, lse, d_out, b, kv_head, heads, to: kv_head, d_q, d_k, d_v });
        });
    }
    // A task for each query head: what they add to the gradients of the keys that they share is summed up afterwards, in order.
    let len = shape.batch * shape.keys * shape.heads * shape.head_dim;
    let mut parts = [&d_k, &d_v].map(|d| d.as_ref().map(|_| Scratch::<T>::new(len)));
    let [k_parts, v_parts] = &mut parts;
    let part = |data: &mut Option<Scratch<T>>| data.as_mut().map(|data| output(data, shape.keys, shape.heads));
    let (to_k, to_v) = (part(k_parts), part(v_parts));
    parallel::for_each(shape.batch * shape.heads, |i| {
        let (b, h) = (i / shape.heads, i % shape.heads);
        let kv_head = h / shape.group();
        let (d_q, d_k, d_v) = (d_q.as_ref(), to_k.as_ref(), to_v.as_ref());
        dispatch(Group { shape, scale, q, k, v, out, lse, d_out, b, kv_head, heads: h..h + 1, to: h, d_q, d_k, d_v });
    });
    let width = shape.group() * shape.head_dim;
    for (sums, parts) in [(gradients.k, &parts[0]), (gradients.v, &parts[1])] {
        let (Some(sums), Some(parts)) = (sums, parts) else { continue };
        parallel::for_rows(sums, shape.head_dim, |first, sums| {
            for (row, sum) in sums.chunks_exact_mut(shape.head_dim).enumerate() {
                let mut of_heads = parts[(first + row) * width..][..width].chunks_exact(shape.head_dim);
                sum.copy_from_slice(of_heads.next().expect("a group has a head"));
                of_heads.for_each(|part| sum.iter_mut().zip(part).for_each(|(sum, &x)| *sum += x));
            }
        });
    }
}

/// Groups of query heads, of all sequences, that are tasks enough.
const GROUPS: usize = 32;

/// Query heads that share a head of the keys.
struct Group<'a, T> {
    shape: Shape,
    scale: T,
    q: Heads<'a, T>,
    k: Heads<'a, T>,
    v: Heads<'a, T>,
    out: Heads<'a, T>,
    lse: &'a [T],
    d_out: Heads<'a, T>,
    b: usize,
    kv_head: usize,
    heads: Range<usize>,
    /// The head of `d_k` and `d_v` that is written.
    to: usize,
    d_q: Option<&'a Output<T>>,
    d_k: Option<&'a Output<T>>,
    d_v: Option<&'a Output<T>>,
}

/// A head's rows, transposed as one right factor and by blocks of rows as right factors.
struct Factors<T: Real> {
    transposed: Scratch<T>,
    blocks: Scratch<T>,
}

#[inline(always)]
fn pack_blocks<S: Simd, T: Real>(rows: &[T], dim: usize, block: usize, out: &mut [T]) {
    let cols = packed_cols::<S, T>(dim);
    for (rows, out) in rows.chunks(block * dim).zip(out.chunks_mut(block * cols)) {
        pack::<S, T>(Mat::new(rows, rows.len() / dim, dim), out);
    }
}

impl<T: Real> Factors<T> {
    #[inline(always)]
    fn new<S: Simd>(rows: &[T], dim: usize, block: usize) -> Self {
        let n = rows.len() / dim;
        let mut transposed = Scratch::new(dim * packed_cols::<S, T>(n));
        let mut blocks = Scratch::new(n * packed_cols::<S, T>(dim));
        pack::<S, T>(Mat::new(rows, n, dim).t(), &mut transposed);
        pack_blocks::<S, T>(rows, dim, block, &mut blocks);
        Factors { transposed, blocks }
    }
}

impl<T: Real> WithSimd for Group<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Group { shape, b, kv_head, .. } = self;
        let (dim, n_q, n_k) = (shape.head_dim, shape.queries, shape.keys);
        // Both multiples of the tile's rows, and of its columns.
        let block = 8 * tile_rows::<S>();
        let cols = packed_cols::<S, T>(dim);

        let mut rows = Scratch::<T>::new(n_q.max(n_k) * dim);
        gather(&self.k, b, kv_head, dim, 0..n_k, T::one(), &mut rows);
        let keys = Factors::new::<S>(&rows[..n_k * dim], dim, block);
        gather(&self.v, b, kv_head, dim, 0..n_k, T::one(), &mut rows);
        let values = Factors::new::<S>(&rows[..n_k * dim], dim, block);
        let mut d_keys = Scratch::<T>::zeros(n_k * dim);
        let mut d_values = Scratch::<T>::zeros(n_k * dim);

        let mut queries = Scratch::<T>::new(n_q * dim);
        let mut d_queries = Scratch::<T>::new(n_q * dim);
        let mut d_outs = Scratch::<T>::new(n_q * dim);
        let mut queries_packed = Scratch::<T>::new(n_q * cols);
        let mut d_outs_packed = Scratch::<T>::new(n_q * cols);
        let mut p = Scratch::<T>::new(block * block);
        let mut ds = Scratch::<T>::new(block * block);
        let mut correlation = vec![T::zero(); n_q];

        for h in self.heads {
            gather(&self.q, b, h, dim, 0..n_q, self.scale, &mut queries);
            pack_blocks::<S, T>(&queries, dim, block, &mut queries_packed);
            gather(&self.d_out, b, h, dim, 0..n_q, T::one(), &mut d_outs);
            pack_blocks::<S, T>(&d_outs, dim, block, &mut d_outs_packed);
            for (t, (d, row)) in correlation.iter_mut().zip(d_outs.chunks_exact(dim)).enumerate() {
                *d = simd::dot(simd, row, self.out.row(b, t, h, dim));
            }
            let lse = &self.lse[(b * shape.heads + h) * n_q..][..n_q];
            d_queries.fill(T::zero());

            for first_k in (0..n_k).step_by(block) {
                let block_k = block.min(n_k - first_k);
                let viewers = shape.viewers(first_k).start..shape.viewers(first_k + block_k - 1).end;
                if viewers.is_empty() {
                    continue;
                }
                let mut first_q = viewers.start / block * block;
                while first_q < viewers.end {
                    let block_q = block.min(n_q - first_q);
                    let seen = shape.visible(first_q + block_q - 1).end.min(n_k) - first_k;
                    let seen = seen.next_multiple_of(tile_cols::<S, T>()).min(block_k);
                    let at_q = first_q * dim;
                    let left = |rows| Mat::new(rows, block_q, dim);
                    let right = |data| Packed { data, k: dim, n: seen };
                    let (q_rows, do_rows) = (&queries[at_q..], &d_outs[at_q..]);
                    let k_right = right(&keys.transposed[first_k * dim..]);
                    let v_right = right(&values.transposed[first_k * dim..]);
                    product(simd, T::one(), left(q_rows), k_right, false, &mut p, block, |_, _| 0..dim);
                    product(simd, T::one(), left(do_rows), v_right, false, &mut ds, block, |_, _| 0..dim);
                    let tiles = p.chunks_exact_mut(block).zip(ds.chunks_exact_mut(block));
                    for (i, (p, ds)) in tiles.take(block_q).enumerate() {
                        let (p, ds) = (&mut p[..seen], &mut ds[..seen]);
                        let visible = shape.visible(first_q + i);
                        if let Some(cap) = shape.cap {
                            let (cap, inverse) = (T::of(cap), T::of(1.0 / cap));
                            let correlation = correlation[first_q + i];
                            cap_scores(p, cap);
                            for (p, ds) in p.iter().zip(&mut *ds) {
                                let ratio = *p * inverse;
                                *ds = (*ds - correlation) * (T::one() - ratio * ratio) + correlation;
                            }
                        }
                        p[..visible.start.saturating_sub(first_k).min(seen)].fill(T::neg_infinity());
                        p[visible.end.saturating_sub(first_k).min(seen)..].fill(T::neg_infinity());
                        let (lse, correlation) = (lse[first_q + i], correlation[first_q + i]);
                        for (p, ds) in p.iter_mut().zip(ds) {
                            *p = (*p - lse).vexp();
                            *ds = *p * (*ds - correlation);
                        }
                    }
                    let of_key = |i: usize, rows: usize| {
                        let start = shape.viewers(first_k + i).start;
                        let end = shape.viewers(first_k + i + rows - 1).end;
                        start.saturating_sub(first_q)..end.saturating_sub(first_q)
                    };
                    let of_query = |i: usize, rows: usize| {
                        let start = shape.visible(first_q + i).start;
                        let end = shape.visible(first_q + i + rows - 1).end;
                        start.saturating_sub(first_k)..end.saturating_sub(first_k)
                    };
                    if self.d_v.is_some() {
                        let left = Mat::strided(&p, block_q, seen, block).t();
                        let right = Packed { data: &d_outs_packed[first_q * cols..], k: block_q, n: dim };
                        product(simd, T::one(), left, right, true, &mut d_values[first_k * dim..], dim, of_key);
                    }
                    if self.d_k.is_some() {
                        let left = Mat::strided(&ds, block_q, seen, block).t();
                        let right = Packed { data: &queries_packed[first_q * cols..], k: block_q, n: dim };
                        product(simd, T::one(), left, right, true, &mut d_keys[first_k * dim..], dim, of_key);
                    }
                    if self.d_q.is_some() {
                        let left = Mat::strided(&ds, block_q, block_k, block);
                        let right = Packed { data: &keys.blocks[first_k * cols..], k: block_k, n: dim };
                        product(simd, self.scale, left, right, true, &mut d_queries[at_q..], dim, of_query);
                    }
                    first_q += block;
                }
            }
            if let Some(d_q) = self.d_q {
                // SAFETY: each query head belongs to one task.
                unsafe { d_q.write_head(b, h, 0, &d_queries) };
            }
        }
        for (out, rows) in [(self.d_k, &d_keys), (self.d_v, &d_values)] {
            if let Some(out) = out {
                // SAFETY: each task has a head of its own.
                unsafe { out.write_head(b, self.to, 0, rows) };
            }
        }
    }
}
