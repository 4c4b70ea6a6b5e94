//! Copies of the factors in the order in which the tiles read them.

use super::micro::MAX_ROWS;
use super::panels::PanelShape;
use super::{Mat, ROWS_AHEAD};
use crate::kernels::simd::{Real, prefetch};
use crate::kernels::transpose::{SIDE, transpose};
use std::ops::Range;

/// The right factor of a product, from any storage: it is asked for panels, for which it may widen or dequantise elements.
pub trait RightFactor<T>: Sync {
    /// Rows: the length of the sum.
    fn rows(&self) -> usize;
    /// Columns of the output.
    fn cols(&self) -> usize;
    /// Columns that are had together for little more than one.
    fn together(&self) -> usize {
        1
    }
    /// Writes rows `k` of columns `j` into `out`, one panel after the other, each of them row-major and as wide as `shape` says;
    /// zeros after the last column.
    fn pack(&self, k: Range<usize>, j: Range<usize>, shape: PanelShape, out: &mut [T]);
}

impl<T: Real> RightFactor<T> for Mat<'_, T> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn cols(&self) -> usize {
        self.cols
    }

    #[inline(always)]
    fn pack(&self, k: Range<usize>, j: Range<usize>, shape: PanelShape, out: &mut [T]) {
        if self.col_stride == 1 {
            return self.pack_rows(k, j, shape, out);
        }
        let mut rest = out;
        for (column, width) in shape.columns(j.len()) {
            let (panel, after) = rest.split_at_mut(k.len() * width);
            self.pack_panel(k.clone(), j.start + column..j.end.min(j.start + column + width), width, panel);
            rest = after;
        }
    }
}

impl<T: Real> Mat<'_, T> {
    /// Rows side by side in memory, each for all panels.
    #[inline(always)]
    fn pack_rows(&self, k: Range<usize>, j: Range<usize>, shape: PanelShape, out: &mut [T]) {
        let steps = k.len();
        for (i, p) in k.enumerate() {
            prefetch(self.data, (p + ROWS_AHEAD) * self.row_stride + j.start, j.len());
            let row = &self.data[p * self.row_stride..][j.clone()];
            for (column, width) in shape.columns(row.len()) {
                let row = &row[column..row.len().min(column + width)];
                let out = &mut out[column * steps + i * width..][..width];
                out[..row.len()].copy_from_slice(row);
                out[row.len()..].fill(T::zero());
            }
        }
    }

    #[inline(always)]
    fn pack_panel(&self, k: Range<usize>, j: Range<usize>, width: usize, out: &mut [T]) {
        let cols = j.len();
        if cols < width {
            out.fill(T::zero());
        }
        if self.row_stride == 1 {
            // Squares of a cache line of each of 16 columns, while there are so many.
            let squares = if k.len() < SIDE { 0 } else { cols / SIDE * SIDE };
            for first in (0..squares).step_by(SIDE) {
                let columns = &self.data[(j.start + first) * self.col_stride..];
                for block in (0..k.len()).step_by(SIDE) {
                    // The last square overlaps the one before.
                    let block = block.min(k.len() - SIDE);
                    let out = &mut out[block * width + first..];
                    transpose(&columns[k.start + block..], self.col_stride, out, width, SIDE);
                }
            }
            for column in squares..cols {
                let from = (j.start + column) * self.col_stride + k.start;
                for (&x, row) in self.data[from..][..k.len()].iter().zip(out.chunks_exact_mut(width)) {
                    row[column] = x;
                }
            }
        } else {
            for (p, out) in k.zip(out.chunks_exact_mut(width)) {
                for (out, j) in out.iter_mut().zip(j.clone()) {
                    *out = self.data[p * self.row_stride + j * self.col_stride];
                }
            }
        }
    }
}

/// Copies columns `k` of the left factor in strips of `mr` rows, the rows of a strip side by side; the last strip is
/// filled up with zeros. `out` holds `k.len()` times the rows rounded up to whole strips.
pub(super) fn pack_left<T: Real>(a: Mat<T>, k: Range<usize>, mr: usize, out: &mut [T]) {
    debug_assert!(mr <= MAX_ROWS);
    if k.is_empty() {
        return;
    }
    for (strip, out) in out.chunks_exact_mut(mr * k.len()).enumerate() {
        let first = strip * mr;
        let rows = mr.min(a.rows - first);
        for (p, out) in k.clone().zip(out.chunks_exact_mut(mr)) {
            if a.row_stride == 1 && rows == MAX_ROWS && mr == MAX_ROWS {
                let from = p * a.col_stride + first;
                let source: &[T; MAX_ROWS] = a.data[from..].first_chunk().expect("a whole strip");
                out.copy_from_slice(source);
            } else {
                for (i, out) in out.iter_mut().enumerate() {
                    *out = if i < rows { a.data[(first + i) * a.row_stride + p * a.col_stride] } else { T::zero() };
                }
            }
        }
    }
}
