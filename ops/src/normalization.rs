//! The gradients of normalisations of rows, on the CPU.

use crate::kernels::Real;
use crate::kernels::simd::vectorized;
use hankel_core::{Buffer, Result, Tensor, parallel};

/// What the gradient of a row of `x` needs of all its elements.
pub(crate) trait RowGradient<T>: Sized {
    fn of(x: &[T], weight: &[T], eps: T, g: &[T]) -> Self;

    /// The gradient of an element.
    fn gradient(&self, x: T, w: T, g: T) -> T;

    /// The rows whose sum is the gradient of the weight.
    fn weight_rows(x: &[T], width: usize, g: &[T], eps: T, rows: &mut [T]);
}

/// The gradient of `x`, in the memory of `g` or added to `sum`, and if wanted the rows whose sum is the gradient of the weight.
pub(crate) fn backward<T: Real, R: RowGradient<T>>(
    x: &Tensor,
    weight: &Tensor,
    eps: T,
    mut g: Tensor,
    sum: Option<Tensor>,
    of_weight: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let width = x.shape().last();
    let (source, weight) = (x.data::<T>()?, weight.data::<T>()?);
    let rows = if of_weight {
        let (mut rows, g) = (Buffer::<T>::unspecified(source.len()), g.data::<T>()?);
        parallel::for_rows(&mut rows, width, |first, rows| {
            let (source, g) = (&source[first * width..], &g[first * width..]);
            vectorized(
                #[inline(always)]
                || R::weight_rows(source, width, g, eps, rows),
            );
        });
        Some(Tensor::from_buffer(rows, x.shape())?)
    } else {
        None
    };
    if let Some(mut sum) = sum {
        let g = g.data::<T>()?;
        parallel::for_rows(sum.data_mut::<T>()?, width, |first, sum| {
            let (source, g) = (&source[first * width..], &g[first * width..]);
            vectorized(
                #[inline(always)]
                || add_input_rows::<T, R>(source, weight, eps, g, sum),
            );
        });
        return Ok((sum, rows));
    }
    parallel::for_rows(g.data_mut::<T>()?, width, |first, g| {
        vectorized(
            #[inline(always)]
            || input_rows::<T, R>(&source[first * width..], weight, eps, g),
        );
    });
    Ok((g, rows))
}

#[inline(always)]
fn input_rows<T: Real, R: RowGradient<T>>(x: &[T], weight: &[T], eps: T, g: &mut [T]) {
    let width = weight.len();
    for (x, g) in x.chunks_exact(width).zip(g.chunks_exact_mut(width)) {
        let row = R::of(x, weight, eps, g);
        for ((g, &x), &w) in g.iter_mut().zip(x).zip(weight) {
            *g = row.gradient(x, w, *g);
        }
    }
}

#[inline(always)]
fn add_input_rows<T: Real, R: RowGradient<T>>(x: &[T], weight: &[T], eps: T, g: &[T], sum: &mut [T]) {
    let width = weight.len();
    for ((x, g), sum) in x.chunks_exact(width).zip(g.chunks_exact(width)).zip(sum.chunks_exact_mut(width)) {
        let row = R::of(x, weight, eps, g);
        for (((sum, &g), &x), &w) in sum.iter_mut().zip(g).zip(x).zip(weight) {
            *sum += row.gradient(x, w, g);
        }
    }
}
