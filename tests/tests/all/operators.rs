//! Every operator: against its oracle in f32 and f64, and its gradient against central differences.

use hankel_core::{DType, Gradients, Random, Result, Tensor, no_grad};
use hankel_ops::testing::{Case, OPERATORS, ShapeRng};
use hankel_tests::gradients::relative_error;
use hankel_tests::operators::{against_oracle, inputs};
use proptest::prelude::*;

fn gradient(operator: &str, case: &Case) {
    let name = format!("{operator} {}", case.name);
    let x = inputs(case, DType::F64, true).unwrap();
    let error = relative_error(&x, 40, |x| (case.run)(x)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(error < 1e-6, "{name}: relative error of the gradient {error:e}");
}

#[test]
fn outputs_equal_the_oracle() {
    for operator in OPERATORS {
        for case in (operator.cases)() {
            against_oracle(operator.name, &case, DType::F64, 1e-12);
            against_oracle(operator.name, &case, DType::F32, 5e-6);
        }
    }
}

#[test]
fn gradients_equal_central_differences() {
    for operator in OPERATORS {
        (operator.cases)().iter().for_each(|case| gradient(operator.name, case));
    }
}

#[test]
fn recording_does_not_change_the_output() {
    for operator in OPERATORS {
        for case in (operator.cases)() {
            let x = inputs(&case, DType::F32, true).unwrap();
            let (recorded, plain) = ((case.run)(&x).unwrap(), no_grad(|| (case.run)(&x)).unwrap());
            assert_eq!(recorded.to_f64_vec(), plain.to_f64_vec(), "{} {}", operator.name, case.name);
        }
    }
}

#[test]
fn every_folder_has_a_line_in_the_list() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../ops/src");
    for entry in std::fs::read_dir(source).unwrap().map(Result::unwrap).filter(|e| e.path().is_dir()) {
        let folder = entry.file_name().into_string().unwrap();
        let named = OPERATORS.iter().any(|operator| operator.name.starts_with(&folder));
        // No operators: what they share, and the optimizer, which has tests of its own.
        assert!(
            named || ["kernels", "optimizer", "sums"].contains(&&*folder),
            "operator folder {folder} has no line in ops/src/testing.rs"
        );
    }
}

#[test]
fn every_gradient_can_be_asked_for_alone() {
    for operator in OPERATORS {
        for case in (operator.cases)() {
            let all = inputs(&case, DType::F64, true).unwrap();
            let full = (case.run)(&all).unwrap();
            if !full.is_tracked() {
                continue;
            }
            let seed =
                Tensor::from_vec(Random::new(2, "seed", 0).normal_vec::<f64>(full.elements(), 1.0), full.shape())
                    .unwrap();
            let full = full.backward_with(seed.clone()).unwrap();
            for which in (0..all.len()).filter(|&i| all[i].is_tracked()) {
                let one: Vec<Tensor> =
                    (0..all.len()).map(|i| if i == which { all[i].clone() } else { all[i].detach() }).collect();
                let output = (case.run)(&one).unwrap();
                let alone = if output.is_tracked() {
                    output.backward_with(seed.clone()).unwrap()
                } else {
                    Gradients::default()
                };
                let (alone, full) = (alone.get(&all[which]), full.get(&all[which]));
                let close = match (alone, full) {
                    (Some(a), Some(b)) => {
                        let scale = b.to_f64_vec().iter().fold(1.0_f64, |m, x| m.max(x.abs()));
                        a.to_f64_vec().iter().zip(b.to_f64_vec()).all(|(a, b)| (a - b).abs() <= 1e-12 * scale)
                    }
                    (None, None) => true,
                    _ => false,
                };
                assert!(close, "{} {}: input {which} alone", operator.name, case.name);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn random_shapes(seed in any::<u64>()) {
        for operator in OPERATORS {
            let case = (operator.random)(&mut ShapeRng::new(seed));
            against_oracle(operator.name, &case, DType::F64, 1e-11);
            against_oracle(operator.name, &case, DType::F32, 1e-5);
        }
    }

    #[test]
    fn random_shapes_gradients(seed in any::<u64>()) {
        // One operator for each seed: a gradient check costs hundreds of evaluations.
        let operator = &OPERATORS[(seed % OPERATORS.len() as u64) as usize];
        gradient(operator.name, &(operator.random)(&mut ShapeRng::new(seed)));
    }
}
