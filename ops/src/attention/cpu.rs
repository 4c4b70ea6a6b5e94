//! All heads of all sequences, in tiles.

pub(super) mod decode;
#[doc(hidden)]
pub mod tiles;

use super::NAME;
use crate::dispatch::for_float;
use hankel_core::{Buffer, Result, Tensor, precision};
use tiles::{Gradients, Heads, Shape};

fn scale(shape: &Shape) -> f64 {
    1.0 / (shape.head_dim as f64).sqrt()
}

/// The output, and the logarithm of each row's sum, `[batch * heads * T_q]`.
pub(super) fn forward(q: &Tensor, k: &Tensor, v: &Tensor, shape: &Shape) -> Result<(Tensor, Tensor)> {
    let rows = shape.batch * shape.heads * shape.queries;
    for_float!(q, NAME, T => {
        let (mut out, mut lse) = (Buffer::<T>::unspecified(q.elements()), Buffer::<T>::unspecified(rows));
        let of_queries = |data| Heads::contiguous(data, shape.queries, shape.heads, shape.head_dim);
        let of_keys = |data| Heads::contiguous(data, shape.keys, shape.kv_heads, shape.head_dim);
        let (q_heads, k_heads, v_heads) = (of_queries(q.data::<T>()?), of_keys(k.data::<T>()?), of_keys(v.data::<T>()?));
        tiles::forward(precision(), *shape, scale(shape) as T, q_heads, k_heads, v_heads, &mut out, &mut lse);
        Ok((Tensor::from_buffer(out, q.shape())?, Tensor::from_buffer(lse, [rows])?))
    })
}

/// The wanted gradients of `q`, `k` and `v`.
pub(super) fn backward(
    [q, k, v]: [&Tensor; 3],
    shape: &Shape,
    out: &Tensor,
    lse: &Tensor,
    g: &Tensor,
    wanted: [bool; 3],
) -> Result<[Option<Tensor>; 3]> {
    for_float!(q, NAME, T => {
        let buffer = |wanted: bool, like: &Tensor| wanted.then(|| Buffer::<T>::unspecified(like.elements()));
        let (mut d_q, mut d_k, mut d_v) = (buffer(wanted[0], q), buffer(wanted[1], k), buffer(wanted[2], v));
        let of_queries = |data| Heads::contiguous(data, shape.queries, shape.heads, shape.head_dim);
        let of_keys = |data| Heads::contiguous(data, shape.keys, shape.kv_heads, shape.head_dim);
        tiles::backward(
            precision(),
            *shape,
            scale(shape) as T,
            [
                of_queries(q.data::<T>()?),
                of_keys(k.data::<T>()?),
                of_keys(v.data::<T>()?),
                of_queries(out.data::<T>()?),
                of_queries(g.data::<T>()?),
            ],
            lse.data()?,
            Gradients { q: d_q.as_deref_mut(), k: d_k.as_deref_mut(), v: d_v.as_deref_mut() },
        );
        let finish = |d: Option<Buffer<T>>, like: &Tensor| d.map(|d| Tensor::from_buffer(d, like.shape())).transpose();
        Ok([finish(d_q, q)?, finish(d_k, k)?, finish(d_v, v)?])
    })
}
