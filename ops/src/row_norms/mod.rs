//! Norms of the rows of a matrix after a low-rank update, without forming the sum: what DoRA (Liu et al., 2024) divides by.
//!
//! ```text
//! || w_i + s b_i A ||^2 = ||w_i||^2 + 2 s <b_i, A w_i> + s^2 b_i (A A^T) b_i^T
//! ```
//!
//! `W` `[out, in]` with rows `w_i`, `A` `[r, in]`, `B` `[out, r]` with rows `b_i`. The weight is read by [`row_squares`],
//! once, and by the product `A W^T` `[r, out]`, which is [`linear`](crate::linear()) of `A`. The weight may have any storage.
//!
//! Both functions have no gradient, and refuse inputs that need one: DoRA treats the norm as a constant in the backward pass.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use hankel_core::{DType, Error, Result, Tensor};

/// `||w_i||^2` of each row of `weight` `[out, in]`: `[out]`, in `f64` for a weight in `f64` and in `f32` for any other.
///
/// # Errors
/// When `weight` is not a matrix of floats.
pub fn row_squares(weight: &Tensor) -> Result<Tensor> {
    const NAME: &str = "row_squares";
    if weight.shape().len() != 2 {
        return Err(Error::shape(NAME, format!("expected a matrix, found {}", weight.shape())));
    }
    if let found @ (DType::U8 | DType::U32) = weight.dtype() {
        return Err(Error::DType { operator: NAME, expected: "a float", found });
    }
    on_device!(weight, row_squares(weight))?.from_untracked(NAME, &[weight])
}

/// `1 / || w_i + scale b_i A ||` of each row: `[out]`; 0 for a row of zeros.
///
/// `squares` `[out]` is [`row_squares`] of the weight, `product` `[r, out]` is `A W^T`. Where the update all but cancels a row,
/// rounding limits the square of the norm: it is taken to be at least the rounding error of its largest term.
///
/// # Errors
/// When shapes, element types or devices do not fit.
pub fn inverse_row_norms(squares: &Tensor, product: &Tensor, a: &Tensor, b: &Tensor, scale: f64) -> Result<Tensor> {
    const NAME: &str = "inverse_row_norms";
    let (&[rank, _], &[outputs, _]) = (&a.shape()[..], &b.shape()[..]) else {
        let problem = format!("expected matrices A and B, found {} and {}", a.shape(), b.shape());
        return Err(Error::shape(NAME, problem));
    };
    check::float(NAME, a)?;
    check::input(NAME, "B", b, &[outputs, rank], a)?;
    check::input(NAME, "squares", squares, &[outputs], a)?;
    check::input(NAME, "product", product, &[rank, outputs], a)?;
    on_device!(a, inverse_row_norms(squares, product, a, b, scale))?.from_untracked(NAME, &[squares, product, a, b])
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
        let learnt = Tensor::full([2, 2], 1.0_f32).parameter().unwrap();
        assert!(row_squares(&learnt).unwrap_err().to_string().contains("row_squares has no gradient"));
        let (ones, square) = (Tensor::full([2], 1.0_f32), learnt.detach());
        let norms = |a: &Tensor| inverse_row_norms(&ones, &square, a, &square, 1.0);
        assert!(norms(&learnt).unwrap_err().to_string().contains("inverse_row_norms has no gradient"));
        norms(&square).unwrap();
        let tokens = Tensor::full([2, 2], 1_u32);
        assert!(row_squares(&tokens).unwrap_err().to_string().contains("row_squares"));
    }
}
