//! Products of activations, or gradients, with a weight.

use super::weight::Weight;
#[cfg(target_arch = "x86_64")]
use crate::kernels::gemm::bf16::DotProducts;
use crate::kernels::rounding::round;
use crate::kernels::simd::vectorized;
use crate::kernels::{Accumulate, Mat, Real, gemm};
use hankel_core::{Buffer, DType, parallel};

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
        return by_dot_products(dot, alpha, a, weight, how, out, out_stride);
    }
    gemm(alpha, a.with_data(&rounded(a.data())), weight, how, out, out_stride);
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
fn by_dot_products<T: Real>(
    dot: DotProducts,
    alpha: T,
    a: Mat<T>,
    weight: &Weight<T>,
    how: Accumulate<T>,
    out: &mut [T],
    out_stride: usize,
) {
    assert_eq!(T::ELEMENT, DType::F32, "a product in bf16 is one of f32 tensors");
    let single = bytemuck::cast_slice::<T, f32>;
    let how = match how {
        Accumulate::Overwrite => Accumulate::Overwrite,
        Accumulate::Add => Accumulate::Add,
        Accumulate::Bias(bias) => Accumulate::Bias(single(bias)),
        Accumulate::Onto(base, bias) => Accumulate::Onto(base.with_data(single(base.data())), bias.map(single)),
    };
    let a = a.with_data(single(a.data()));
    gemm(alpha.f64() as f32, a, &weight.in_pairs(dot), how, bytemuck::cast_slice_mut(out), out_stride);
}
