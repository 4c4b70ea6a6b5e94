//! Several rows, or elements that must be converted: some rows of the weight are decoded side by side, then multiplied.

use super::{GROUP, MOST_ROWS, RUN};
use crate::kernels::Mat;
use crate::kernels::simd::{Real, dispatch};
use crate::linear::weight::Weight;
use pulp::{Simd, WithSimd};

/// `sums[j][r]`: the inner product of row `first + j` of the weight with row `r` of `x`.
pub(super) fn products<T: Real>(x: Mat<T>, weight: &Weight<T>, first: usize, sums: &mut [T]) {
    dispatch(Products { x, weight, first, sums });
}

struct Products<'a, T> {
    x: Mat<'a, T>,
    weight: &'a Weight<'a, T>,
    first: usize,
    sums: &'a mut [T],
}

impl<T: Real> WithSimd for Products<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Products { x, weight, first, sums } = self;
        let (rows, cols) = (x.rows(), x.cols());
        let mut decoded = [[T::zero(); RUN]; GROUP];
        for (i, sums) in sums.chunks_mut(GROUP * rows).enumerate() {
            let (row, count) = (first + i * GROUP, sums.len() / rows);
            let mut acc = [[T::splat(simd, T::zero()); GROUP]; MOST_ROWS];
            let mut tails = [[T::zero(); GROUP]; MOST_ROWS];
            for at in (0..cols).step_by(RUN) {
                let len = RUN.min(cols - at);
                let mut group: [&[T]; GROUP] = [&[]; GROUP];
                for (j, (part, decoded)) in group.iter_mut().zip(&mut decoded).enumerate() {
                    // Past the last row, some row once more: the sums are not kept.
                    let row = row + j.min(count - 1);
                    *part = match weight {
                        Weight::Same(matrix) => &matrix.row(row)[at..at + len],
                        Weight::Compact { source, .. } => {
                            source.exact(row * cols + at, &mut decoded[..len]);
                            &decoded[..len]
                        }
                    };
                }
                let split = group.map(
                    #[inline(always)]
                    |part| T::split::<S>(part),
                );
                for (r, (acc, tails)) in acc.iter_mut().zip(&mut tails).enumerate().take(rows) {
                    let (x, x_tail) = T::split::<S>(&x.row(r)[at..at + len]);
                    let [(w0, _), (w1, _), (w2, _), (w3, _)] = split;
                    let mut lanes = *acc;
                    for ((((&x, &w0), &w1), &w2), &w3) in x.iter().zip(w0).zip(w1).zip(w2).zip(w3) {
                        lanes[0] = T::vmul_add(simd, w0, x, lanes[0]);
                        lanes[1] = T::vmul_add(simd, w1, x, lanes[1]);
                        lanes[2] = T::vmul_add(simd, w2, x, lanes[2]);
                        lanes[3] = T::vmul_add(simd, w3, x, lanes[3]);
                    }
                    *acc = lanes;
                    for (tail, (_, w)) in tails.iter_mut().zip(&split) {
                        *tail = w.iter().zip(x_tail).fold(*tail, |sum, (&w, &x)| sum + w * x);
                    }
                }
            }
            for (j, sums) in sums.chunks_exact_mut(rows).enumerate() {
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = T::reduce_sum(simd, acc[r][j]) + tails[r][j];
                }
            }
        }
    }
}
