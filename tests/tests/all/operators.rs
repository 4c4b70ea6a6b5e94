//! Every operator: against its oracle in f32 and f64, and its gradient against central differences.

use hankel_core::{DType, Device, Gradients, Random, Result, Tensor, no_grad};
use hankel_ops::testing::{Case, Input, OPERATORS, ShapeRng, Values};
use hankel_tests::decoders;
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

/// Outputs and gradients, however many threads share the work.
#[test]
fn bits_do_not_depend_on_threads() {
    let bits = |case: &Case| -> Vec<Vec<u64>> {
        let x = inputs(case, DType::F32, true).unwrap();
        let out = (case.run)(&x).unwrap();
        let seed = Random::new(2, "seed", 0).normal_vec::<f32>(out.elements(), 1.0);
        let seed = Tensor::from_vec(seed, out.shape()).unwrap();
        let gradients = if out.is_tracked() { out.backward_with(seed).unwrap() } else { Gradients::default() };
        let found = std::iter::once(&out).chain(x.iter().filter_map(|x| gradients.get(x)));
        found.map(|x| x.to_f64_vec().into_iter().map(f64::to_bits).collect()).collect()
    };
    let on = |threads: usize| -> Vec<(String, Vec<Vec<u64>>)> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let cases =
                OPERATORS.iter().flat_map(|operator| (operator.cases)().into_iter().map(move |c| (operator, c)));
            cases.map(|(operator, case)| (format!("{} {}", operator.name, case.name), bits(&case))).collect()
        })
    };
    let alone = on(1);
    for threads in [2, 7] {
        for ((name, alone), (_, found)) in alone.iter().zip(on(threads)) {
            assert!(*alone == found, "{name} on {threads} threads");
        }
    }
}

/// In single precision, too.
#[test]
fn limits_that_are_none_are_refused() {
    let x = Tensor::full([2], 0.5_f32);
    for cap in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-50, 1e300] {
        assert!(hankel_ops::soft_cap(&x, cap).is_err(), "{cap}");
    }
    for (low, high) in [(5.0, 1.0), (f64::NAN, 1.0), (0.0, f64::NAN)] {
        assert!(hankel_ops::clamp(&x, low, high).is_err(), "{low} {high}");
    }
    assert!(hankel_ops::clamp(&x, 1.0, 1.0).is_ok());
}

#[test]
fn every_folder_has_a_line_in_the_list() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../ops/src");
    for entry in std::fs::read_dir(source).unwrap().map(Result::unwrap).filter(|e| e.path().is_dir()) {
        let folder = entry.file_name().into_string().unwrap();
        let named = OPERATORS.iter().any(|operator| operator.name == folder);
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

/// Rules that write onto what others have added to a gradient give the sum: here each input has an addend before the rule runs.
#[test]
fn gradients_are_added_to_what_there_is() {
    let devices = decoders::devices();
    for (operator, device) in OPERATORS.iter().flat_map(|o| devices.iter().map(move |&d| (o, d))) {
        for case in (operator.cases)() {
            let name = format!("{} {} on {device}", operator.name, case.name);
            let dtype = if device == Device::Cpu { DType::F64 } else { DType::F32 };
            let place = |(x, input): (&Tensor, &Input)| match input.values {
                Values::Tokens(_) => x.clone(),
                _ if input.tracked => x.to_device(device).unwrap().parameter().unwrap(),
                _ => x.to_device(device).unwrap(),
            };
            let x: Vec<Tensor> = inputs(&case, dtype, false).unwrap().iter().zip(&case.inputs).map(place).collect();
            let y = (case.run)(&x).unwrap();
            if !y.is_tracked() {
                continue;
            }
            let seed = || y.full_like(y.shape(), 0.75).unwrap();
            let plain = y.backward_with(seed()).unwrap();
            let y = (case.run)(&x).unwrap();
            let addends = x.clone();
            let parents: Vec<Option<&Tensor>> = std::iter::once(&y).chain(&x).map(Some).collect();
            let above = y.detach().from_operator("above", &parents, move |g, wanted| {
                let one = |(x, &wanted): (&Tensor, &bool)| wanted.then(|| x.full_like(x.shape(), 1.0)).transpose();
                let ones: Vec<Option<Tensor>> = addends.iter().zip(&wanted[1..]).map(one).collect::<Result<_>>()?;
                Ok(std::iter::once(Some(g)).chain(ones).collect())
            });
            let summed = above.unwrap().backward_with(seed()).unwrap();
            for (i, x) in x.iter().enumerate().filter(|(_, x)| x.is_tracked()) {
                let plain = plain.get(x).map_or_else(|| vec![0.0; x.elements()], Tensor::to_f64_vec);
                let scale = plain.iter().fold(1.0_f64, |m, x| m.max(x.abs()));
                let tolerance = scale * if dtype == DType::F64 { 1e-12 } else { 1e-5 };
                for (found, plain) in summed.get(x).unwrap().to_f64_vec().iter().zip(plain) {
                    assert!((found - 1.0 - plain).abs() <= tolerance, "{name}: input {i}: {found}, {plain} without");
                }
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
