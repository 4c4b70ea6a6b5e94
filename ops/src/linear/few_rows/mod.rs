//! Products of a few rows with a weight: steps of generation.
//!
//! Nothing is packed: every weight is read once, in the order in which it lies in memory, and multiplied as it is decoded,
//! so that the speed is that of the memory. As rounding would save no time, these products are made in the type of the
//! rows whatever the precision.
//!
//! One row in `f32` is multiplied with elements that never leave the registers ([`one_row`]), or, where processor and format allow it, as
//! integers, which is as exact ([`integers`]). Several rows, other types and rows
//! that do not consist of whole blocks take a detour through the first-level cache ([`buffered`]).

mod buffered;
#[cfg(target_arch = "x86_64")]
mod integers;
mod one_row;
#[cfg(test)]
mod tests;

use super::weight::Weight;
use crate::kernels::scratch::Scratch;
use crate::kernels::simd::{Real, best};
use crate::kernels::{Accumulate, Mat};
use hankel_core::{parallel, trace};
use one_row::Ordered;

/// Most rows of these products. For more, packing the weight pays.
pub(super) const MOST_ROWS: usize = 8;
/// Weights that are worth a task.
const TASK: usize = 1 << 16;
/// Rows of the weight that are multiplied with the same part of the input, which may lie in the second-level cache.
const GROUP: usize = 4;
/// Elements of a row that are decoded at a time.
const RUN: usize = 256;

/// `out (+)= alpha x W^T` for at most [`MOST_ROWS`] rows and `weight` `[out, in]`, in parallel over rows of the weight; each
/// sum has an order that depends on its length and the number of rows only.
///
/// # Panics
/// When the shapes do not fit: that is the calling operator's to check.
pub(super) fn few_rows<T: Real>(alpha: T, x: Mat<T>, weight: &Weight<T>, how: Accumulate<T>, out: &mut [T]) {
    let (outputs, inputs) = weight.shape();
    let rows = x.rows();
    assert!(
        rows <= MOST_ROWS && x.cols() == inputs && out.len() == rows * outputs,
        "the factors of a product do not fit"
    );
    if out.is_empty() {
        return;
    }
    trace::operations(|| 2 * rows * inputs * outputs);
    let mut sums = Scratch::<T>::new(outputs * rows);
    let task_rows = (TASK / inputs.max(1)).max(1).next_multiple_of(GROUP);
    let ordered = (rows == 1).then(|| Ordered::new(weight, x.row(0))).flatten();
    #[cfg(target_arch = "x86_64")]
    let integers = ordered.as_ref().and_then(Ordered::in_integers);
    parallel::for_chunks(&mut sums, task_rows * rows, |i, sums| {
        let first = i * task_rows;
        #[cfg(target_arch = "x86_64")]
        if let Some(x) = &integers {
            return x.products(first, bytemuck::cast_slice_mut(sums));
        }
        match &ordered {
            Some(x) => x.products(best(), first, bytemuck::cast_slice_mut(sums)),
            None => buffered::products(x, weight, first, sums),
        }
    });
    parallel::for_rows(out, outputs, |first, piece| {
        for (r, row) in piece.chunks_exact_mut(outputs).enumerate() {
            how.base(first + r, row);
            let sums = sums[first + r..].iter().step_by(rows);
            row.iter_mut().zip(sums).for_each(|(y, &sum)| *y = alpha * sum + *y);
        }
    });
}
