//! Products of small blocks inside a kernel that already runs with the vectors of the processor: attention's tiles.

#[cfg(target_arch = "x86_64")]
mod matrix_unit;
#[cfg(target_arch = "x86_64")]
mod pairs;
mod rounded;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
pub(crate) use matrix_unit::MatrixUnit;
#[cfg(target_arch = "x86_64")]
pub(crate) use pairs::Pairs;
pub(crate) use rounded::Rounded;

use super::micro::{Strip, Target, strip, tile_shape};
use super::panels::PanelShape;
use super::{Accumulate, Mat, RightFactor, extent};
use crate::kernels::simd::Real;
use hankel_core::Element;
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

/// How products of tiles are made: [`Full`], or of operands rounded to `bf16` ([`MatrixUnit`], [`Pairs`], [`Rounded`]).
pub(crate) trait Products<T: Real>: Copy + Send + Sync {
    /// An element of a packed factor.
    type Packed: Element;
    /// A left factor.
    type Left<'a>: Copy;

    /// Rows that are multiplied together.
    #[inline(always)]
    fn strip_rows<S: Simd>() -> usize {
        tile_rows::<S>()
    }

    /// Rows of packed elements for a sum of `k` steps. Blocks of an even number of steps may be packed one after the other.
    fn steps(k: usize) -> usize;

    /// Packed elements in such a row of a right factor of `n` columns.
    #[inline(always)]
    fn cols<S: Simd>(n: usize) -> usize {
        n.next_multiple_of(T::lanes::<S>())
    }

    /// Packs all of `b`, whose rows or columns lie without gaps, into the first `steps(b.rows()) * cols(b.cols())` elements of `out`.
    fn pack<S: Simd>(self, b: Mat<T>, out: &mut [Self::Packed]);

    /// Elements that [`Products::left`] takes for a factor of `rows` rows of `cols` columns.
    #[inline(always)]
    fn room(rows: usize, cols: usize) -> usize {
        rows * Self::steps(cols)
    }

    /// Rounds `x` as `pack` and `left` round.
    fn round(self, x: &mut [T]);

    /// `a` as a left factor, in the first elements of `room` if it has to be copied. One stride of `a` must be 1.
    fn left<'a>(self, a: Mat<'a, T>, room: &'a mut [Self::Packed]) -> Self::Left<'a>;

    /// `out[i, j] (+)= alpha sum over p in k_of(strip) of a[i, p] b[p, j]` for the rows of `a`, which has at most as many columns as `b`
    /// has rows.
    ///
    /// `k_of(first, rows)` says which part of the sum is not zero for a strip of rows; steps before and after it may be added.
    fn product<S: Simd>(
        self,
        simd: S,
        alpha: T,
        a: Self::Left<'_>,
        b: Packed<Self::Packed>,
        add: bool,
        out: &mut [T],
        out_stride: usize,
        k_of: impl Fn(usize, usize) -> Range<usize>,
    );
}

/// A packed right factor.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a, P> {
    /// As [`Products::pack`] wrote it.
    pub data: &'a [P],
    /// Its rows.
    pub k: usize,
    /// Its columns, or a multiple of the tile's below.
    pub n: usize,
}

/// Products of the operands as they are.
#[derive(Clone, Copy)]
pub(crate) struct Full;

impl<T: Real> Products<T> for Full {
    type Packed = T;
    type Left<'a> = Mat<'a, T>;

    #[inline(always)]
    fn steps(k: usize) -> usize {
        k
    }

    #[inline(always)]
    fn pack<S: Simd>(self, b: Mat<T>, out: &mut [T]) {
        b.pack(0..b.rows, 0..b.cols, PanelShape::of::<S, T>(), out);
    }

    #[inline(always)]
    fn round(self, _: &mut [T]) {}

    #[inline(always)]
    fn left<'a>(self, a: Mat<'a, T>, _: &'a mut [T]) -> Mat<'a, T> {
        a
    }

    #[inline(always)]
    fn product<S: Simd>(
        self,
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
        assert!(a.cols <= b.k && (a.col_stride == 1 || a.row_stride == 1));
        assert!(extent(a.rows, b.n, out_stride) <= out.len());
        let how = if add { Accumulate::Add } else { Accumulate::Overwrite };
        let mut rest = b.data;
        for (column, width) in PanelShape::of::<S, T>().columns(b.n) {
            let (panel, after) = rest.split_at(b.k * width);
            rest = after;
            for i in (0..a.rows).step_by(mr) {
                let rows = mr.min(a.rows - i);
                let k = k_of(i, rows);
                let k = k.start.min(a.cols)..k.end.min(a.cols);
                if k.is_empty() && add {
                    continue;
                }
                let panel = &panel[k.start * width..k.end.max(k.start) * width];
                let data = a.data[i * a.row_stride + k.start * a.col_stride..].as_ptr();
                let from = Strip { data, row_stride: a.row_stride, k_stride: a.col_stride };
                let cols = width.min(b.n - column);
                // SAFETY: `Mat` holds its rows and columns, of which these are some; the output holds the rows of `a`.
                unsafe {
                    let to =
                        Target { data: out.as_mut_ptr().add(i * out_stride + column), row_stride: out_stride, cols };
                    strip(simd, rows, from, panel, width / lanes, alpha, how, to);
                }
            }
        }
    }
}
