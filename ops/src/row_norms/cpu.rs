//! Row by row, with sums in doubles.

use crate::dispatch::for_float;
use crate::kernels::{Accumulate, Mat, gemm};
use crate::linear::weight::Source;
use hankel_core::{Buffer, CpuStorage, Error, Float, Result, Tensor, parallel};

pub(super) fn row_squares(weight: &Tensor) -> Result<Tensor> {
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
    let sizes = [weight.shape()[0], weight.shape()[1]];
    let inputs = sizes[1];
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

pub(super) fn inverse_row_norms(
    squares: &Tensor,
    product: &Tensor,
    a: &Tensor,
    b: &Tensor,
    scale: f64,
) -> Result<Tensor> {
    let (rank, inputs, outputs) = (a.shape()[0], a.shape()[1], b.shape()[0]);
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
