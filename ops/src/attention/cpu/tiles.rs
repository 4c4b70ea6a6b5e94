//! Attention in tiles, for slices.
//!
//! Keys and values of each head are copied into the order in which the register tiles read them. A task takes some queries of one head of
//! one sequence, or in the backward pass some keys, and goes through the scores tile by tile, only where the mask lets through; a tile
//! lives in the first-level cache. Nothing of size T x T exists. Everything is computed in a fixed order, so the number of threads
//! changes no bit.

mod backward;
mod forward;
#[cfg(test)]
mod tests;

pub use backward::Gradients;

use crate::kernels::Real;
#[cfg(target_arch = "x86_64")]
use crate::kernels::gemm::bf16::DotProducts;
use crate::kernels::gemm::tiles::{Full, Rounded};
#[cfg(target_arch = "x86_64")]
use crate::kernels::gemm::tiles::{MatrixUnit, Pairs};
use hankel_core::{DType, Precision};
use std::ops::Range;

/// Sizes and mask of an attention.
///
/// Query i stands at position `offset + i` of the keys and sees keys j with `offset + i - window < j <= offset + i`.
/// `offset + queries <= keys`, so that each query sees at least its own key.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Heads of the queries, a multiple of `kv_heads`.
    pub heads: usize,
    /// Heads of keys and values, each shared by `heads / kv_heads` consecutive heads of the queries.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Queries in a sequence.
    pub queries: usize,
    /// Keys in a sequence.
    pub keys: usize,
    /// Position of the first query among the keys.
    pub offset: usize,
    /// Sliding window, in keys; `None` for all that came before.
    pub window: Option<usize>,
    /// Scores `s` become `cap tanh(s / cap)`.
    pub cap: Option<f64>,
}

impl Shape {
    /// Plain causal attention of `tokens` to themselves.
    pub fn causal(batch: usize, tokens: usize, heads: usize, head_dim: usize) -> Self {
        Shape {
            batch,
            heads,
            kv_heads: heads,
            head_dim,
            queries: tokens,
            keys: tokens,
            offset: 0,
            window: None,
            cap: None,
        }
    }

    /// Heads of the queries that share one of the keys.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }

    /// Keys that query `i` sees.
    #[inline(always)]
    pub(super) fn visible(&self, i: usize) -> Range<usize> {
        let end = self.offset + i + 1;
        self.window.map_or(0, |window| end.saturating_sub(window))..end
    }

    /// Queries that see key `j`, among `0..self.queries`.
    #[inline(always)]
    fn viewers(&self, j: usize) -> Range<usize> {
        let start = j.saturating_sub(self.offset);
        let end = self.window.map_or(self.queries, |window| (j + window).saturating_sub(self.offset).min(self.queries));
        start..end
    }

    /// Multiplications and additions of one product over all pairs of a query and a key that it sees.
    fn operations(&self) -> usize {
        let pairs: usize = (0..self.keys).map(|j| self.viewers(j).len()).sum();
        2 * self.batch * self.heads * self.head_dim * pairs
    }

    fn check(&self) {
        assert!(
            self.offset + self.queries <= self.keys || self.batch * self.heads == 0,
            "queries stand beyond the keys"
        );
        assert!(self.window != Some(0), "a window of no keys");
        assert!(self.heads.is_multiple_of(self.kv_heads.max(1)), "heads are not a multiple of the key heads");
    }
}

/// Heads side by side in the rows of tokens: head h of token t of sequence b starts at
/// `b * batch_stride + t * token_stride + h * head_dim`.
#[derive(Clone, Copy)]
pub struct Heads<'a, T> {
    /// The elements.
    pub data: &'a [T],
    /// From sequence to sequence.
    pub batch_stride: usize,
    /// From token to token.
    pub token_stride: usize,
}

impl<'a, T> Heads<'a, T> {
    /// `[batch, tokens, heads, head_dim]` without gaps.
    pub fn contiguous(data: &'a [T], tokens: usize, heads: usize, head_dim: usize) -> Self {
        Heads { data, batch_stride: tokens * heads * head_dim, token_stride: heads * head_dim }
    }

    /// The same view with `T`, which is `f32`, written as `f32`.
    fn single(self) -> Heads<'a, f32>
    where
        T: Real,
    {
        Heads {
            data: bytemuck::cast_slice(self.data),
            batch_stride: self.batch_stride,
            token_stride: self.token_stride,
        }
    }

    /// Row of head `h` of token `t` of sequence `b`.
    #[inline(always)]
    fn row(&self, b: usize, t: usize, h: usize, head_dim: usize) -> &'a [T] {
        &self.data[b * self.batch_stride + t * self.token_stride + h * head_dim..][..head_dim]
    }
}

/// `out = softmax(scale Q K^T + mask) V`, `[batch, queries, heads, head_dim]`; `lse` `[batch, heads, queries]` receives the logarithm to
/// base 2 of each row's sum of exponentials, which is all that the backward pass needs to know of the softmax.
///
/// In `bf16` the operands of products in `f32` are rounded: queries (times `scale`), keys, values and probabilities.
///
/// # Panics
/// When sizes do not fit: that is the calling operator's to check.
pub fn forward<T: Real>(
    precision: Precision,
    shape: Shape,
    scale: T,
    q: Heads<T>,
    k: Heads<T>,
    v: Heads<T>,
    out: &mut [T],
    lse: &mut [T],
) {
    if !is_rounded::<T>(precision) {
        return forward::forward(Full, shape, scale, q, k, v, out, lse);
    }
    let (scale, q, k, v) = (scale.f64() as f32, q.single(), k.single(), v.single());
    let (out, lse) = (bytemuck::cast_slice_mut(out), bytemuck::cast_slice_mut(lse));
    #[cfg(target_arch = "x86_64")]
    if let Some(unit) = MatrixUnit::detect() {
        return forward::forward(unit, shape, scale, q, k, v, out, lse);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(dot) = DotProducts::detect() {
        return forward::forward(Pairs(dot), shape, scale, q, k, v, out, lse);
    }
    forward::forward(Rounded, shape, scale, q, k, v, out, lse);
}

/// Gradients from that of the output, `d_out`, with `out` and `lse` as `forward` gave them. In `bf16` gradients of the output and of
/// scores are rounded, too.
///
/// # Panics
/// When sizes do not fit: that is the calling operator's to check.
pub fn backward<T: Real>(
    precision: Precision,
    shape: Shape,
    scale: T,
    [q, k, v, out, d_out]: [Heads<T>; 5],
    lse: &[T],
    gradients: Gradients<T>,
) {
    if !is_rounded::<T>(precision) {
        return backward::backward(Full, shape, scale, [q, k, v, out, d_out], lse, gradients);
    }
    let inputs = [q, k, v, out, d_out].map(Heads::single);
    let (scale, lse) = (scale.f64() as f32, bytemuck::cast_slice(lse));
    let Gradients { q, k, v } = gradients;
    let [q, k, v] = [q, k, v].map(|gradient| gradient.map(bytemuck::cast_slice_mut));
    let gradients = Gradients { q, k, v };
    #[cfg(target_arch = "x86_64")]
    if let Some(unit) = MatrixUnit::detect() {
        return backward::backward(unit, shape, scale, inputs, lse, gradients);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(dot) = DotProducts::detect() {
        return backward::backward(Pairs(dot), shape, scale, inputs, lse, gradients);
    }
    backward::backward(Rounded, shape, scale, inputs, lse, gradients);
}

fn is_rounded<T: Real>(precision: Precision) -> bool {
    precision == Precision::Bf16 && T::ELEMENT == DType::F32
}

/// An output `[batch, tokens, heads, head_dim]` of which each task writes some tokens of one head.
struct Output<T> {
    data: *mut T,
    tokens: usize,
    heads: usize,
    head_dim: usize,
}

// SAFETY: only `write_head` writes, and its caller promises that tasks write different elements.
unsafe impl<T: Send> Sync for Output<T> {}

impl<T: Real> Output<T> {
    fn new(data: &mut [T], batch: usize, tokens: usize, heads: usize, head_dim: usize) -> Self {
        assert_eq!(data.len(), batch * tokens * heads * head_dim, "an output of another size");
        Output { data: data.as_mut_ptr(), tokens, heads, head_dim }
    }

    /// Writes `rows` times `factor` to tokens `first..` of head `h` of sequence `b`. To multiply is faster than to call a copy for each of
    /// the short rows.
    ///
    /// # Safety
    /// `b` and `h` are in range, and no other thread writes these tokens of the head at the same time.
    #[inline(always)]
    unsafe fn write_head(&self, b: usize, h: usize, first: usize, rows: &[T], factor: impl Fn(usize) -> T) {
        assert!(first + rows.len() / self.head_dim.max(1) <= self.tokens);
        for (t, row) in rows.chunks_exact(self.head_dim.max(1)).enumerate() {
            let at = ((b * self.tokens + first + t) * self.heads + h) * self.head_dim;
            // SAFETY: within the slice that `new` measured, by the caller's promise and the check above.
            let out = unsafe { std::slice::from_raw_parts_mut(self.data.add(at), self.head_dim) };
            let factor = factor(t);
            out.iter_mut().zip(row).for_each(|(out, &x)| *out = x * factor);
        }
    }
}

/// `cap tanh(s / cap)` of scores.
#[inline(always)]
pub(super) fn cap_scores<T: Real>(scores: &mut [T], cap: T) {
    let inverse = T::one() / cap;
    for s in scores {
        *s = cap * (*s * inverse).vtanh();
    }
}

/// Copies a head's rows next to each other, times `factor`.
#[inline(always)]
fn gather<T: Real>(
    from: &Heads<T>,
    b: usize,
    h: usize,
    head_dim: usize,
    tokens: Range<usize>,
    factor: T,
    out: &mut [T],
) {
    for (t, out) in tokens.zip(out.chunks_exact_mut(head_dim.max(1))) {
        for (out, &x) in out.iter_mut().zip(from.row(b, t, h, head_dim)) {
            *out = x * factor;
        }
    }
}
