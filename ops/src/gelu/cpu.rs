//! Element by element.

use super::Form;
use crate::dispatch::for_float;
use crate::kernels::elementary::Elementary;
use crate::kernels::simd::vectorized;
use hankel_core::parallel::{self, GRAIN};
use hankel_core::{Buffer, Result, Tensor};
use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

/// The output, and what the backward pass takes: the slopes, which come from the same exponential.
pub(super) fn forward(form: Form, x: &Tensor, learns: bool) -> Result<(Tensor, Tensor)> {
    for_float!(x, form.name(), T => match form {
        Form::Exact => apply::<T, false>(x, learns),
        Form::Tanh => apply::<T, true>(x, learns),
    })
}

fn apply<T: Elementary, const TANH: bool>(x: &Tensor, learns: bool) -> Result<(Tensor, Tensor)> {
    let source = x.data::<T>()?;
    let mut y = Buffer::<T>::unspecified(source.len());
    if !learns || source.is_empty() {
        parallel::for_rows(&mut y, 1, |first, y| {
            vectorized(
                #[inline(always)]
                || values::<T, TANH>(&source[first..], y),
            );
        });
        return Ok((Tensor::from_buffer(y, x.shape())?, x.detach()));
    }
    let mut slopes = Buffer::<T>::unspecified(source.len());
    parallel::for_paired_chunks((&mut y, GRAIN), (&mut slopes, GRAIN), |i, y, slopes| {
        vectorized(
            #[inline(always)]
            || values_and_slopes::<T, TANH>(&source[i * GRAIN..], y, slopes),
        );
    });
    Ok((Tensor::from_buffer(y, x.shape())?, Tensor::from_buffer(slopes, x.shape())?))
}

/// Written over `g`: these are the widest gradients of a transformer, and all that the backward pass needs still exists then.
pub(super) fn backward(form: Form, slopes: &Tensor, mut g: Tensor) -> Result<Tensor> {
    for_float!(g, form.name(), T => {
        let slopes = slopes.data::<T>()?;
        parallel::for_rows(g.data_mut()?, 1, |first, g| vectorized(#[inline(always)] || multiply(g, &slopes[first..])));
        Ok(g)
    })
}

/// What `x` is multiplied with, and the slope of the product.
#[inline(always)]
fn weight<T: Elementary, const TANH: bool>(x: T) -> (T, T) {
    if TANH { gate(x) } else { gaussian(x) }
}

#[inline(always)]
fn gaussian<T: Elementary>(x: T) -> (T, T) {
    let (below, density) = x.gaussian();
    (below, x.mul_add(density, below))
}

/// `2 sqrt(2 / pi)`, and that times 0.044715.
const FACTORS: [f64; 2] = [FRAC_2_SQRT_PI * SQRT_2, FRAC_2_SQRT_PI * SQRT_2 * 0.044_715];
/// Beyond it on either side the sigmoid is 0 or 1 in double precision, and its argument does not overflow.
const FAR: f64 = 30.0;

#[inline(always)]
fn gate<T: Elementary>(x: T) -> (T, T) {
    let [linear, cubic] = FACTORS.map(T::of);
    let near = x.max(T::of(-FAR)).min(T::of(FAR));
    let square = near * near;
    let s = (near * square.mul_add(cubic, linear)).sigmoid();
    (s, (x * s * (T::one() - s)).mul_add(square.mul_add(T::of(3.0) * cubic, linear), s))
}

#[inline(always)]
fn values<T: Elementary, const TANH: bool>(x: &[T], y: &mut [T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x * weight::<T, TANH>(x).0;
    }
}

#[inline(always)]
fn values_and_slopes<T: Elementary, const TANH: bool>(x: &[T], y: &mut [T], slopes: &mut [T]) {
    for ((y, slope), &x) in y.iter_mut().zip(slopes).zip(x) {
        let (w, d) = weight::<T, TANH>(x);
        *y = x * w;
        *slope = d;
    }
}

#[inline(always)]
fn multiply<T: Elementary>(g: &mut [T], slopes: &[T]) {
    for (g, &slope) in g.iter_mut().zip(slopes) {
        *g *= slope;
    }
}
