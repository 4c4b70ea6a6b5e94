//! Causal attention: `softmax(scale Q K^T + mask) V` for each head, `scale = 1 / sqrt(head_dim)`.
//!
//! `q` `[batch, T_q, heads * head_dim]`, `k` and `v` `[batch, T_k, kv_heads * head_dim]`, as the projections give them; output
//! as `q`. `heads` is a multiple of `kv_heads`: consecutive query heads share one head of keys and values. The queries are
//! the last `T_q` of `T_k` tokens, and query `i` at position `p` sees the keys `p - window < j <= p`. With a `cap`, scores `s` become
//! `cap tanh(s / cap)` before the mask (Gemma 2).
//!
//! Computed in tiles with a running softmax (FlashAttention; Dao et al., 2022): no `T x T` matrix exists, only the causal half is
//! computed, and the logarithm of each row's sum is all that the gradient needs besides inputs and output. With `P` the softmax,
//! `D` the row sums of `dO * O` and `dS = P * (dO V^T - D)`: `dV = P^T dO`, `dQ = scale dS K`, `dK = scale dS^T Q`; with a cap,
//! `dS` is multiplied by `1 - (s / cap)^2` of the capped scores `s`.
//!
//! In `bf16` ([`hankel_core::with_precision`]) the operands of all seven products are rounded on the CPU, as those of products with
//! frozen weights are; sums, maxima, exponentials and `D` are `f32`. In `f16` a GPU
//! computes attention of heads of a multiple of 4 and at most 128 elements by cooperative matrices, where a measurement finds that
//! faster, and any other in `f32`.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
pub mod cpu;
mod gpu;
mod key_values;
#[cfg(any(test, feature = "testing"))]
mod oracle;

pub use key_values::KeyValues;

use crate::check;
use crate::dispatch::on_device;
use cpu::tiles::Shape;
use hankel_core::{Error, Result, Tensor, precision, with_precision};

const NAME: &str = "attention";

/// Numbers of heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Of the queries.
    pub query: usize,
    /// Of keys and values.
    pub key_value: usize,
}

/// What becomes of scores before the softmax.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ScoreSettings {
    /// Keys that a query sees, itself included; all that came before when not given.
    pub window: Option<usize>,
    /// Scores `s` become `cap tanh(s / cap)`.
    pub cap: Option<f64>,
}

impl From<Option<usize>> for ScoreSettings {
    /// A window alone.
    fn from(window: Option<usize>) -> Self {
        ScoreSettings { window, cap: None }
    }
}

fn sizes(q: &Tensor, k: &Tensor, v: &Tensor, heads: Heads, settings: ScoreSettings) -> Result<Shape> {
    let ScoreSettings { window, cap } = settings;
    let fail = |problem: String| Err(Error::shape(NAME, problem));
    let (&[batch, queries, width], &[_, keys, kv_width]) = (&q.shape()[..], &k.shape()[..]) else {
        return fail(format!("expected [batch, T, width], found queries {} and keys {}", q.shape(), k.shape()));
    };
    let Heads { query, key_value } = heads;
    if query == 0 || key_value == 0 || !query.is_multiple_of(key_value) || !width.is_multiple_of(query) {
        return fail(format!(
            "{query} query heads must be a multiple of {key_value} key heads and divide the width {width} of the queries"
        ));
    }
    let head_dim = width / query;
    if kv_width != key_value * head_dim {
        return fail(format!("keys of width {kv_width} for {key_value} heads of {head_dim}"));
    }
    check::input(NAME, "keys", k, &[batch, keys, kv_width], q)?;
    check::input(NAME, "values", v, k.shape(), q)?;
    if queries > keys {
        return fail(format!("{queries} queries for {keys} keys, expected at most as many"));
    }
    if window == Some(0) {
        return Err(Error::invalid(NAME, "a window of 0 tokens: it has to hold 1 at least"));
    }
    if let Some(cap) = cap.filter(|cap| !check::is_cap(*cap)) {
        return Err(Error::invalid(NAME, format!("a cap of {cap}: it has to be a positive number")));
    }
    // A window as long as the sequence hides nothing.
    let window = window.filter(|&window| window < keys);
    Ok(Shape { batch, heads: query, kv_heads: key_value, head_dim, queries, keys, offset: keys - queries, window, cap })
}

/// Causal attention of the last `T_q` tokens to all `T_k`.
///
/// # Errors
/// When shapes, element types or devices do not fit, or a setting is out of range.
pub fn attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    heads: Heads,
    settings: impl Into<ScoreSettings>,
) -> Result<Tensor> {
    let shape = sizes(q, k, v, heads, settings.into())?;
    check::float(NAME, q)?;
    let (out, lse) = on_device!(q, forward(q, k, v, &shape))?;
    let (saved, saved_out, precision) = ([q, k, v].map(Tensor::detach), out.clone(), precision());
    out.from_operator(NAME, &[Some(q), Some(k), Some(v)], move |g, wanted| {
        let ([q, k, v], wanted) = (&saved, [wanted[0], wanted[1], wanted[2]]);
        let gradients =
            with_precision(precision, || on_device!(g, backward([q, k, v], &shape, &saved_out, &lse, &g, wanted)));
        Ok(gradients?.into())
    })
}
