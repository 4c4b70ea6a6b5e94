//! Causal attention: `softmax(scale Q K^T + mask) V` for each head, `scale = 1 / sqrt(head_dim)`.
//!
//! `q` `[batch, T_q, heads * head_dim]`, `k` and `v` `[batch, T_k, kv_heads * head_dim]`, as the projections give them; output
//! as `q`. `heads` is a multiple of `kv_heads`: consecutive query heads share one head of keys and values. The queries are
//! the last `T_q` of `T_k` tokens, and query `i` at position `p` sees the keys `p - window < j <= p`.
//!
//! Computed in tiles with a running softmax (Dao et al., 2022): no `T x T` matrix exists, only the causal half is computed,
//! and the logarithm of each row's sum is all that the gradient needs besides inputs and output. With `P` the softmax, `D` the
//! row sums of `dO * O` and `dS = P * (dO V^T - D)`: `dV = P^T dO`, `dQ = scale dS K`, `dK = scale dS^T Q`.

#[doc(hidden)]
pub mod cases;
pub mod cpu;
mod gpu;
#[doc(hidden)]
pub mod oracle;

use crate::check;
use crate::dispatch::for_float;
use cpu::{Gradients, Heads as View, Shape};
use hankel_core::{Buffer, Error, Result, Tensor, autograd};

/// Numbers of heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Of the queries.
    pub query: usize,
    /// Of keys and values.
    pub key_value: usize,
}

fn sizes(q: &Tensor, k: &Tensor, v: &Tensor, heads: Heads, window: Option<usize>) -> Result<Shape> {
    let fail = |problem: String| Err(Error::shape("attention", problem));
    let (&[batch, queries, width], &[_, keys, kv_width]) = (&q.shape()[..], &k.shape()[..]) else {
        return fail(format!("expected [batch, T, width], found queries {} and keys {}", q.shape(), k.shape()));
    };
    let Heads { query, key_value } = heads;
    if query == 0 || key_value == 0 || !query.is_multiple_of(key_value) || !width.is_multiple_of(query) {
        return fail(format!("{query} heads over {key_value} heads of keys do not divide a width of {width}"));
    }
    let head_dim = width / query;
    if kv_width != key_value * head_dim {
        return fail(format!("keys of width {kv_width} for {key_value} heads of {head_dim}"));
    }
    check::shape("attention", "keys", k, &[batch, keys, kv_width])?;
    check::shape("attention", "values", v, k.shape())?;
    if queries > keys {
        return fail(format!("{queries} queries cannot be the last of {keys} tokens"));
    }
    if window == Some(0) {
        return Err(Error::invalid("attention", "a window of 0 leaves nothing to see"));
    }
    for (name, tensor) in [("keys", k), ("values", v)] {
        check::dtype("attention", name, tensor, q.dtype())?;
    }
    // One that no key falls out of is none.
    let window = window.filter(|&window| window < keys);
    Ok(Shape { batch, heads: query, kv_heads: key_value, head_dim, queries, keys, offset: keys - queries, window })
}

/// Causal attention of the last `T_q` tokens to all `T_k`.
///
/// # Errors
/// When shapes or element types do not fit.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, heads: Heads, window: Option<usize>) -> Result<Tensor> {
    let shape = sizes(q, k, v, heads, window)?;
    if let Some(gpu) = q.gpu() {
        return gpu::attention(gpu, q, k, v, shape);
    }
    for_float!(q, "attention", T => {
        fn view<T: Copy>(data: &[T], tokens: usize, heads: usize, head_dim: usize) -> View<'_, T> {
            View::contiguous(data, tokens, heads, head_dim)
        }
        let scale = (1.0 / (shape.head_dim as f64).sqrt()) as T;
        let mut out = Buffer::<T>::unspecified(q.elements());
        let mut lse = Buffer::<T>::unspecified(shape.batch * shape.heads * shape.queries);
        cpu::forward(
            shape,
            scale,
            view(q.data()?, shape.queries, shape.heads, shape.head_dim),
            view(k.data()?, shape.keys, shape.kv_heads, shape.head_dim),
            view(v.data()?, shape.keys, shape.kv_heads, shape.head_dim),
            &mut out,
            &mut lse,
        );
        let out = Tensor::from_buffer(out, q.shape())?;
        let tracked = [q, k, v].into_iter().any(autograd::needs_gradient);
        let saved = tracked.then(|| (q.detach(), k.detach(), v.detach(), out.clone(), lse));
        out.from_operator("attention", &[Some(q), Some(k), Some(v)], move |g, wanted| {
            let Some((q, k, v, out, lse)) = saved else { return Ok(vec![None, None, None]) };
            let buffer = |wanted: bool, like: &Tensor| wanted.then(|| Buffer::<T>::unspecified(like.elements()));
            let (mut dq, mut dk, mut dv) = (buffer(wanted[0], &q), buffer(wanted[1], &k), buffer(wanted[2], &v));
            cpu::backward(
                shape,
                scale,
                view(q.data()?, shape.queries, shape.heads, shape.head_dim),
                view(k.data()?, shape.keys, shape.kv_heads, shape.head_dim),
                view(v.data()?, shape.keys, shape.kv_heads, shape.head_dim),
                view(out.data()?, shape.queries, shape.heads, shape.head_dim),
                &lse,
                view(g.data()?, shape.queries, shape.heads, shape.head_dim),
                Gradients { q: dq.as_deref_mut(), k: dk.as_deref_mut(), v: dv.as_deref_mut() },
            );
            let finish = |data: Option<Buffer<T>>, like: &Tensor| {
                data.map(|data| Tensor::from_buffer(data, like.shape())).transpose()
            };
            Ok(vec![finish(dq, &q)?, finish(dk, &k)?, finish(dv, &v)?])
        })
    })
}
