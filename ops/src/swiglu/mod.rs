//! Gated unit: `y = silu(gate) * up`, `silu(x) = x / (1 + exp(-x))` (Shazeer, 2020).
//!
//! `gate` and `up` of one shape. With `p = sigmoid(gate)`: `d up = g gate p`, `d gate = g up p (1 + gate (1 - p))`.

#[doc(hidden)]
pub mod cases;

use crate::check::{self, for_float};
use crate::kernels::elementary::Elementary;
use crate::kernels::simd::vectorized;
use hankel_core::{Buffer, Result, Tensor, parallel};

/// `silu(gate) * up`, element by element.
///
/// # Errors
/// When shapes or element types differ.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    check::shape("swiglu", "up", up, gate.shape())?;
    check::dtype("swiglu", "up", up, gate.dtype())?;
    for_float!(gate, "swiglu", T => {
        let (a, b) = (gate.data::<T>()?, up.data::<T>()?);
        let mut out = Buffer::<T>::unspecified(a.len());
        parallel::for_rows(&mut out, 1, |first, piece| {
            vectorized(|| {
                for ((y, &a), &b) in piece.iter_mut().zip(&a[first..]).zip(&b[first..]) {
                    *y = a * a.sigmoid() * b;
                }
            });
        });
        let (saved_gate, saved_up) = (gate.detach(), up.detach());
        Tensor::from_buffer(out, gate.shape())?.from_operator("swiglu", &[gate, up], move |g, wanted| {
            let (a, b, g) = (saved_gate.data::<T>()?, saved_up.data::<T>()?, g.data::<T>()?);
            let gradient = |f: fn(T, T) -> T| {
                let mut out = Buffer::<T>::unspecified(a.len());
                parallel::for_rows(&mut out, 1, |first, piece| {
                    vectorized(|| {
                        for (i, x) in piece.iter_mut().enumerate() {
                            *x = g[first + i] * f(a[first + i], b[first + i]);
                        }
                    });
                });
                Tensor::from_buffer(out, saved_gate.shape())
            };
            let d_gate = wanted[0].then(|| {
                gradient(|a, b| {
                    let p = a.sigmoid();
                    b * p * (1.0 + a * (1.0 - p))
                })
            });
            let d_up = wanted[1].then(|| gradient(|a, _| a * a.sigmoid()));
            Ok(vec![d_gate.transpose()?, d_up.transpose()?])
        })
    })
}
