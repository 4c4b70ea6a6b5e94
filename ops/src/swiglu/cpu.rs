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

pub(super) fn gate_gradient(gate: &Tensor, up: &Tensor, g: &Tensor) -> Result<Tensor> {
    for_float!(gate, super::NAME, T => {
        let (a, b, g) = (gate.data::<T>()?, up.data::<T>()?, g.data::<T>()?);
        let mut d = Buffer::<T>::unspecified(a.len());
        parallel::for_rows(&mut d, 1, |first, d| {
            vectorized(#[inline(always)] || gradient(&a[first..], &b[first..], &g[first..], d));
        });
        Tensor::from_buffer(d, gate.shape())
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
