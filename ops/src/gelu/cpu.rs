//! Element by element.

use crate::dispatch::for_float;
use crate::kernels::elementary::Elementary;
use crate::kernels::simd::vectorized;
use hankel_core::{Buffer, Result, Tensor, parallel};

pub(super) fn forward(x: &Tensor) -> Result<Tensor> {
    for_float!(x, super::NAME, T => {
        let source = x.data::<T>()?;
        let mut y = Buffer::<T>::unspecified(source.len());
        parallel::for_rows(&mut y, 1, |first, y| vectorized(#[inline(always)] || value(&source[first..], y)));
        Tensor::from_buffer(y, x.shape())
    })
}

/// In the memory of `g`: the widest gradients of a transformer are these, when all that the backward pass needs still exists.
pub(super) fn backward(x: &Tensor, mut g: Tensor) -> Result<Tensor> {
    for_float!(x, super::NAME, T => {
        let source = x.data::<T>()?;
        parallel::for_rows(g.data_mut()?, 1, |first, g| {
            vectorized(#[inline(always)] || gradient(&source[first..], g));
        });
        Ok(g)
    })
}

#[inline(always)]
fn value<T: Elementary>(x: &[T], y: &mut [T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x * x.gaussian().0;
    }
}

#[inline(always)]
fn gradient<T: Elementary>(x: &[T], g: &mut [T]) {
    for (g, &x) in g.iter_mut().zip(x) {
        let (below, density) = x.gaussian();
        *g *= x.mul_add(density, below);
    }
}
