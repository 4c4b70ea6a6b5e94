//! Products by `matrixmultiply`, where no tiles of ours were measured to be better: in `f64`, and on processors without AVX2.
//!
//! How `matrixmultiply` adds up an element depends on the length
//! of the sum only, not on the rows and columns beside it, so results are the same bits for any number of threads.

use super::micro::Target;
use super::panels::{PanelShape, Panels};
use super::{Accumulate, Mat};
use crate::kernels::simd::{Real, has_tiles};
use hankel_core::DType;
use std::ops::Range;

/// Whether products of this type are made here.
pub(super) fn suits<T: Real>() -> bool {
    T::ELEMENT == DType::F64 || !has_tiles()
}

/// Panels wide enough that `matrixmultiply` does not copy the left factor too often.
pub(super) const SHAPE: PanelShape = PanelShape { width: 64, lanes: 16 };

/// `alpha A B` to the rows of the target, with columns `j` of `B` in panels of [`SHAPE`].
///
/// # Safety
/// The target is writable (and readable, when added to) for the rows of `a`, and nobody else uses it meanwhile.
pub(super) unsafe fn multiply<T: Real>(
    alpha: T,
    a: Mat<T>,
    panels: &Panels<T>,
    j: Range<usize>,
    how: Accumulate<T>,
    c: Target<T>,
) {
    if matches!(how, Accumulate::Bias(_) | Accumulate::Onto(..)) {
        for i in 0..a.rows {
            // SAFETY: the caller's promise; any bits are a number.
            let row = unsafe { std::slice::from_raw_parts_mut(c.data.add(i * c.row_stride), c.cols) };
            how.base(i, row);
        }
    }
    for (steps, mut rest) in panels.blocks(SHAPE.lanes, j.start) {
        let beta = if steps.start == 0 && matches!(how, Accumulate::Overwrite) { 0.0 } else { 1.0 };
        for (column, width) in SHAPE.columns(c.cols) {
            let (panel, after) = rest.split_at(steps.len() * width);
            rest = after;
            // SAFETY: `Mat` holds its rows and columns, the panel as many rows of its width as the block has steps; the target
            // holds the rows of `a`, as promised.
            unsafe {
                let to = Target { data: c.data.add(column), cols: width.min(c.cols - column), ..c };
                gemm(alpha, a.col_block(steps.start, steps.len()), panel, width, beta, to);
            }
        }
    }
}

/// `C = beta C + alpha A B` for `B` in rows of `width` elements.
///
/// # Safety
/// `b` holds as many rows as `a` columns; the target is writable for the rows of `a`, and readable if `beta` is not 0.
unsafe fn gemm<T: Real>(alpha: T, a: Mat<T>, b: &[T], width: usize, beta: f64, c: Target<T>) {
    let (m, k, n) = (a.rows, a.cols, c.cols);
    let (row, col) = (a.row_stride as isize, a.col_stride as isize);
    let (width, stride) = (width as isize, c.row_stride as isize);
    let (left, right, alpha) = (a.data.as_ptr(), b.as_ptr(), alpha.f64());
    // SAFETY: the type is the one that the pointers are of; the rest is the caller's promise.
    unsafe {
        if T::ELEMENT == DType::F64 {
            let (left, right, out) = (left.cast(), right.cast(), c.data.cast());
            matrixmultiply::dgemm(m, k, n, alpha, left, row, col, right, width, 1, beta, out, stride, 1);
        } else {
            let (left, right, out) = (left.cast(), right.cast(), c.data.cast());
            matrixmultiply::sgemm(m, k, n, alpha as f32, left, row, col, right, width, 1, beta as f32, out, stride, 1);
        }
    }
}
