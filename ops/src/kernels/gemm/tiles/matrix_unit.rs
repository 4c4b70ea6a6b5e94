//! Products of operands rounded to `bf16`, by the processor's matrix unit.

use super::{Packed, Pairs, Products, Rounded};
use crate::kernels::gemm::amx::{self, Panel, Registers};
use crate::kernels::gemm::bf16::{DotProducts, PANELS, interleave, round_rows};
use crate::kernels::gemm::micro::Target;
use crate::kernels::gemm::{Accumulate, Mat, extent};
use crate::kernels::transpose::transpose;
use pulp::Simd;
use std::ops::Range;

/// Pairs of steps as in [`Pairs`].
#[derive(Clone, Copy)]
pub(crate) struct MatrixUnit {
    dot: DotProducts,
}

/// A left factor: rows of pairs, in memory as many and as long as whole registers.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    data: &'a [u32],
    rows: usize,
    /// Steps, of which there are half as many pairs.
    cols: usize,
}

/// Pairs from row to row of a left factor of `cols` steps.
#[inline(always)]
fn stride(cols: usize) -> usize {
    cols.div_ceil(2).next_multiple_of(amx::SIDE)
}

impl MatrixUnit {
    /// `None` without one.
    pub fn detect() -> Option<Self> {
        DotProducts::detect().filter(|dot| dot.has_matrix_unit()).map(|dot| MatrixUnit { dot })
    }
}

impl Products<f32> for MatrixUnit {
    type Packed = u32;
    type Left<'a> = Left<'a>;

    #[inline(always)]
    fn strip_rows<S: Simd>() -> usize {
        amx::ROWS
    }

    #[inline(always)]
    fn steps(k: usize) -> usize {
        Pairs::steps(k)
    }

    #[inline(always)]
    fn room(rows: usize, cols: usize) -> usize {
        amx::rows_in_memory(rows) * stride(cols)
    }

    #[inline(always)]
    fn pack<S: Simd>(self, b: Mat<f32>, out: &mut [u32]) {
        Pairs(self.dot).pack::<S>(b, out);
    }

    #[inline(always)]
    fn round(self, x: &mut [f32]) {
        Rounded.round(x);
    }

    #[inline(always)]
    fn left<'a>(self, a: Mat<'a, f32>, room: &'a mut [u32]) -> Left<'a> {
        let (rows, cols) = (a.rows(), a.cols());
        let (pairs, stride) = (cols.div_ceil(2), stride(cols));
        let room = &mut room[..<Self as Products<f32>>::room(rows, cols)];
        if a.is_row_major() {
            if pairs > 0 {
                round_rows(self.dot, a, room, stride);
            }
            return Left { data: room, rows, cols };
        }
        let steps = a.t();
        for first_pair in (0..pairs).step_by(amx::SIDE) {
            for first in (0..rows).step_by(amx::SIDE) {
                let count = amx::SIDE.min(rows - first);
                let mut square = [0; amx::SIDE * amx::SIDE];
                for (p, out) in (first_pair..pairs).zip(square.chunks_exact_mut(amx::SIDE)) {
                    let of_step = |step| &steps.row(step)[first..first + count];
                    let odd = (2 * p + 1 < cols).then(|| of_step(2 * p + 1));
                    interleave(self.dot, of_step(2 * p), odd, &mut out[..count]);
                }
                transpose(&square, amx::SIDE, &mut room[first * stride + first_pair..], stride, count);
            }
        }
        Left { data: room, rows, cols }
    }

    #[inline(always)]
    fn product<S: Simd>(
        self,
        _: S,
        alpha: f32,
        a: Left<'_>,
        b: Packed<u32>,
        add: bool,
        out: &mut [f32],
        out_stride: usize,
        k_of: impl Fn(usize, usize) -> Range<usize>,
    ) {
        assert!(a.cols <= b.k && extent(a.rows, b.n, out_stride) <= out.len());
        let how = if add { Accumulate::Add } else { Accumulate::Overwrite };
        let stride = stride(a.cols);
        // SAFETY: the unit is there, or `self` would not be.
        let registers = unsafe { Registers::set_up() };
        let mut rest = b.data;
        for (column, width) in PANELS.columns(b.n) {
            let (panel, after) = rest.split_at(b.k.div_ceil(2) * width);
            rest = after;
            for i in (0..a.rows).step_by(amx::ROWS) {
                let rows = amx::ROWS.min(a.rows - i);
                let k = k_of(i, rows);
                let k = k.start.min(a.cols)..k.end.min(a.cols);
                if k.is_empty() && add {
                    continue;
                }
                // From whole registers on.
                let first = k.start / 2 / amx::SIDE * amx::SIDE;
                let pairs = first..k.end.div_ceil(2).max(first);
                let panel = Panel::new(&panel[pairs.start * width..pairs.end * width], width, pairs.len());
                // SAFETY: the left factor has these rows and pairs, as `left` made it, and whole registers of rows; the output holds its rows.
                unsafe {
                    let data = a.data.as_ptr().add(i * stride + first);
                    let data_out = out.as_mut_ptr().add(i * out_stride + column);
                    let to = Target { data: data_out, row_stride: out_stride, cols: width.min(b.n - column) };
                    panel.multiply(&registers, alpha, data, stride, rows, how, to);
                }
            }
        }
    }
}
