//! The product of one row with a weight: a step of generation.
//!
//! Nothing is packed: every weight is read once, in the order in which it lies in memory, and multiplied as it is decoded,
//! so that the speed is that of the memory.

use super::weight::{Operand, Weight};
use crate::kernels::simd::{Real, dot, vectorized};
use crate::kernels::{Accumulate, Mat};
use hankel_core::block_formats::MAX_BLOCK;
use hankel_core::parallel;
use pulp::{Simd, WithSimd};

/// Partial sums side by side.
const LANES: usize = 64;
/// Weights that are worth a task.
const TASK: usize = 1 << 16;

/// `out (+)= alpha W x` for `weight` `[out, in]`, in parallel over rows of the weight; each row's sum has an order that
/// depends on its length only.
///
/// # Panics
/// When the lengths do not fit: that is the calling operator's to check.
pub(super) fn matvec<T: Real>(alpha: T, x: &[T], weight: &Weight<T>, how: Accumulate<T>, out: &mut [T]) {
    let (rows, cols) = weight.shape();
    assert!(x.len() == cols && out.len() == rows, "the factors of a product do not fit");
    let task_rows = (TASK / cols.max(1)).max(1);
    parallel::for_chunks(out, task_rows, |i, out| {
        let first = i * task_rows;
        let mut write = |i: usize, sum: T| {
            out[i] = alpha * sum
                + match how {
                    Accumulate::Overwrite => T::zero(),
                    Accumulate::Add => out[i],
                    Accumulate::Bias(bias) => bias[first + i],
                };
        };
        let rows = first..rows.min(first + task_rows);
        match weight {
            Weight::Same(matrix) => crate::kernels::simd::dispatch(Rows { matrix: *matrix, x, range: rows, write }),
            Weight::Compact { source, .. } => vectorized(
                #[inline(always)]
                || {
                    for (i, row) in rows.enumerate() {
                        let sum = if source.in_blocks() {
                            decoded_dot::<T, MAX_BLOCK>(*source, row * cols, x)
                        } else {
                            decoded_dot::<T, LANES>(*source, row * cols, x)
                        };
                        write(i, sum);
                    }
                },
            ),
        }
    });
}

/// Rows that need no decoding.
struct Rows<'a, T, W> {
    matrix: Mat<'a, T>,
    x: &'a [T],
    range: std::ops::Range<usize>,
    write: W,
}

impl<T: Real, W: FnMut(usize, T)> WithSimd for Rows<'_, T, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Rows { matrix, x, range, mut write } = self;
        for (i, row) in range.enumerate() {
            write(i, dot(simd, matrix.row(row), x));
        }
    }
}

/// Inner product of `x` with the elements from `first` on, `RUN` of which are decoded at a time.
#[inline(always)]
fn decoded_dot<T: Real, const RUN: usize>(source: Operand, first: usize, x: &[T]) -> T {
    let mut lanes = [T::zero(); LANES];
    let mut decoded = [T::zero(); RUN];
    let (runs, last) = x.as_chunks::<RUN>();
    for (i, x) in runs.iter().enumerate() {
        source.decode(first + i * RUN, &mut decoded);
        add_products(&mut lanes, &decoded, x);
    }
    let decoded = &mut decoded[..last.len()];
    source.decode(first + runs.len() * RUN, decoded);
    add_products(&mut lanes, decoded, last);
    let mut width = LANES / 2;
    while width > 0 {
        let (left, right) = lanes.split_at_mut(width);
        left.iter_mut().zip(right).for_each(
            #[inline(always)]
            |(left, right)| *left += *right,
        );
        width /= 2;
    }
    let (w, x) = (decoded.as_chunks::<LANES>().1, last.as_chunks::<LANES>().1);
    w.iter().zip(x).fold(lanes[0], |sum, (&w, &x)| sum + w * x)
}

/// Adds products to the partial sums, up to the last whole group of them.
#[inline(always)]
fn add_products<T: Real>(lanes: &mut [T; LANES], w: &[T], x: &[T]) {
    for (w, x) in w.as_chunks::<LANES>().0.iter().zip(x.as_chunks::<LANES>().0) {
        for ((lane, &w), &x) in lanes.iter_mut().zip(w).zip(x) {
            *lane += w * x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::gemm;
    use crate::linear::nf4;
    use hankel_core::{DType, Precision, Random, Tensor};
    use proptest::prelude::*;

    fn values(len: usize, name: &str) -> Vec<f64> {
        let random = Random::new(1, name, 0);
        (0..len as u64).map(|i| random.normal(i)).collect()
    }

    /// The same product by tiles, on the same elements.
    fn matches<T: Real>(weight: &Tensor, how: u8) -> Result<(), TestCaseError> {
        let (rows, cols) = (weight.shape()[0], weight.shape()[1]);
        let vector = |len, name| -> Vec<T> { values(len, name).into_iter().map(T::of).collect() };
        let (x, bias, before) = (vector(cols, "x"), vector(rows, "bias"), vector(rows, "before"));
        let how = match how {
            0 => Accumulate::Overwrite,
            1 => Accumulate::Add,
            _ => Accumulate::Bias(&bias),
        };
        let alpha = T::of(0.75);
        let (mut found, mut expected) = (before.clone(), before);
        matvec(alpha, &x, &Weight::new(weight, Precision::F32).unwrap(), how, &mut found);
        gemm(alpha, Mat::new(&x, 1, cols), &Weight::new(weight, Precision::F32).unwrap().t(), how, &mut expected, rows);
        let tolerance = 4.0 * T::epsilon().f64() * (cols as f64 + 4.0);
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let error = (found.f64() - expected.f64()).abs();
            prop_assert!(error <= tolerance, "{}, row {i}: {found} for {expected}", weight.dtype());
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn equals_the_product_by_tiles(rows in 1_usize..40, cols in 1_usize..300, how in 0_u8..3) {
            let weight = Tensor::from_vec(values(rows * cols, "w"), [rows, cols]).unwrap();
            matches::<f64>(&weight, how)?;
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let weight = weight.to_dtype(dtype).unwrap();
                matches::<f32>(&weight, how)?;
                let quantized = nf4::quantize(&weight, true).unwrap();
                matches::<f32>(&quantized, how)?;
                if dtype != DType::F32 {
                    matches::<f64>(&weight, how)?;
                    matches::<f64>(&quantized, how)?;
                }
            }
        }
    }

    #[test]
    fn many_rows_are_cut_into_tasks() {
        let weight = Tensor::from_vec(values(700 * 512, "w"), [700, 512]).unwrap().to_dtype(DType::BF16).unwrap();
        matches::<f32>(&weight, 2).unwrap();
        matches::<f32>(&nf4::quantize(&weight, true).unwrap(), 1).unwrap();
    }
}
