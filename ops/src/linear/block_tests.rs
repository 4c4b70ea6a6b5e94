//! Products with weights in block formats, against the same products with the decoded weight.

use super::linear;
use hankel_core::block_formats::{BlockFormat, BlockMatrix, GGML_FORMATS};
use hankel_core::{Buffer, DType, Precision, Random, Tensor, with_precision};
use proptest::prelude::*;

/// Blocks of random codes. The mask leaves every half-precision scale below 1.
pub(super) fn random_blocks(format: &'static dyn BlockFormat, rows: usize, cols: usize) -> Tensor {
    let random = Random::new(2, format.name(), 0);
    let bytes = rows * cols / format.block_size() * format.block_bytes();
    let bytes: Vec<u8> = (0..bytes as u64).map(|i| random.below(i, 256) as u8 & 0x3b).collect();
    let matrix = BlockMatrix::new(format, Buffer::from(bytes), rows * cols).unwrap();
    Tensor::from_blocks(matrix, [rows, cols]).unwrap()
}

fn matrix(name: &str, rows: usize, cols: usize) -> Tensor {
    Tensor::from_vec(Random::new(1, name, 0).normal_vec::<f32>(rows * cols, 1.0), [rows, cols]).unwrap()
}

/// The product and the gradient of the input.
fn both(x: &Tensor, weight: &Tensor, g: &Tensor) -> [Vec<f64>; 2] {
    let x = x.parameter().unwrap();
    let y = linear(&x, weight, None).unwrap();
    let gradient = y.backward_with(g.clone()).unwrap().take(&x).unwrap();
    [y.to_f64_vec(), gradient.to_f64_vec()]
}

fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    let largest = b.iter().fold(1e-30_f64, |largest, x| largest.max(x.abs()));
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).max_by(f64::total_cmp).unwrap_or(0.0) / largest
}

fn equals_the_decoded_product(rows: usize, outputs: usize, blocks_of_row: usize) -> Result<(), TestCaseError> {
    for (_, format) in GGML_FORMATS {
        let inputs = blocks_of_row * format.block_size();
        let weight = random_blocks(format, outputs, inputs);
        let decoded = weight.to_dtype(DType::F32).unwrap();
        let (x, g) = (matrix("x", rows, inputs), matrix("g", rows, outputs));
        let [found, expected] = [&weight, &decoded].map(|weight| both(&x, weight, &g));
        let name = format.name();
        // A few rows are summed in another order than those of a plain weight; tiles see the same numbers.
        prop_assert!(largest_difference(&found[0], &expected[0]) <= if rows <= 8 { 1e-5 } else { 0.0 }, "{name}");
        prop_assert_eq!(&found[1], &expected[1], "{}", name);

        let [x, g] = [&x, &g].map(|tensor| tensor.to_dtype(DType::F64).unwrap());
        let [found, expected] = [&weight, &decoded.to_dtype(DType::F64).unwrap()].map(|weight| both(&x, weight, &g));
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert!(largest_difference(found, expected) <= 1e-13, "{name} in f64");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn products_equal_those_of_the_decoded_weight(rows in 1_usize..20, outputs in 1_usize..50, blocks in 1_usize..5) {
        equals_the_decoded_product(rows, outputs, blocks)?;
    }
}

#[test]
fn large_products_equal_those_of_the_decoded_weight() {
    equals_the_decoded_product(70, 530, 3).unwrap();
    equals_the_decoded_product(1, 300, 4).unwrap();
}

#[test]
fn products_of_rounded_operands() {
    for (_, format) in GGML_FORMATS {
        let weight = random_blocks(format, 40, 2 * format.block_size());
        let (x, g) = (matrix("x", 9, 2 * format.block_size()), matrix("g", 9, 40));
        let wide = weight.to_dtype(DType::BF16).unwrap();
        let [found, expected] = [&weight, &wide].map(|w| with_precision(Precision::Bf16, || both(&x, w, &g)));
        assert_eq!(found, expected, "{}", format.name());
    }
}
