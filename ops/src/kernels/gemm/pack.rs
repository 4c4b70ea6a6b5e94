//! Copies of the factors in the order in which the tiles read them.

use super::Mat;
use super::micro::MAX_ROWS;
use crate::kernels::simd::Real;
use std::ops::Range;

/// The right factor of a product, from any storage: it is asked for panels of columns, which it may widen or
/// dequantise on the way.
pub trait RightFactor<T>: Sync {
    /// Rows: the length of the sum.
    fn rows(&self) -> usize;
    /// Columns of the output.
    fn cols(&self) -> usize;
    /// Writes rows `k` of columns `j` row-major into `out`, `width` elements to a row, zeros after the last column.
    fn pack(&self, k: Range<usize>, j: Range<usize>, width: usize, out: &mut [T]);
}

impl<T: Real> RightFactor<T> for Mat<'_, T> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn cols(&self) -> usize {
        self.cols
    }

    fn pack(&self, k: Range<usize>, j: Range<usize>, width: usize, out: &mut [T]) {
        /// Steps of `k` transposed at a time: one cache line of each row of the source.
        const BLOCK: usize = 16;
        let cols = j.len();
        if cols < width {
            out.fill(T::zero());
        }
        if self.col_stride == 1 {
            for (p, out) in k.zip(out.chunks_exact_mut(width)) {
                let from = p * self.row_stride + j.start;
                out[..cols].copy_from_slice(&self.data[from..from + cols]);
            }
        } else if self.row_stride == 1 {
            for (block, out) in k.clone().step_by(BLOCK).zip(out.chunks_mut(BLOCK * width)) {
                let steps = BLOCK.min(k.end - block);
                for (column, j) in j.clone().enumerate() {
                    let from = j * self.col_stride + block;
                    let source = &self.data[from..from + steps];
                    for (&x, row) in source.iter().zip(out.chunks_exact_mut(width)) {
                        row[column] = x;
                    }
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
