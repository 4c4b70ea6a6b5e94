//! Matrix products `C = alpha A B (+ C or a bias)` for any mixture of transposed and strided factors.
//!
//! The right factor is packed in panels as wide as a register tile; a row-major left factor is read where it is. That
//! suits the products of a transformer, which are tall and narrow ([tokens, 128] x [128, 32]): packing the left factor,
//! as general libraries do, costs as much as the product there (`benches/gemm.rs` compares). In `f64`, and without AVX2,
//! products are left to `matrixmultiply`.
//!
//! An output element is the sum over `k` in blocks of [`K_BLOCK`], each block one chain of fused multiply-adds, whatever
//! the number of threads. Weight gradients (a small output, a long sum over tokens) are cut in chunks of [`K_CHUNK`]
//! tokens that are added in order.

#[cfg(target_arch = "x86_64")]
pub mod bf16;
mod general;
mod mat;
mod micro;
mod pack;
mod panels;
#[cfg(test)]
mod tests;
pub(crate) mod tiles;

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

/// Steps of `k` for which panels are packed: a panel of 32 columns in `f32` fills the first-level cache.
pub const K_BLOCK: usize = 512;
/// Steps of `k` of one partial sum where the output is small and the sum is long.
pub const K_CHUNK: usize = 2048;
/// Rows of the left factor multiplied by a panel while it stays in the cache.
const ROW_BLOCK: usize = 64;
/// Rows of a row-major right factor asked for in advance: they are far apart in memory, where no processor expects the next.
pub(crate) const ROWS_AHEAD: usize = 8;
/// Multiply-adds worth a task of their own.
const TASK: usize = 1 << 21;
/// Elements of an output that is not worth cutting into tasks where the sum is long.
const SMALL_OUTPUT: usize = 1 << 16;
/// Elements of a right factor that are packed once for all threads.
const SHARED: usize = 1 << 18;

/// What becomes of the output's former content.
#[derive(Clone, Copy)]
pub enum Accumulate<'a, T> {
    /// It is not read.
    Overwrite,
    /// The product is added to it.
    Add,
    /// It is not read; this row is added to each row of the product.
    Bias(&'a [T]),
}

/// A right factor in the form in which it is multiplied with: packed in panels.
pub trait Factor<T: Real>: Sync {
    /// Columns, packed.
    type Panels: Sync;
    /// Rows: the length of the sum.
    fn rows(&self) -> usize;
    /// Columns of the output.
    fn cols(&self) -> usize;
    /// Packs rows `k` of columns `j`.
    fn panels(&self, k: Range<usize>, j: Range<usize>) -> Self::Panels;
    /// Packs all of it, in parallel where that is worth it.
    fn whole(&self) -> Self::Panels {
        self.panels(0..self.rows(), 0..self.cols())
    }
    /// `alpha A B` to the rows of the target, `B` being what was packed.
    ///
    /// # Safety
    /// The target is writable (and readable, when added to) for the rows of `a`, and nobody else uses it meanwhile.
    unsafe fn multiply(alpha: T, a: Mat<T>, panels: &Self::Panels, how: Accumulate<T>, target: Target<T>);
}

impl<T: Real, B: RightFactor<T>> Factor<T> for B {
    type Panels = Panels<T>;

    fn rows(&self) -> usize {
        RightFactor::rows(self)
    }

    fn cols(&self) -> usize {
        RightFactor::cols(self)
    }

    fn panels(&self, k: Range<usize>, j: Range<usize>) -> Panels<T> {
        Panels::pack(self, k, j)
    }

    fn whole(&self) -> Panels<T> {
        Panels::pack_whole(self)
    }

    unsafe fn multiply(alpha: T, a: Mat<T>, panels: &Panels<T>, how: Accumulate<T>, target: Target<T>) {
        // SAFETY: the same promise.
        unsafe { multiply_into(alpha, a, panels, how, target) }
    }
}

/// `C (+)= alpha A B`, in parallel. `C` is `out`, its rows `out_stride` elements apart.
///
/// # Panics
/// When the shapes do not fit: that is the calling operator's to check.
pub fn gemm<T: Real, B: Factor<T>>(alpha: T, a: Mat<T>, b: &B, how: Accumulate<T>, out: &mut [T], out_stride: usize) {
    let (m, k, n) = check(a, b, how, out, out_stride);
    if m == 0 || n == 0 {
        return;
    }
    let out = &mut out[..(m - 1) * out_stride + n];
    trace::operations(|| 2 * m * k * n);
    if m * k * n <= TASK {
        return gemm_serial(alpha, a, b, how, out, out_stride);
    }
    if k >= 2 * K_CHUNK && m * n <= SMALL_OUTPUT {
        return long_sum(alpha, a, b, how, out, out_stride);
    }
    let task_rows = (TASK / (k * n)).max(1).next_multiple_of(ROW_BLOCK);
    if k * n <= SHARED {
        let panels = b.whole();
        parallel::for_chunks(out, task_rows * out_stride, |i, out| {
            let first = i * task_rows;
            let a = a.row_block(first, task_rows.min(m - first));
            multiply::<T, B>(alpha, a, &panels, n, how, out, out_stride);
        });
        return;
    }
    wide(alpha, a, b, how, out, out_stride);
}

/// [`gemm`] on the calling thread.
///
/// # Panics
/// When the shapes do not fit.
pub fn gemm_serial<T: Real, B: Factor<T>>(
    alpha: T,
    a: Mat<T>,
    b: &B,
    how: Accumulate<T>,
    out: &mut [T],
    out_stride: usize,
) {
    let (m, k, n) = check(a, b, how, out, out_stride);
    if m == 0 || n == 0 {
        return;
    }
    let panels = b.panels(0..k, 0..n);
    multiply::<T, B>(alpha, a, &panels, n, how, out, out_stride);
}

/// `alpha A B` to the first columns of the rows of `out`.
fn multiply<T: Real, B: Factor<T>>(
    alpha: T,
    a: Mat<T>,
    panels: &B::Panels,
    cols: usize,
    how: Accumulate<T>,
    out: &mut [T],
    out_stride: usize,
) {
    assert!(extent(a.rows, cols, out_stride) <= out.len());
    let target = Target { data: out.as_mut_ptr(), row_stride: out_stride, cols };
    // SAFETY: the slice holds all rows of the target, as just checked.
    unsafe { B::multiply(alpha, a, panels, how, target) }
}

fn check<T: Real, B: Factor<T>>(
    a: Mat<T>,
    b: &B,
    how: Accumulate<T>,
    out: &[T],
    out_stride: usize,
) -> (usize, usize, usize) {
    let (m, k, n) = (a.rows, a.cols, b.cols());
    assert_eq!(k, b.rows(), "the factors of a product do not fit");
    assert!(n <= out_stride && extent(m, n, out_stride) <= out.len(), "the output is too small");
    if let Accumulate::Bias(bias) = how {
        assert_eq!(bias.len(), n, "the bias is not as long as a row of the output");
    }
    (m, k, n)
}

/// A small output and a long sum: chunks of the sum side by side, added in order.
fn long_sum<T: Real, B: Factor<T>>(alpha: T, a: Mat<T>, b: &B, how: Accumulate<T>, out: &mut [T], out_stride: usize) {
    let (m, k, n) = (a.rows, a.cols, b.cols());
    let mut partial = Scratch::<T>::new(k.div_ceil(K_CHUNK) * m * n);
    parallel::for_chunks(&mut partial, m * n, |i, out| {
        let range = i * K_CHUNK..k.min((i + 1) * K_CHUNK);
        let a = a.col_block(range.start, range.len());
        let panels = b.panels(range, 0..n);
        multiply::<T, B>(alpha, a, &panels, n, Accumulate::Overwrite, out, n);
    });
    for (i, row) in out.chunks_mut(out_stride).take(m).enumerate() {
        let row = &mut row[..n];
        match how {
            Accumulate::Overwrite => row.fill(T::zero()),
            Accumulate::Add => {}
            Accumulate::Bias(bias) => row.copy_from_slice(bias),
        }
        for partial in partial.chunks_exact(m * n) {
            row.iter_mut().zip(&partial[i * n..]).for_each(|(sum, &x)| *sum += x);
        }
    }
}

/// A right factor that is too large to be packed at once: each task packs the columns it multiplies with.
fn wide<T: Real, B: Factor<T>>(alpha: T, a: Mat<T>, b: &B, how: Accumulate<T>, out: &mut [T], out_stride: usize) {
    let (m, k, n) = (a.rows, a.cols, b.cols());
    // As large as leaves each thread a few: a block of columns is packed for each block of rows, and the other way round. Where
    // the output is cut changes no bit of it.
    let tasks = 8 * rayon::current_num_threads();
    let (mut rows, mut cols) = (1024.min(m.next_multiple_of(ROW_BLOCK)), 256);
    while m.div_ceil(rows) * n.div_ceil(cols) < tasks && (rows > 4 * ROW_BLOCK || cols > 64) {
        if rows > 4 * ROW_BLOCK && (rows >= 4 * cols || cols == 64) {
            rows = (rows / 2).next_multiple_of(ROW_BLOCK);
        } else {
            cols /= 2;
        }
    }
    let (row_blocks, col_blocks) = (m.div_ceil(rows), n.div_ceil(cols));
    let target = Shared(out.as_mut_ptr());
    parallel::for_each(row_blocks * col_blocks, |task| {
        let (i, j) = (task / col_blocks * rows, task % col_blocks * cols);
        let (rows, cols) = (rows.min(m - i), cols.min(n - j));
        let how = match how {
            Accumulate::Bias(bias) => Accumulate::Bias(&bias[j..j + cols]),
            how => how,
        };
        let target = &target;
        for first in (0..k.max(1)).step_by(K_BLOCK) {
            let range = first..k.min(first + K_BLOCK);
            let how = if first == 0 { how } else { Accumulate::Add };
            let a = a.row_block(i, rows).col_block(first, range.len());
            let panels = b.panels(range, j..j + cols);
            // SAFETY: `check` made sure that the output holds m rows of n columns; the tasks' rectangles are disjoint.
            unsafe {
                let target = Target { data: target.0.add(i * out_stride + j), row_stride: out_stride, cols };
                B::multiply(alpha, a, &panels, how, target);
            }
        }
    });
}

/// The output of several tasks that write disjoint rectangles of it.
struct Shared<T>(*mut T);
// SAFETY: the pointer is only used to write disjoint elements.
unsafe impl<T: Send> Sync for Shared<T> {}
