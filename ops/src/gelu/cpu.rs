//! Element by element.

use crate::dispatch::for_float;
use crate::kernels::elementary::Elementary;
use crate::kernels::simd::vectorized;
use hankel_core::parallel::{self, GRAIN};
use hankel_core::{Buffer, Result, Tensor};

/// The output, and what the backward pass takes: the slopes, which come from the same exponential.
pub(super) fn forward(x: &Tensor, learns: bool) -> Result<(Tensor, Tensor)> {
    for_float!(x, super::NAME, T => {
        let source = x.data::<T>()?;
        let mut y = Buffer::<T>::unspecified(source.len());
        if !learns || source.is_empty() {
            parallel::for_rows(&mut y, 1, |first, y| vectorized(#[inline(always)] || values(&source[first..], y)));
            return Ok((Tensor::from_buffer(y, x.shape())?, x.detach()));
        }
        let mut slopes = Buffer::<T>::unspecified(source.len());
        parallel::for_paired_chunks((&mut y, GRAIN), (&mut slopes, GRAIN), |i, y, slopes| {
            vectorized(#[inline(always)] || values_and_slopes(&source[i * GRAIN..], y, slopes));
        });
        Ok((Tensor::from_buffer(y, x.shape())?, Tensor::from_buffer(slopes, x.shape())?))
    })
}

/// In the memory of `g`: the widest gradients of a transformer are these, when all that the backward pass needs still exists.
pub(super) fn backward(slopes: &Tensor, mut g: Tensor) -> Result<Tensor> {
    for_float!(g, super::NAME, T => {
        let slopes = slopes.data::<T>()?;
        parallel::for_rows(g.data_mut()?, 1, |first, g| vectorized(#[inline(always)] || multiply(g, &slopes[first..])));
        Ok(g)
    })
}

#[inline(always)]
fn values<T: Elementary>(x: &[T], y: &mut [T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x * x.gaussian().0;
    }
}

#[inline(always)]
fn values_and_slopes<T: Elementary>(x: &[T], y: &mut [T], slopes: &mut [T]) {
    for ((y, slope), &x) in y.iter_mut().zip(slopes).zip(x) {
        let (below, density) = x.gaussian();
        *y = x * below;
        *slope = x.mul_add(density, below);
    }
}

#[inline(always)]
fn multiply<T: Elementary>(g: &mut [T], slopes: &[T]) {
    for (g, &slope) in g.iter_mut().zip(slopes) {
        *g *= slope;
    }
}
