//! Norms of the rows of a matrix after a low-rank update, without forming the sum: what DoRA (Liu et al., 2024) divides by.
//!
//! ```text
//! || w_i + s b_i A ||^2 = ||w_i||^2 + 2 s <b_i, A w_i> + s^2 b_i (A A^T) b_i^T
//! ```
//!
//! `W` `[out, in]` with rows `w_i`, `A` `[r, in]`, `B` `[out, r]` with rows `b_i`. The weight is read by [`row_squares`],
//! once, and by the product `A W^T` `[r, out]`, which [`linear`](crate::linear()) of `A` is: a weight of any storage will do.
//!
//! Both functions have no gradient: DoRA treats the norm as a constant in the backward pass.

#[doc(hidden)]
pub mod cases;
mod gpu;

use crate::check;
use crate::dispatch::for_float;
use crate::kernels::{Accumulate, Mat, gemm};
use crate::linear::weight::Source;
use hankel_core::{Buffer, CpuStorage, Error, Float, Result, Tensor, parallel};

/// `||w_i||^2` of each row of `weight` `[out, in]`: `[out]`, in `f64` for a weight in `f64` and in `f32` for any other.
///
/// # Errors
/// When `weight` is not a matrix of floats.
pub fn row_squares(weight: &Tensor) -> Result<Tensor> {
    let &[outputs, inputs] = &weight.shape()[..] else {
        return Err(Error::shape("row_squares", format!("expected a matrix, found {}", weight.shape())));
    };
    if let Some(gpu) = weight.gpu() {
        return gpu::row_squares(gpu, weight);
    }
    /// `square` of each row.
    fn each<T: Float>([outputs, inputs]: [usize; 2], square: impl Fn(usize) -> f64 + Sync) -> Result<Tensor> {
        let mut out = Buffer::<T>::unspecified(outputs);
        parallel::for_row_blocks(&mut out, 1, (parallel::GRAIN / inputs.max(1)).max(1), |first, piece| {
            for (i, sum) in (first..).zip(piece) {
                *sum = T::of(square(i));
            }
        });
        Tensor::from_buffer(out, [outputs])
    }
    fn sum<T: Float>(row: &[T]) -> f64 {
        row.iter().map(|x| x.f64().powi(2)).sum()
    }
    let sizes = [outputs, inputs];
    let storage = weight.cpu_storage("row_squares")?;
    match storage {
        CpuStorage::F64(data) => each::<f64>(sizes, |i| sum(&data[i * inputs..(i + 1) * inputs])),
        CpuStorage::F32(data) => each::<f32>(sizes, |i| sum(&data[i * inputs..(i + 1) * inputs])),
        _ => {
            let source = Source::of(storage).ok_or_else(|| Error::DType {
                operator: "row_squares",
                expected: "a float",
                found: weight.dtype(),
            })?;
            each::<f32>(sizes, |i| {
                let mut piece = [0.0_f32; 256];
                let mut square = 0.0;
                for start in (0..inputs).step_by(piece.len()) {
                    let piece = &mut piece[..256.min(inputs - start)];
                    source.decode(i * inputs + start, piece);
                    square += sum(piece);
                }
                square
            })
        }
    }
}

/// `1 / || w_i + scale b_i A ||` of each row: `[out]`; 0 for a row of zeros.
///
/// `squares` `[out]` is [`row_squares`] of the weight, `product` `[r, out]` is `A W^T`. Where the update all but cancels a row,
/// rounding limits the square of the norm: it is taken to be at least the rounding error of its largest term.
///
/// # Errors
/// When shapes or element types do not fit.
pub fn inverse_row_norms(squares: &Tensor, product: &Tensor, a: &Tensor, b: &Tensor, scale: f64) -> Result<Tensor> {
    let (&[rank, inputs], &[outputs, _]) = (&a.shape()[..], &b.shape()[..]) else {
        let problem = format!("expected matrices A and B, found {} and {}", a.shape(), b.shape());
        return Err(Error::shape("inverse_row_norms", problem));
    };
    check::shape("inverse_row_norms", "B", b, &[outputs, rank])?;
    check::shape("inverse_row_norms", "squares", squares, &[outputs])?;
    check::shape("inverse_row_norms", "product", product, &[rank, outputs])?;
    for (name, tensor) in [("B", b), ("squares", squares), ("product", product)] {
        check::dtype("inverse_row_norms", name, tensor, a.dtype())?;
    }
    if let Some(gpu) = a.gpu() {
        return gpu::inverse_row_norms(gpu, squares, product, a, b, scale);
    }
    for_float!(a, "inverse_row_norms", T => {
        let matrix = Mat::new(a.data::<T>()?, rank, inputs);
        let mut gram = Buffer::<T>::unspecified(rank * rank);
        gemm(1.0, matrix, &matrix.t(), Accumulate::Overwrite, &mut gram, rank);
        let (squares, product, b) = (squares.data::<T>()?, product.data::<T>()?, b.data::<T>()?);
        let mut out = Buffer::<T>::unspecified(outputs);
        parallel::for_row_blocks(&mut out, 1, 64, |first, piece| {
            for (i, inverse) in (first..).zip(piece) {
                let row = &b[i * rank..(i + 1) * rank];
                let cross: f64 = row.iter().enumerate().map(|(k, &b)| (b * product[k * outputs + i]).f64()).sum();
                let own: f64 = row.iter().zip(gram.chunks(rank.max(1))).map(|(&b, gram)| {
                    b.f64() * gram.iter().zip(row).map(|(&g, &b)| g.f64() * b.f64()).sum::<f64>()
                }).sum();
                let terms = [squares[i].f64(), 2.0 * scale * cross, scale * scale * own];
                let floor = Float::f64(T::EPSILON) * terms.iter().fold(0.0, |m: f64, t| m.max(t.abs()));
                let square = terms.iter().sum::<f64>().max(floor);
                *inverse = if square > 0.0 { T::of(1.0 / square.sqrt()) } else { 0.0 };
            }
        });
        Tensor::from_buffer(out, [outputs])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::nf4;
    use hankel_core::gpu::for_tests;
    use hankel_core::{DType, Device, Random};

    #[test]
    fn squares_of_a_weight_in_any_storage() {
        let (outputs, inputs) = (5, 301);
        let values = Random::new(1, "weight", 0).normal_vec::<f32>(outputs * inputs, 0.3);
        let weight = Tensor::from_vec(values, [outputs, inputs]).unwrap();
        let stored = [
            weight.to_dtype(DType::F64).unwrap(),
            weight.to_dtype(DType::BF16).unwrap(),
            weight.to_dtype(DType::F16).unwrap(),
            nf4::quantize(&weight, false).unwrap(),
            nf4::quantize(&weight, true).unwrap(),
            weight,
        ];
        for weight in stored {
            let squares = row_squares(&weight).unwrap();
            assert_eq!(squares.dtype(), if weight.dtype() == DType::F64 { DType::F64 } else { DType::F32 });
            let values = weight.to_f64_vec();
            if let (Some(gpu), true) = (for_tests(), weight.dtype() != DType::F64) {
                let there = row_squares(&weight.to_device(Device::Gpu(gpu)).unwrap()).unwrap();
                assert_eq!(there.device(), Device::Gpu(gpu));
                let pairs = there.to_f64_vec().into_iter().zip(squares.to_f64_vec());
                pairs.for_each(|(a, b)| assert!((a / b - 1.0).abs() < 1e-6, "{}: {a} {b}", weight.dtype()));
            }
            for (row, square) in values.chunks(inputs).zip(squares.to_f64_vec()) {
                let expected: f64 = row.iter().map(|x| x * x).sum();
                assert!((square / expected - 1.0).abs() < 1e-6, "{}: {square} {expected}", weight.dtype());
            }
        }
        let tokens = Tensor::full([2, 2], 1_u32);
        assert!(row_squares(&tokens).unwrap_err().to_string().contains("row_squares"));
    }
}
