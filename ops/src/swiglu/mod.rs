//! Gated unit: `y = silu(gate) * up`, `silu(x) = x / (1 + exp(-x))` (Shazeer, 2020).
//!
//! `gate` and `up` of one shape. With `p = sigmoid(gate)`: `d up = g gate p`, `d gate = g up p (1 + gate (1 - p))`.

#[doc(hidden)]
pub mod cases;
mod gpu;

use crate::check;
use crate::dispatch::for_float;
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
    if let Some(gpu) = gate.gpu() {
        return gpu::swiglu(gpu, gate, up);
    }
    for_float!(gate, "swiglu", T => {
        let (a, b) = (gate.data::<T>()?, up.data::<T>()?);
        let mut out = Buffer::<T>::unspecified(a.len());
        parallel::for_rows(&mut out, 1, |first, piece| vectorized(#[inline(always)] || value(&a[first..], &b[first..], piece)));
        let (saved_gate, saved_up) = (gate.detach(), up.detach());
        Tensor::from_buffer(out, gate.shape())?.from_operator("swiglu", &[Some(gate), Some(up)], move |g, wanted| {
            let (a, b, g) = (saved_gate.data::<T>()?, saved_up.data::<T>()?, g.data::<T>()?);
            let (mut d_gate, mut d_up) = (None, None);
            if wanted[0] {
                let mut out = Buffer::<T>::unspecified(a.len());
                parallel::for_rows(&mut out, 1, |first, piece| {
                    vectorized(#[inline(always)] || gate_gradient(&a[first..], &b[first..], &g[first..], piece));
                });
                d_gate = Some(Tensor::from_buffer(out, saved_gate.shape())?);
            }
            if wanted[1] {
                let mut out = Buffer::<T>::unspecified(a.len());
                parallel::for_rows(&mut out, 1, |first, piece| vectorized(#[inline(always)] || value(&a[first..], &g[first..], piece)));
                d_up = Some(Tensor::from_buffer(out, saved_up.shape())?);
            }
            Ok(vec![d_gate, d_up])
        })
    })
}

/// `silu(a) b`; with the gradient of the output for `b`, the gradient of `up`.
#[inline(always)]
fn value<T: Elementary>(a: &[T], b: &[T], y: &mut [T]) {
    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
        *y = a * a.sigmoid() * b;
    }
}

#[inline(always)]
fn gate_gradient<T: Elementary>(a: &[T], b: &[T], g: &[T], d: &mut [T]) {
    for (((d, &a), &b), &g) in d.iter_mut().zip(a).zip(b).zip(g) {
        let p = a.sigmoid();
        *d = g * b * p * (T::one() + a * (T::one() - p));
    }
}
