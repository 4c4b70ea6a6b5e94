//! The backward pass: the probabilities are computed again, tile by tile, from the scores and the log-sum-exps.
//!
//! With P = exp(S - lse), where S may be capped (see [`Shape::cap`]), and D_i = <dO_i, O_i> (in the code S and lse are to base 2):
//!
//! ```text
//! dV = P^T dO      dP = dO V^T      dS = P * (dP - D)      dQ = scale dS K      dK = scale dS^T Q
//! ```
//!
//! With a cap, dS is multiplied by 1 - (S / cap)^2.

use super::{Heads, Output, Shape, cap_scores, gather};
use crate::kernels::gemm::Mat;
use crate::kernels::gemm::tiles::{Packed, Products, tile_cols, tile_rows};
use crate::kernels::scratch::Scratch;
use crate::kernels::simd::{self, Real, dispatch};
use hankel_core::{Element, parallel, trace};
use pulp::{Simd, WithSimd};
use std::f64::consts::{LN_2, LOG2_E};
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
pub(super) fn backward<T: Real, P: Products<T>>(
    products: P,
    shape: Shape,
    scale: T,
    [q, k, v, out, d_out]: [Heads<T>; 5],
    lse: &[T],
    gradients: Gradients<T>,
) {
    shape.check();
    assert_eq!(lse.len(), shape.batch * shape.heads * shape.queries, "log-sum-exps of another size");
    let output = |data: &mut [T], tokens, heads| Output::new(data, shape.batch, tokens, heads, shape.head_dim);
    let mut gradients = gradients;
    let d_q = gradients.q.as_deref_mut().map(|data| output(data, shape.queries, shape.heads));
    let d_k = gradients.k.as_deref_mut().map(|data| output(data, shape.keys, shape.kv_heads));
    let d_v = gradients.v.as_deref_mut().map(|data| output(data, shape.keys, shape.kv_heads));
    if shape.batch * shape.heads * shape.keys * shape.head_dim == 0 {
        return;
    }
    if shape.queries == 0 {
        // Nothing was asked of the keys.
        for data in [gradients.k, gradients.v].into_iter().flatten() {
            data.fill(T::zeroed());
        }
        return;
    }
    trace::operations(|| 5 * shape.operations());
    let inputs = Inputs { products, shape, scale, q, k, v, out, lse, d_out };
    let all = 0..shape.keys;
    if shape.batch * shape.kv_heads >= TASKS {
        return parallel::for_each(shape.batch * shape.kv_heads, |i| {
            let (b, kv_head) = (i / shape.kv_heads, i % shape.kv_heads);
            let heads = kv_head * shape.group()..(kv_head + 1) * shape.group();
            let (keys, queries) = (dispatch(PackKeys { inputs, b, kv_head }), None);
            let (d_q, d_k, d_v) = (d_q.as_ref(), d_k.as_ref(), d_v.as_ref());
            let keys = &keys;
            dispatch(Task { inputs, b, heads, seen: all.clone(), keys, queries, to: kv_head, d_q, d_k, d_v });
        });
    }
    // A task for each head of the queries and each of some pieces of the keys. What heads add to the gradients of keys that they share,
    // and pieces to those of the queries, is summed up afterwards, in order.
    let pieces = TASKS.div_ceil(shape.batch * shape.heads).min(PIECES).min(shape.keys.div_ceil(PIECE)).max(1);
    let piece = shape.keys.div_ceil(pieces).next_multiple_of(PIECE);
    let pieces = shape.keys.div_ceil(piece).max(1);
    let len = |tokens: usize| shape.batch * tokens * shape.heads * shape.head_dim;
    let shared = shape.group() > 1;
    let mut parts = [&d_k, &d_v].map(|d| (shared && d.is_some()).then(|| Scratch::<T>::new(len(shape.keys))));
    let mut q_parts = (pieces > 1 && d_q.is_some()).then(|| Scratch::<T>::new(pieces * len(shape.queries)));
    let [k_parts, v_parts] = &mut parts;
    let part = |data: &mut Option<Scratch<T>>| data.as_mut().map(|data| output(data, shape.keys, shape.heads));
    let (to_k, to_v) = (part(k_parts), part(v_parts));
    let to_q: Option<Vec<Output<T>>> = q_parts.as_mut().map(|data| {
        data.chunks_exact_mut(len(shape.queries)).map(|data| output(data, shape.queries, shape.heads)).collect()
    });
    let pack_keys = |i| dispatch(PackKeys { inputs, b: i / shape.kv_heads, kv_head: i % shape.kv_heads });
    let pack_queries = |i| dispatch(PackQueries { inputs, b: i / shape.heads, h: i % shape.heads });
    let run = |head: usize, i: usize, keys: &Keys<P::Packed>, queries: &Queries<T, P::Packed>| {
        let (b, h) = (head / shape.heads, head % shape.heads);
        let d_q = to_q.as_ref().map_or(d_q.as_ref(), |parts| Some(&parts[i]));
        let (d_k, d_v) = if shared { (to_k.as_ref(), to_v.as_ref()) } else { (d_k.as_ref(), d_v.as_ref()) };
        let seen = (i * piece).min(shape.keys)..((i + 1) * piece).min(shape.keys);
        dispatch(Task { inputs, b, heads: h..h + 1, seen, keys, queries: Some(queries), to: h, d_q, d_k, d_v });
    };
    if !shared && shape.batch * shape.heads >= FOR_A_THREAD * rayon::current_num_threads() {
        // A head's pieces in one task: what was packed is read while it is in the cache.
        parallel::for_each(shape.batch * shape.heads, |head| {
            let (keys, queries) = (pack_keys(head), pack_queries(head));
            (0..pieces).for_each(|i| run(head, i, &keys, &queries));
        });
    } else {
        let keys = parallel::collect(shape.batch * shape.kv_heads, pack_keys);
        let queries = parallel::collect(shape.batch * shape.heads, pack_queries);
        parallel::for_each(shape.batch * shape.heads * pieces, |i| {
            let (head, i) = (i / pieces, i % pieces);
            // The first keys are seen by the most queries: long and short tasks in turn.
            let i = if i % 2 == 0 { i / 2 } else { pieces - 1 - i / 2 };
            run(head, i, &keys[head / shape.group()], &queries[head]);
        });
    }
    if let (Some(sums), Some(parts)) = (gradients.q, &q_parts) {
        let len = sums.len();
        parallel::for_rows(sums, 1, |first, sums| {
            sums.copy_from_slice(&parts[first..][..sums.len()]);
            for part in parts.chunks_exact(len).skip(1) {
                sums.iter_mut().zip(&part[first..]).for_each(|(sum, &x)| *sum += x);
            }
        });
    }
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

/// Enough tasks to keep the threads busy. A constant, so that sums are the same for any number of threads.
const TASKS: usize = 32;
/// Heads for each thread that are tasks enough where that changes no sum.
const FOR_A_THREAD: usize = 4;
/// Pieces of the keys at most: each has a copy of the gradient of the queries.
const PIECES: usize = 4;
/// Keys of which a piece has a multiple: a number of blocks for every instruction set.
const PIECE: usize = 192;

/// Rows of a block of queries and of keys: a multiple of the tile's rows, and of its columns.
#[inline(always)]
fn block_rows<S: Simd>() -> usize {
    8 * tile_rows::<S>()
}

#[derive(Clone, Copy)]
struct Inputs<'a, T, P> {
    products: P,
    shape: Shape,
    scale: T,
    q: Heads<'a, T>,
    k: Heads<'a, T>,
    v: Heads<'a, T>,
    out: Heads<'a, T>,
    lse: &'a [T],
    d_out: Heads<'a, T>,
}

/// Heads of queries that share one of the keys, and some of the keys.
struct Task<'a, T: Real, P: Products<T>> {
    inputs: Inputs<'a, T, P>,
    b: usize,
    heads: Range<usize>,
    seen: Range<usize>,
    keys: &'a Keys<P::Packed>,
    /// Of the only head; `None` where they are to be packed here.
    queries: Option<&'a Queries<T, P::Packed>>,
    /// The head of `d_k` and `d_v` that is written.
    to: usize,
    d_q: Option<&'a Output<T>>,
    d_k: Option<&'a Output<T>>,
    d_v: Option<&'a Output<T>>,
}

/// Keys and values of a head as right factors: transposed, and keys also by blocks of rows.
struct Keys<E: Element> {
    transposed: Scratch<E>,
    blocks: Scratch<E>,
    values: Scratch<E>,
}

/// Queries, times the scale and log2(e) for scores that are logarithms to base 2, and gradients of the output of a head: rows, and by
/// blocks of rows as right factors.
struct Queries<T: Real, E: Element> {
    rows: Scratch<T>,
    blocks: Scratch<E>,
    d_out_rows: Scratch<T>,
    d_out_blocks: Scratch<E>,
    /// D.
    correlation: Vec<T>,
}

#[inline(always)]
fn pack_blocks<S: Simd, T: Real, P: Products<T>>(products: P, rows: &[T], dim: usize) -> Scratch<P::Packed> {
    let (cols, block) = (P::cols::<S>(dim), block_rows::<S>());
    let mut packed = Scratch::new(P::steps(rows.len() / dim) * cols);
    for (rows, out) in rows.chunks(block * dim).zip(packed.chunks_mut(P::steps(block) * cols)) {
        products.pack::<S>(Mat::new(rows, rows.len() / dim, dim), out);
    }
    packed
}

struct PackKeys<'a, T, P> {
    inputs: Inputs<'a, T, P>,
    b: usize,
    kv_head: usize,
}

impl<T: Real, P: Products<T>> WithSimd for PackKeys<'_, T, P> {
    type Output = Keys<P::Packed>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Self::Output {
        let PackKeys { inputs: Inputs { products, shape, k, v, .. }, b, kv_head } = self;
        let (dim, n) = (shape.head_dim, shape.keys);
        let mut rows = Scratch::<T>::new(n * dim);
        let [mut transposed, mut values] = std::array::from_fn(|_| Scratch::new(P::steps(dim) * P::cols::<S>(n)));
        gather(&k, b, kv_head, dim, 0..n, T::one(), &mut rows);
        products.pack::<S>(Mat::new(&rows, n, dim).t(), &mut transposed);
        let blocks = pack_blocks::<S, T, P>(products, &rows, dim);
        gather(&v, b, kv_head, dim, 0..n, T::one(), &mut rows);
        products.pack::<S>(Mat::new(&rows, n, dim).t(), &mut values);
        Keys { transposed, blocks, values }
    }
}

struct PackQueries<'a, T, P> {
    inputs: Inputs<'a, T, P>,
    b: usize,
    h: usize,
}

impl<T: Real, P: Products<T>> WithSimd for PackQueries<'_, T, P> {
    type Output = Queries<T, P::Packed>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let PackQueries { inputs: Inputs { products, shape, scale, q, out, d_out, .. }, b, h } = self;
        let (dim, n) = (shape.head_dim, shape.queries);
        let [mut rows, mut d_out_rows] = std::array::from_fn(|_| Scratch::<T>::new(n * dim));
        gather(&q, b, h, dim, 0..n, scale * T::of(LOG2_E), &mut rows);
        gather(&d_out, b, h, dim, 0..n, T::one(), &mut d_out_rows);
        // dP - D is 0 where a query sees one key, and stays so if both are of the rounded gradient.
        products.round(&mut d_out_rows);
        let mut correlation = vec![T::zero(); n];
        for (t, (d, row)) in correlation.iter_mut().zip(d_out_rows.chunks_exact(dim)).enumerate() {
            *d = simd::dot(simd, row, out.row(b, t, h, dim));
        }
        let [blocks, d_out_blocks] = [&rows, &d_out_rows].map(|rows| pack_blocks::<S, T, P>(products, rows, dim));
        Queries { rows, blocks, d_out_rows, d_out_blocks, correlation }
    }
}

impl<T: Real, P: Products<T>> WithSimd for Task<'_, T, P> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Task { inputs, b, keys, seen, .. } = self;
        let Inputs { products, shape, scale, lse, .. } = inputs;
        let (dim, n_q) = (shape.head_dim, shape.queries);
        let block = block_rows::<S>();
        let cols = P::cols::<S>(dim);

        let mut d_keys = Scratch::<T>::zeros(seen.len() * dim);
        let mut d_values = Scratch::<T>::zeros(seen.len() * dim);
        let mut d_queries = Scratch::<T>::new(n_q * dim);
        let mut p = Scratch::<T>::new(block * block);
        let mut ds = Scratch::<T>::new(block * block);
        let mut room = Scratch::new(P::room(block, block).max(P::room(block, dim)));

        for h in self.heads {
            let packed;
            let queries = if let Some(queries) = self.queries {
                queries
            } else {
                packed = PackQueries { inputs, b, h }.with_simd(simd);
                &packed
            };
            let lse = &lse[(b * shape.heads + h) * n_q..][..n_q];
            d_queries.fill(T::zero());

            for first_k in seen.clone().step_by(block) {
                let block_k = block.min(seen.end - first_k);
                let viewers = shape.viewers(first_k).start..shape.viewers(first_k + block_k - 1).end;
                if viewers.is_empty() {
                    continue;
                }
                let at_k = (first_k - seen.start) * dim;
                let mut first_q = viewers.start / block * block;
                while first_q < viewers.end {
                    let block_q = block.min(n_q - first_q);
                    let seen = shape.visible(first_q + block_q - 1).end.min(shape.keys) - first_k;
                    let seen = seen.next_multiple_of(tile_cols::<S, T>()).min(block_k);
                    let at_q = first_q * dim;
                    for (rows, right, out) in
                        [(&queries.rows, &keys.transposed, &mut p), (&queries.d_out_rows, &keys.values, &mut ds)]
                    {
                        let left = products.left(Mat::new(&rows[at_q..], block_q, dim), &mut room);
                        let right = Packed { data: &right[first_k * P::steps(dim)..], k: dim, n: seen };
                        products.product(simd, T::one(), left, right, false, out, block, |_, _| 0..dim);
                    }
                    let tiles = p.chunks_exact_mut(block).zip(ds.chunks_exact_mut(block));
                    for (i, (p, ds)) in tiles.take(block_q).enumerate() {
                        let (p, ds) = (&mut p[..seen], &mut ds[..seen]);
                        let visible = shape.visible(first_q + i);
                        if let Some(cap) = shape.cap {
                            let (cap, inverse) = (T::of(cap * LOG2_E), T::of(LN_2 / cap));
                            let correlation = queries.correlation[first_q + i];
                            cap_scores(p, cap);
                            for (p, ds) in p.iter().zip(&mut *ds) {
                                let ratio = *p * inverse;
                                *ds = (*ds - correlation) * (T::one() - ratio * ratio) + correlation;
                            }
                        }
                        p[..visible.start.saturating_sub(first_k).min(seen)].fill(T::neg_infinity());
                        p[visible.end.saturating_sub(first_k).min(seen)..].fill(T::neg_infinity());
                        let (lse, correlation) = (lse[first_q + i], queries.correlation[first_q + i]);
                        for (p, ds) in p.iter_mut().zip(ds) {
                            *p = (*p - lse).vexp2();
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
                    // The blocks as left factors, and what they are multiplied with.
                    let (p, ds) = (Mat::strided(&p, block_q, seen, block), Mat::strided(&ds, block_q, seen, block));
                    let of_queries = |blocks| Packed { data: blocks, k: block_q, n: dim };
                    let at_block = P::steps(first_q) * cols;
                    if self.d_v.is_some() {
                        let (left, right) =
                            (products.left(p.t(), &mut room), of_queries(&queries.d_out_blocks[at_block..]));
                        products.product(simd, T::one(), left, right, true, &mut d_values[at_k..], dim, of_key);
                    }
                    if self.d_k.is_some() {
                        let (left, right) = (products.left(ds.t(), &mut room), of_queries(&queries.blocks[at_block..]));
                        products.product(simd, T::one(), left, right, true, &mut d_keys[at_k..], dim, of_key);
                    }
                    if self.d_q.is_some() {
                        let left = products.left(ds, &mut room);
                        let right = Packed { data: &keys.blocks[P::steps(first_k) * cols..], k: block_k, n: dim };
                        products.product(simd, T::one(), left, right, true, &mut d_queries[at_q..], dim, of_query);
                    }
                    first_q += block;
                }
            }
            if let Some(d_q) = self.d_q {
                // SAFETY: each head of the queries, or its part for these keys, belongs to one task.
                unsafe { d_q.write_head(b, h, 0, &d_queries, |_| scale) };
            }
        }
        // Queries have the scale in them, and log2(e).
        for (out, rows, factor) in [(self.d_k, &d_keys, T::of(LN_2)), (self.d_v, &d_values, T::one())] {
            if let Some(out) = out {
                // SAFETY: these keys of the head belong to one task.
                unsafe { out.write_head(b, self.to, seen.start, rows, |_| factor) };
            }
        }
    }
}
