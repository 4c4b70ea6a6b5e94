//! Element by element.

use crate::dispatch::for_float;
use crate::kernels::elementary::Elementary;
use crate::kernels::simd::vectorized;
use hankel_core::parallel::{self, GRAIN};
use hankel_core::{Buffer, Result, Tensor};
use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

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

/// `2 sqrt(2 / pi)`, and that times 0.044715.
const FACTORS: [f64; 2] = [FRAC_2_SQRT_PI * SQRT_2, FRAC_2_SQRT_PI * SQRT_2 * 0.044_715];
/// Beyond it on either side the sigmoid is 0 or 1 in double precision, and its argument does not overflow.
const FAR: f64 = 30.0;

/// The sigmoid of `u`, and the derivative of `u`.
#[inline(always)]
fn gate<T: Elementary>(x: T) -> (T, T) {
    let [linear, cubic] = FACTORS.map(T::of);
    let near = x.max(T::of(-FAR)).min(T::of(FAR));
    let square = near * near;
    ((near * square.mul_add(cubic, linear)).sigmoid(), square.mul_add(T::of(3.0) * cubic, linear))
}

#[inline(always)]
fn values<T: Elementary>(x: &[T], y: &mut [T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x * gate(x).0;
    }
}

#[inline(always)]
fn values_and_slopes<T: Elementary>(x: &[T], y: &mut [T], slopes: &mut [T]) {
    for ((y, slope), &x) in y.iter_mut().zip(slopes).zip(x) {
        let (s, d_u) = gate(x);
        *y = x * s;
        *slope = (x * s * (T::one() - s)).mul_add(d_u, s);
    }
}

#[inline(always)]
fn multiply<T: Elementary>(g: &mut [T], slopes: &[T]) {
    for (g, &slope) in g.iter_mut().zip(slopes) {
        *g *= slope;
    }
}
