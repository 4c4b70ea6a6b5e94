//! Every operator against its oracle with the instructions of lesser processors: this one would never run those kernels.
//!
//! The choice holds for the whole process, so this is one test in a file of its own.

use hankel_core::DType;
use hankel_ops::kernels::simd::{InstructionSet, limit};
use hankel_ops::registry::OPERATORS;
use hankel_tests::gradients::relative_error;
use hankel_tests::operators::{against_oracle, inputs};

#[test]
fn every_instruction_set_gives_the_oracle_and_its_gradient() {
    for set in [InstructionSet::Avx2, InstructionSet::Scalar] {
        limit(set);
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
