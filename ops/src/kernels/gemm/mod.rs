//! Matrix products `C = alpha A B (+ C, another matrix or a bias)` for any mixture of transposed and strided factors.
//!
//! The right factor is packed in panels as wide as a register tile; a row-major left factor is read where it is. That
//! suits the products of a transformer, which are tall and narrow ([tokens, 128] x [128, 32]): packing the left factor,
//! as general libraries do, costs as much as the product there (`benches/gemm.rs` compares). In `f64`, and without AVX2,
//! products are left to `matrixmultiply`.
//!
//! An output element is the sum over `k` in blocks of at most [`K_BLOCK`] steps, each block one chain of fused multiply-adds, whatever
//! the number of threads. Weight gradients (a small output, a long sum over tokens) are cut in chunks of [`K_CHUNK`]
//! tokens that are added in order.

mod accumulate;
#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
pub mod bf16;
mod general;
mod mat;
mod micro;
mod pack;
mod panels;
#[cfg(target_arch = "x86_64")]
mod store;
#[cfg(test)]
mod tests;
pub(crate) mod tiles;

pub use accumulate::Accumulate;
pub use mat::Mat;
use mat::extent;
pub use pack::RightFactor;

use super::scratch::Scratch;
use super::simd::Real;
use hankel_core::{parallel, trace};
use micro::Target;
pub use panels::PanelShape;
use panels::{Panels, multiply_into};
use std::ops::Range;

/// Most steps of `k` for which panels are packed.
pub const K_BLOCK: usize = 512;
/// Steps of `k` of one partial sum where the output is small and the sum is long.
pub const K_CHUNK: usize = 2048;
/// Rows of the left factor multiplied by a panel while it stays in the cache.
const ROW_BLOCK: usize = 64;
/// Rows of a row-major right factor asked for in advance: they are far apart in memory, where no processor expects the next.
pub(crate) const ROWS_AHEAD: usize = 8;
/// Multiply-adds worth a task of their own.
const TASK: usize = 1 << 21;
/// Multiply-adds worth one where there are few.
const SMALL_TASK: usize = 1 << 18;
/// Elements of an output that is not worth cutting into tasks where the sum is long.
const SMALL_OUTPUT: usize = 1 << 16;
/// Elements of a right factor that are packed at once, for all threads.
const SHARED: usize = 1 << 22;
/// Columns of which a task has a multiple: whole panels of every kind.
pub const COLUMNS: usize = 64;
/// Rows of the largest task.
const TASK_ROWS: usize = 1024;
/// Columns of a task that packs them for itself: as many as make rows of a compact weight be decoded in long pieces, or fewer where
/// tasks would be few.
const TASK_COLS: [usize; 2] = [512, 256];

/// Steps of each block of a sum of `k`: as even as whole blocks of quantised elements allow, the small or, where they fill a row, the
/// large ones.
fn k_block(k: usize) -> usize {
    let whole = if k.is_multiple_of(256) { 256 } else { 64 };
    k.div_ceil(k.div_ceil(K_BLOCK).max(1)).max(1).next_multiple_of(whole)
}

/// The blocks of a part of a sum, each of `block` steps but the last.
fn k_blocks(k: Range<usize>, block: usize) -> impl Iterator<Item = Range<usize>> {
    let end = k.end;
    k.step_by(block).map(move |first| first..end.min(first + block))
}

/// A right factor in the form in which it is multiplied with: packed in panels.
pub trait Factor<T: Real>: Sync {
    /// Columns, packed.
    type Panels: Sync;
    /// A left factor, as it is multiplied with the panels.
    type Left<'a>: Sync;
    /// Prepares a left factor once, for all panels.
    fn left<'a>(&self, a: Mat<'a, T>) -> Self::Left<'a>;
    /// Rows: the length of the sum.
    fn rows(&self) -> usize;
    /// Columns of the output.
    fn cols(&self) -> usize;
    /// Packs rows `k`, in blocks of `block`, of columns `j`.
    fn panels(&self, k: Range<usize>, block: usize, j: Range<usize>) -> Self::Panels;
    /// Packs rows `k`, in blocks of `block`, of all columns, in parallel where that is worth it.
    fn whole(&self, k: Range<usize>, block: usize) -> Self::Panels;
    /// `alpha A B` to the rows of the target, `A` being rows `i` and columns `k` of the left factor, `B` columns `j` of what was packed of
    /// these `k`. Columns `j` begin at a multiple of [`COLUMNS`] and end at one or at the last.
    ///
    /// # Safety
    /// The target is writable (and readable, when added to) for the rows `i`, and nobody else uses it meanwhile.
    unsafe fn multiply(
        alpha: T,
        a: &Self::Left<'_>,
        i: Range<usize>,
        k: Range<usize>,
        panels: &Self::Panels,
        j: Range<usize>,
        how: Accumulate<T>,
        target: Target<T>,
    );
}

impl<T: Real, B: RightFactor<T>> Factor<T> for B {
    type Panels = Panels<T>;
    type Left<'a> = Mat<'a, T>;

    fn left<'a>(&self, a: Mat<'a, T>) -> Mat<'a, T> {
        a
    }

    fn rows(&self) -> usize {
        RightFactor::rows(self)
    }

    fn cols(&self) -> usize {
        RightFactor::cols(self)
    }

    fn panels(&self, k: Range<usize>, block: usize, j: Range<usize>) -> Panels<T> {
        Panels::pack(self, k, block, j)
    }

    fn whole(&self, k: Range<usize>, block: usize) -> Panels<T> {
        Panels::pack_whole(self, k, block)
    }

    unsafe fn multiply(
        alpha: T,
        a: &Mat<T>,
        i: Range<usize>,
        k: Range<usize>,
        panels: &Panels<T>,
        j: Range<usize>,
        how: Accumulate<T>,
        target: Target<T>,
    ) {
        let a = a.row_block(i.start, i.len()).col_block(k.start, k.len());
        // SAFETY: the same promise.
        unsafe { multiply_into(alpha, a, panels, j, how, target) }
    }
}

/// `C (+)= alpha A B`, in parallel. `C` is `out`, its rows `out_stride` elements apart.
///
/// # Panics
/// When the shapes do not fit: that is the calling operator's to check.
pub fn gemm<T: Real, B: Factor<T>>(alpha: T, a: Mat<T>, b: &B, how: Accumulate<T>, out: &mut [T], out_stride: usize) {
    gemm_prepared(alpha, &b.left(a), [a.rows, a.cols], b, how, out, out_stride);
}

/// [`gemm`] with a left factor that [`Factor::left`] prepared, of `size` rows and columns.
///
/// # Panics
/// When the shapes do not fit.
pub fn gemm_prepared<T: Real, B: Factor<T>>(
    alpha: T,
    left: &B::Left<'_>,
    size: [usize; 2],
    b: &B,
    how: Accumulate<T>,
    out: &mut [T],
    out_stride: usize,
) {
    let [m, k, n] = check(size, b, how, out, out_stride);
    if m == 0 || n == 0 {
        return;
    }
    let size = [m, k, n];
    let out = &mut out[..(m - 1) * out_stride + n];
    trace::operations(|| 2 * m * k * n);
    if m * k * n <= TASK {
        let panels = b.panels(0..k, k_block(k), 0..n);
        return multiply::<T, B>(alpha, left, m, 0..k, &panels, n, how, out, out_stride);
    }
    if k >= 2 * K_CHUNK && m * n <= SMALL_OUTPUT {
        return long_sum(alpha, left, size, b, how, out, out_stride);
    }
    // Panels that a task packs for itself stay in its cache. They are packed for each block of rows; where there are several, or too
    // few tasks otherwise, they are packed once for all.
    let enough = |cols: &usize| m.div_ceil(TASK_ROWS) * n.div_ceil(*cols) >= 4 * rayon::current_num_threads();
    let cols = TASK_COLS.into_iter().find(enough);
    if n * K_BLOCK > SHARED || cols.is_some() && m <= TASK_ROWS {
        apart(alpha, left, size, b, how, out, out_stride, cols.unwrap_or(TASK_COLS[1]));
    } else {
        shared(alpha, left, size, b, how, out, out_stride, SHARED);
    }
}

/// `alpha A B` of columns `k` of `rows` rows to the first columns of the rows of `out`.
fn multiply<T: Real, B: Factor<T>>(
    alpha: T,
    a: &B::Left<'_>,
    rows: usize,
    k: Range<usize>,
    panels: &B::Panels,
    cols: usize,
    how: Accumulate<T>,
    out: &mut [T],
    out_stride: usize,
) {
    assert!(extent(rows, cols, out_stride) <= out.len());
    let target = Target { data: out.as_mut_ptr(), row_stride: out_stride, cols };
    // SAFETY: the slice holds all rows of the target, as just checked.
    unsafe { B::multiply(alpha, a, 0..rows, k, panels, 0..cols, how, target) }
}

/// Rows, steps and columns of a product, if its parts fit.
fn check<T: Real, B: Factor<T>>(
    [m, k]: [usize; 2],
    b: &B,
    how: Accumulate<T>,
    out: &[T],
    out_stride: usize,
) -> [usize; 3] {
    let n = b.cols();
    assert_eq!(k, b.rows(), "the factors of a product do not fit");
    assert!(n <= out_stride && extent(m, n, out_stride) <= out.len(), "the output is too small");
    how.check(m, n);
    [m, k, n]
}

/// A small output and a long sum: chunks of the sum side by side, added in order.
fn long_sum<T: Real, B: Factor<T>>(
    alpha: T,
    left: &B::Left<'_>,
    [m, k, n]: [usize; 3],
    b: &B,
    how: Accumulate<T>,
    out: &mut [T],
    out_stride: usize,
) {
    let mut partial = Scratch::<T>::new(k.div_ceil(K_CHUNK) * m * n);
    parallel::for_chunks(&mut partial, m * n, |i, out| {
        let range = i * K_CHUNK..k.min((i + 1) * K_CHUNK);
        let block = k_block(range.len());
        let panels = b.panels(range.clone(), block, 0..n);
        multiply::<T, B>(alpha, left, m, range, &panels, n, Accumulate::Overwrite, out, n);
    });
    for (i, row) in out.chunks_mut(out_stride).take(m).enumerate() {
        let row = &mut row[..n];
        how.base(i, row);
        for partial in partial.chunks_exact(m * n) {
            row.iter_mut().zip(&partial[i * n..]).for_each(|(sum, &x)| *sum += x);
        }
    }
}

/// Panels for all tasks, packed in parallel before they begin: as many rows of the right factor at a time as have `most` elements, and a
/// block of them at least.
fn shared<T: Real, B: Factor<T>>(
    alpha: T,
    left: &B::Left<'_>,
    [m, k, n]: [usize; 3],
    b: &B,
    how: Accumulate<T>,
    out: &mut [T],
    out_stride: usize,
    most: usize,
) {
    let block = k_block(k);
    let at_once = (most / n / block).max(1) * block;
    let (rows, cols) = task_shape(m, k.min(at_once), n);
    let (row_blocks, col_blocks) = (m.div_ceil(rows), n.div_ceil(cols));
    let target = Shared(out.as_mut_ptr());
    for range in k_blocks(0..k, at_once) {
        let panels = b.whole(range.clone(), block);
        parallel::for_each(row_blocks * col_blocks, |task| {
            let (i, j) = (task / col_blocks * rows, task % col_blocks * cols);
            let columns = j..n.min(j + cols);
            let how = how.part(range.start, i, columns.clone());
            let target = &target;
            // SAFETY: `check` made sure that the output holds m rows of n columns; the tasks' rectangles are disjoint.
            unsafe {
                let data = target.0.add(i * out_stride + j);
                let target = Target { data, row_stride: out_stride, cols: columns.len() };
                let rows = i..m.min(i + rows);
                B::multiply(alpha, left, rows, range.clone(), &panels, columns, how, target);
            }
        });
    }
}

/// Each task packs the columns that it multiplies with, `cols` of them.
fn apart<T: Real, B: Factor<T>>(
    alpha: T,
    left: &B::Left<'_>,
    [m, k, n]: [usize; 3],
    b: &B,
    how: Accumulate<T>,
    out: &mut [T],
    out_stride: usize,
    cols: usize,
) {
    let block = k_block(k);
    let rows = TASK_ROWS.min(m.next_multiple_of(ROW_BLOCK));
    let (row_blocks, col_blocks) = (m.div_ceil(rows), n.div_ceil(cols));
    let target = Shared(out.as_mut_ptr());
    parallel::for_each(row_blocks * col_blocks, |task| {
        let (i, j) = (task / col_blocks * rows, task % col_blocks * cols);
        let (rows, columns) = (i..m.min(i + rows), j..n.min(j + cols));
        let target = &target;
        for range in k_blocks(0..k, block) {
            let how = how.part(range.start, i, columns.clone());
            let panels = b.panels(range.clone(), block, columns.clone());
            // SAFETY: `check` made sure that the output holds m rows of n columns; the tasks' rectangles are disjoint.
            unsafe {
                let data = target.0.add(i * out_stride + j);
                let target = Target { data, row_stride: out_stride, cols: columns.len() };
                B::multiply(alpha, left, rows.clone(), range, &panels, 0..columns.len(), how, target);
            }
        }
    });
}

/// Rows and columns of a task. Where the output is cut changes no bit of it.
fn task_shape(m: usize, k: usize, n: usize) -> (usize, usize) {
    let mut rows = (TASK / (k * n)).clamp(1, m).next_multiple_of(ROW_BLOCK);
    let mut cols = n.next_multiple_of(COLUMNS);
    // So that each thread has a few.
    while m.div_ceil(rows) * n.div_ceil(cols) < 8 * rayon::current_num_threads() && rows * cols * k >= 2 * SMALL_TASK {
        if rows > ROW_BLOCK && (rows >= cols || cols == COLUMNS) {
            rows = (rows / 2).next_multiple_of(ROW_BLOCK);
        } else if cols > COLUMNS {
            cols = (cols / 2).next_multiple_of(COLUMNS);
        } else {
            break;
        }
    }
    (rows, cols)
}

/// The output of several tasks that write disjoint rectangles of it.
struct Shared<T>(*mut T);
// SAFETY: the pointer is only used to write disjoint elements.
unsafe impl<T: Send> Sync for Shared<T> {}
