//! Products of operands rounded to `bf16`, by the dot products of [`bf16`](super::super::bf16).

use super::{Packed, Products, Rounded};
use crate::kernels::gemm::bf16::{DotProducts, PANELS, ROWS, interleave, pack_floats, round_rows, tile_strip};
use crate::kernels::gemm::micro::{Strip, Target};
use crate::kernels::gemm::{Accumulate, Mat, extent};
use pulp::Simd;
use std::ops::Range;

/// Two steps of a sum side by side, an odd last one with a zero.
#[derive(Clone, Copy)]
pub(crate) struct Pairs(pub DotProducts);

/// A left factor: pair `p` of row `i` is `data[i * row_stride + p * pair_stride]`, one of which is 1.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    data: &'a [u32],
    rows: usize,
    /// Steps, of which there are half as many pairs.
    cols: usize,
    row_stride: usize,
    pair_stride: usize,
}

impl Products<f32> for Pairs {
    type Packed = u32;
    type Left<'a> = Left<'a>;

    #[inline(always)]
    fn steps(k: usize) -> usize {
        k.div_ceil(2)
    }

    #[inline(always)]
    fn pack<S: Simd>(self, b: Mat<f32>, out: &mut [u32]) {
        pack_floats(self.0, b, out);
    }

    #[inline(always)]
    fn round(self, x: &mut [f32]) {
        Rounded.round(x);
    }

    #[inline(always)]
    fn left<'a>(self, a: Mat<'a, f32>, room: &'a mut [u32]) -> Left<'a> {
        let (rows, cols) = (a.rows(), a.cols());
        let pairs = cols.div_ceil(2);
        let room = &mut room[..rows * pairs];
        if a.is_row_major() {
            if pairs > 0 {
                round_rows(self.0, a, room, pairs);
            }
            return Left { data: room, rows, cols, row_stride: pairs, pair_stride: 1 };
        }
        let steps = a.t();
        for (p, out) in room.chunks_exact_mut(rows.max(1)).enumerate() {
            let odd = 2 * p + 1;
            interleave(self.0, steps.row(2 * p), (odd < cols).then(|| steps.row(odd)), out);
        }
        Left { data: room, rows, cols, row_stride: 1, pair_stride: rows }
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
        let mut rest = b.data;
        for (column, width) in PANELS.columns(b.n) {
            let (panel, after) = rest.split_at(b.k.div_ceil(2) * width);
            rest = after;
            for i in (0..a.rows).step_by(ROWS) {
                let rows = ROWS.min(a.rows - i);
                let k = k_of(i, rows);
                let k = k.start.min(a.cols)..k.end.min(a.cols);
                if k.is_empty() && add {
                    continue;
                }
                let pairs = k.start / 2..k.end.max(k.start).div_ceil(2);
                let panel = &panel[pairs.start * width..pairs.end * width];
                let data = a.data[i * a.row_stride + pairs.start * a.pair_stride..].as_ptr();
                let from = Strip { data, row_stride: a.row_stride, k_stride: a.pair_stride };
                let cols = width.min(b.n - column);
                // SAFETY: the left factor holds these rows and pairs, as `left` made it; the output holds its rows.
                unsafe {
                    let to =
                        Target { data: out.as_mut_ptr().add(i * out_stride + column), row_stride: out_stride, cols };
                    tile_strip(self.0, rows, from, panel, width, alpha, how, to);
                }
            }
        }
    }
}
