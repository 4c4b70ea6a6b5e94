//! What a product is added to.

use super::Mat;
use crate::kernels::simd::Real;
use std::ops::Range;

/// What becomes of the output's former content.
#[derive(Clone, Copy)]
pub enum Accumulate<'a, T> {
    /// It is not read.
    Overwrite,
    /// The product is added to it.
    Add,
    /// It is not read; this row is added to each row of the product.
    Bias(&'a [T]),
    /// It is not read; the product is added to this row-major matrix of its size, and to a row for each row.
    Onto(Mat<'a, T>, Option<&'a [T]>),
}

impl<T: Real> Accumulate<'_, T> {
    /// Makes of row `i` of the output what the product is added to.
    pub(crate) fn base(self, i: usize, row: &mut [T]) {
        match self {
            Accumulate::Overwrite => row.fill(T::zero()),
            Accumulate::Add => {}
            Accumulate::Bias(bias) => row.copy_from_slice(bias),
            Accumulate::Onto(base, bias) => {
                row.copy_from_slice(base.row(i));
                row.iter_mut().zip(bias.into_iter().flatten()).for_each(|(y, &b)| *y += b);
            }
        }
    }

    /// Fails unless it fits an output of `m` rows of `n` columns.
    pub(super) fn check(self, m: usize, n: usize) {
        if let Accumulate::Onto(base, _) = self {
            assert!(base.rows == m && base.cols == n && base.is_row_major(), "the base is not as large as the output");
        }
        if let Accumulate::Bias(bias) | Accumulate::Onto(_, Some(bias)) = self {
            assert_eq!(bias.len(), n, "the bias is not as long as a row of the output");
        }
    }

    /// The same of the rows from `i` on and of columns `j`, for the block of a sum that begins at step `k`: the first one reads the base,
    /// the others add to what it wrote.
    #[inline(always)]
    pub(super) fn part(self, k: usize, i: usize, j: Range<usize>) -> Self {
        match self {
            _ if k > 0 => Accumulate::Add,
            Accumulate::Bias(bias) => Accumulate::Bias(&bias[j]),
            Accumulate::Onto(base, bias) => {
                let base = base.row_block(i, base.rows - i).col_block(j.start, j.len());
                Accumulate::Onto(base, bias.map(|bias| &bias[j]))
            }
            how => how,
        }
    }

    /// The same of the rows from `i` on.
    #[inline(always)]
    pub(super) fn rows_from(self, i: usize) -> Self {
        match self {
            Accumulate::Onto(base, bias) => Accumulate::Onto(base.row_block(i, base.rows - i), bias),
            how => how,
        }
    }
}
