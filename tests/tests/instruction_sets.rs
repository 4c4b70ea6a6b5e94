//! Every operator against its oracle with the instructions of lesser processors: this one would never run those kernels.
//!
//! The choice holds for the whole process, so this is one test in a file of its own.

use hankel_core::{DType, Precision, Random, Tensor, with_precision};
use hankel_ops::kernels::simd::{InstructionSet, limit};
use hankel_ops::linear;
use hankel_ops::linear::nf4::quantize;
use hankel_ops::testing::OPERATORS;
use hankel_tests::gradients::relative_error;
use hankel_tests::operators::{against_oracle, inputs};

#[test]
fn every_instruction_set_gives_the_oracle_and_its_gradient() {
    let best = in_bf16();
    for set in [InstructionSet::Avx2, InstructionSet::Scalar] {
        limit(set);
        for (found, expected) in in_bf16().iter().zip(&best) {
            assert!(
                (found - expected).abs() <= 1e-5 * (1.0 + expected.abs()),
                "bf16 with {set:?}: {found} for {expected}"
            );
        }
        for operator in OPERATORS {
            for case in (operator.cases)() {
                let name = format!("{} with {set:?}", operator.name);
                against_oracle(&name, &case, DType::F64, 1e-12);
                against_oracle(&name, &case, DType::F32, 5e-6);
                let x = inputs(&case, DType::F64, true).unwrap();
                let error = relative_error(&x, 5, |x| (case.run)(x)).unwrap();
                assert!(error < 1e-6, "{name} {}: relative error of the gradient {error:e}", case.name);
            }
        }
    }
}

/// Products in `bf16`, of more rows than are multiplied one by one, and gradients of their inputs: by dot products of pairs, or of rounded operands.
fn in_bf16() -> Vec<f64> {
    let matrix = |name, rows, cols| {
        let values = Random::new(1, name, 0).normal_vec::<f32>(rows * cols, 1.0);
        Tensor::from_vec(values, [rows, cols]).unwrap()
    };
    let (plain, x, g) = (matrix("w", 40, 96), matrix("x", 11, 96).parameter().unwrap(), matrix("g", 11, 40));
    let weights = [plain.clone(), plain.to_dtype(DType::BF16).unwrap(), quantize(&plain, true).unwrap()];
    let products = weights.iter().flat_map(|weight| {
        let y = with_precision(Precision::Bf16, || linear(&x, weight, None)).unwrap();
        [y.to_f64_vec(), y.backward_with(g.clone()).unwrap().take(&x).unwrap().to_f64_vec()]
    });
    products.flatten().collect()
}
