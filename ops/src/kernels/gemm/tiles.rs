//! Products of small blocks inside a kernel that already runs with the vectors of the processor: attention's tiles.

use super::micro::{Strip, Target, strip, tile_shape};
use super::panels::PanelShape;
use super::{Accumulate, Mat, RightFactor, extent};
use crate::kernels::simd::Real;
use pulp::Simd;
use std::ops::Range;

/// Rows of a register tile: heights of blocks should be a multiple.
#[inline(always)]
pub(crate) fn tile_rows<S: Simd>() -> usize {
    tile_shape::<S>().0
}

/// Columns of a register tile: a packed factor may be cut at multiples of it.
#[inline(always)]
pub(crate) fn tile_cols<S: Simd, T: Real>() -> usize {
    tile_shape::<S>().1 * T::lanes::<S>()
}

/// Elements of a packed right factor of `n` columns, for each of its rows.
#[inline(always)]
pub(crate) fn packed_cols<S: Simd, T: Real>(n: usize) -> usize {
    n.next_multiple_of(T::lanes::<S>())
}

/// Packs all of `b` into the first `b.rows() * packed_cols(b.cols())` elements of `out`.
#[inline(always)]
pub(crate) fn pack<S: Simd, T: Real>(b: Mat<T>, out: &mut [T]) {
    b.pack(0..b.rows, 0..b.cols, PanelShape::of::<S, T>(), out);
}

/// A packed right factor.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a, T> {
    /// As [`pack`] wrote it.
    pub data: &'a [T],
    /// Its rows.
    pub k: usize,
    /// Its columns, or a multiple of the tile's below.
    pub n: usize,
}

/// `out[i, j] (+)= alpha sum over p in k_of(strip) of a[i, p] b[p, j]` for the rows of `a`.
///
/// `k_of(first, rows)` says which part of the sum is not zero for a strip of rows. One stride of `a` must be 1.
#[inline(always)]
pub(crate) fn product<S: Simd, T: Real>(
    simd: S,
    alpha: T,
    a: Mat<T>,
    b: Packed<T>,
    add: bool,
    out: &mut [T],
    out_stride: usize,
    k_of: impl Fn(usize, usize) -> Range<usize>,
) {
    let (mr, _) = tile_shape::<S>();
    let lanes = T::lanes::<S>();
    assert!(a.cols == b.k && (a.col_stride == 1 || a.row_stride == 1));
    assert!(extent(a.rows, b.n, out_stride) <= out.len());
    let how = if add { Accumulate::Add } else { Accumulate::Overwrite };
    let mut rest = b.data;
    for (column, width) in PanelShape::of::<S, T>().columns(b.n) {
        let (panel, after) = rest.split_at(b.k * width);
        rest = after;
        for i in (0..a.rows).step_by(mr) {
            let rows = mr.min(a.rows - i);
            let k = k_of(i, rows);
            let k = k.start.min(b.k)..k.end.min(b.k);
            if k.is_empty() && add {
                continue;
            }
            let panel = &panel[k.start * width..k.end.max(k.start) * width];
            let data = a.data[i * a.row_stride + k.start * a.col_stride..].as_ptr();
            let from = Strip { data, row_stride: a.row_stride, k_stride: a.col_stride };
            let cols = width.min(b.n - column);
            // SAFETY: `Mat` holds its rows and columns, of which these are some; the output holds the rows of `a`.
            unsafe {
                let to = Target { data: out.as_mut_ptr().add(i * out_stride + column), row_stride: out_stride, cols };
                strip(simd, rows, from, panel, width / lanes, alpha, how, to);
            }
        }
    }
}
