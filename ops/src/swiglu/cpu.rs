//! Element by element.

use crate::dispatch::for_float;
use crate::kernels::elementary::Elementary;
use crate::kernels::simd::vectorized;
use hankel_core::{Buffer, Result, Tensor, parallel};

pub(super) fn forward(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    for_float!(gate, super::NAME, T => {
        let (a, b) = (gate.data::<T>()?, up.data::<T>()?);
        let mut y = Buffer::<T>::unspecified(a.len());
        parallel::for_rows(&mut y, 1, |first, y| vectorized(#[inline(always)] || value(&a[first..], &b[first..], y)));
        Tensor::from_buffer(y, gate.shape())
    })
}

/// The gradient of the gate, where `up` is given, and that of `up`, in the memory of `g`, where it is wanted.
pub(super) fn backward(gate: &Tensor, up: Option<&Tensor>, mut g: Tensor, of_up: bool) -> Result<[Option<Tensor>; 2]> {
    for_float!(gate, super::NAME, T => {
        let a = gate.data::<T>()?;
        let Some(up) = up else {
            let d_up = of_up.then(|| forward(gate, &g)).transpose()?;
            return Ok([None, d_up]);
        };
        let b = up.data::<T>()?;
        let mut d = Buffer::<T>::unspecified(a.len());
        if of_up {
            let grain = parallel::GRAIN;
            parallel::for_paired_chunks((&mut d, grain), (g.data_mut()?, grain), |i, d, g| {
                let (a, b) = (&a[i * grain..], &b[i * grain..]);
                vectorized(#[inline(always)] || gradients(a, b, g, d));
            });
        } else {
            let g = g.data::<T>()?;
            parallel::for_rows(&mut d, 1, |first, d| {
                vectorized(#[inline(always)] || gradient(&a[first..], &b[first..], &g[first..], d));
            });
        }
        Ok([Some(Tensor::from_buffer(d, gate.shape())?), of_up.then_some(g)])
    })
}

#[inline(always)]
fn value<T: Elementary>(a: &[T], b: &[T], y: &mut [T]) {
    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
        *y = a * a.sigmoid() * b;
    }
}

#[inline(always)]
fn gradient<T: Elementary>(a: &[T], b: &[T], g: &[T], d: &mut [T]) {
    for (((d, &a), &b), &g) in d.iter_mut().zip(a).zip(b).zip(g) {
        let p = a.sigmoid();
        *d = g * b * p * (T::one() + a * (T::one() - p));
    }
}

/// As [`gradient`], and the gradient of `b` in the place of `g`.
#[inline(always)]
fn gradients<T: Elementary>(a: &[T], b: &[T], g: &mut [T], d: &mut [T]) {
    for (((d, &a), &b), g) in d.iter_mut().zip(a).zip(b).zip(g) {
        let p = a.sigmoid();
        *d = *g * b * p * (T::one() + a * (T::one() - p));
        *g = a * p * *g;
    }
}
