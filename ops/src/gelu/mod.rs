//! Gaussian error linear unit, exact: `y = x Φ(x)`, with `Φ` the normal distribution function (Hendrycks and Gimpel, 2016).
//!
//! Any shape. The gradient is `g (Φ(x) + x φ(x))`, with `φ` the density.

#[doc(hidden)]
pub mod cases;
mod gpu;

use crate::dispatch::for_float;
use crate::kernels::elementary::Elementary;
use crate::kernels::simd::vectorized;
use hankel_core::{Buffer, Result, Tensor, autograd, parallel};

/// `x Φ(x)`, element by element.
///
/// # Errors
/// When the element type is not `f32` or `f64`.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    if let Some(gpu) = x.gpu() {
        return gpu::gelu(gpu, x);
    }
    for_float!(x, "gelu", T => {
        let source = x.data::<T>()?;
        let mut out = Buffer::<T>::unspecified(source.len());
        parallel::for_rows(&mut out, 1, |first, piece| vectorized(#[inline(always)] || value(&source[first..], piece)));
        let saved = autograd::needs_gradient(x).then(|| x.detach());
        Tensor::from_buffer(out, x.shape())?.from_operator("gelu", &[Some(x)], move |mut g, _| {
            let Some(x) = saved else { return Ok(vec![None]) };
            // In place: the widest gradients of a transformer are these, when all that the backward pass needs still exists.
            let source = x.data::<T>()?;
            parallel::for_rows(g.data_mut::<T>()?, 1, |first, piece| {
                vectorized(#[inline(always)] || gradient(&source[first..], piece));
            });
            Ok(vec![Some(g)])
        })
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
