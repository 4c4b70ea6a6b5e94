//! What [`Pairs`](super::pairs::Pairs) multiplies, on processors without its instructions: operands are rounded and multiplied in `f32`.

use super::{Full, Packed, Products};
use crate::kernels::gemm::Mat;
use crate::kernels::rounding::round;
use pulp::Simd;
use std::ops::Range;

/// Products of operands rounded to `bf16`.
#[derive(Clone, Copy)]
pub(crate) struct Rounded;

impl Products<f32> for Rounded {
    type Packed = f32;
    type Left<'a> = Mat<'a, f32>;

    #[inline(always)]
    fn steps(k: usize) -> usize {
        k
    }

    #[inline(always)]
    fn pack<S: Simd>(self, b: Mat<f32>, out: &mut [f32]) {
        Full.pack::<S>(b, out);
        round(&mut out[..b.rows() * <Self as Products<f32>>::cols::<S>(b.cols())]);
    }

    #[inline(always)]
    fn round(self, x: &mut [f32]) {
        round(x);
    }

    #[inline(always)]
    fn left<'a>(self, a: Mat<'a, f32>, room: &'a mut [f32]) -> Mat<'a, f32> {
        let by_rows = a.is_row_major();
        let lines = if by_rows { a } else { a.t() };
        let (count, len) = (lines.rows(), lines.cols());
        let room = &mut room[..count * len];
        for i in 0..count {
            room[i * len..(i + 1) * len].copy_from_slice(lines.row(i));
        }
        round(room);
        let copy = Mat::new(room, count, len);
        if by_rows { copy } else { copy.t() }
    }

    #[inline(always)]
    fn product<S: Simd>(
        self,
        simd: S,
        alpha: f32,
        a: Mat<f32>,
        b: Packed<f32>,
        add: bool,
        out: &mut [f32],
        out_stride: usize,
        k_of: impl Fn(usize, usize) -> Range<usize>,
    ) {
        Full.product(simd, alpha, a, b, add, out, out_stride, k_of);
    }
}
