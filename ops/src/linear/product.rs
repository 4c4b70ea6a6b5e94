//! Products of activations, or gradients, with a weight.

use super::weight::Weight;
#[cfg(target_arch = "x86_64")]
use crate::kernels::gemm::bf16::{DotProducts, Rounded};
#[cfg(target_arch = "x86_64")]
use crate::kernels::gemm::gemm_prepared;
use crate::kernels::rounding::round;
use crate::kernels::simd::vectorized;
use crate::kernels::{Accumulate, Mat, Real, gemm};
#[cfg(target_arch = "x86_64")]
use hankel_core::DType;
use hankel_core::{Buffer, Result, Tensor, parallel};

/// `out (+)= alpha A W` for a weight or its transpose, in the precision that the weight was asked for in.
///
/// In `bf16` both operands are rounded. A processor with dot products of `bf16` multiplies them so; any other one rounds and
/// multiplies in `f32`.
///
/// # Panics
/// When the shapes do not fit: that is the calling operator's to check.
pub(crate) fn product<T: Real>(
    alpha: T,
    a: Mat<T>,
    weight: &Weight<T>,
    how: Accumulate<T>,
    out: &mut [T],
    out_stride: usize,
) {
    if !weight.is_rounded() {
        return gemm(alpha, a, weight, how, out, out_stride);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(dot) = DotProducts::detect() {
        let left = in_pairs(dot, a);
        return by_dot_products(dot, alpha, &left, [a.rows(), a.cols()], weight, how, out, out_stride);
    }
    gemm(alpha, a.with_data(&rounded(a.data())), weight, how, out, out_stride);
}

/// As [`product`], of the rows of a tensor, which keeps its rounded elements where it was asked to.
///
/// # Errors
/// When the elements of `x` are of another type.
///
/// # Panics
/// When the shapes do not fit.
pub(super) fn product_of<T: Real>(
    alpha: T,
    x: &Tensor,
    weight: &Weight<T>,
    how: Accumulate<T>,
    out: &mut [T],
    out_stride: usize,
) -> Result<()> {
    let (rows, cols) = (x.shape().rows(), x.shape().last());
    let a = Mat::new(x.data()?, rows, cols);
    if !weight.is_rounded() {
        gemm(alpha, a, weight, how, out, out_stride);
        return Ok(());
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(dot) = DotProducts::detect() {
        let left = x.converted(|| Ok(in_pairs(dot, a)))?;
        by_dot_products(dot, alpha, &left, [rows, cols], weight, how, out, out_stride);
        return Ok(());
    }
    let left = x.converted(|| Ok(rounded(a.data())))?;
    gemm(alpha, a.with_data(&left), weight, how, out, out_stride);
    Ok(())
}

/// The elements rounded to `bf16`.
pub(super) fn rounded<T: Real>(x: &[T]) -> Buffer<T> {
    let mut copy = Buffer::unspecified(x.len());
    parallel::for_rows(&mut copy, 1, |first, piece| {
        vectorized(
            #[inline(always)]
            || {
                piece.copy_from_slice(&x[first..first + piece.len()]);
                round(piece);
            },
        );
    });
    copy
}

#[cfg(target_arch = "x86_64")]
fn in_pairs<T: Real>(dot: DotProducts, a: Mat<T>) -> Rounded {
    assert_eq!(T::ELEMENT, DType::F32, "a product in bf16 is one of f32 tensors");
    Rounded::new(dot, a.with_data(bytemuck::cast_slice(a.data())))
}

#[cfg(target_arch = "x86_64")]
fn by_dot_products<T: Real>(
    dot: DotProducts,
    alpha: T,
    left: &Rounded,
    size: [usize; 2],
    weight: &Weight<T>,
    how: Accumulate<T>,
    out: &mut [T],
    out_stride: usize,
) {
    let single = bytemuck::cast_slice::<T, f32>;
    let how = match how {
        Accumulate::Overwrite => Accumulate::Overwrite,
        Accumulate::Add => Accumulate::Add,
        Accumulate::Bias(bias) => Accumulate::Bias(single(bias)),
        Accumulate::Onto(base, bias) => Accumulate::Onto(base.with_data(single(base.data())), bias.map(single)),
    };
    let (alpha, out) = (alpha.f64() as f32, bytemuck::cast_slice_mut(out));
    gemm_prepared(alpha, left, size, &weight.in_pairs(dot), how, out, out_stride);
}
