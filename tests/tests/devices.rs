//! Every operator of the registry on a GPU against the CPU: outputs and gradients. Skipped, with a word, where there is no GPU.

use hankel_core::gpu::for_tests;
use hankel_core::{DType, Device, Random, Tensor};
use hankel_ops::registry::{Array, Case, Dice, OPERATORS, Operator, Values};
use hankel_tests::operators::inputs;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Operators that a GPU does not have yet: they are refused by name.
const WITHOUT_KERNEL: &[&str] = &["causal_conv", "orthogonality", "row_norms"];

/// Largest difference from the CPU, relative to the largest value.
const TOLERANCE: f64 = 1e-5;
/// The same for random cases, some of which add up hundreds of steps beside the unit circle: two sums of floats in different
/// orders.
const RANDOM_TOLERANCE: f64 = 5e-5;

/// `floor` is the size of the numbers that were added up, below which differences are rounding.
fn close(name: &str, [tolerance, floor]: [f64; 2], cpu: &Tensor, gpu: &Tensor) {
    assert_eq!(cpu.shape(), gpu.shape(), "{name}");
    let (cpu, gpu) = (cpu.to_f64_vec(), gpu.to_f64_vec());
    let scale = cpu.iter().fold(floor, |m: f64, x| m.max(x.abs()));
    for (i, (cpu, gpu)) in cpu.iter().zip(&gpu).enumerate() {
        assert!(
            (cpu - gpu).abs() <= tolerance * scale,
            "{name}: element {i} is {gpu}, on the CPU {cpu}, scale {scale}"
        );
    }
}

fn compare(operator: &str, case: &Case, device: Device, tolerance: f64) {
    let name = format!("{operator} {}", case.name);
    let here = inputs(case, DType::F32, true).unwrap();
    let there: Vec<Tensor> = here
        .iter()
        .zip(&case.inputs)
        .map(|(tensor, input)| match input.values {
            // Tokens stay where batches are made.
            Values::Tokens(_) => tensor.clone(),
            _ if tensor.is_tracked() => tensor.to_device(device).unwrap().parameter().unwrap(),
            _ => tensor.to_device(device).unwrap(),
        })
        .collect();
    let outputs = [(case.run)(&here), (case.run)(&there)].map(|out| out.unwrap_or_else(|e| panic!("{name}: {e}")));
    let [cpu, gpu] = outputs;
    assert_eq!(gpu.device(), device, "{name}");
    close(&name, [tolerance, 1e-3], &cpu, &gpu);
    let arrays: Vec<Array> =
        case.inputs.iter().enumerate().map(|(i, input)| input.draw(&Random::new(1, &case.name, i as u64))).collect();
    let oracle: Vec<f32> = (case.oracle)(&arrays).into_iter().map(|x| x as f32).collect();
    close(&format!("{name}: oracle"), [tolerance, 1e-3], &Tensor::from_vec(oracle, cpu.shape()).unwrap(), &gpu);
    if !cpu.is_tracked() {
        return;
    }
    let seed: Vec<f32> = Random::new(2, "seed", 0).normal_vec(cpu.elements(), 1.0);
    let seed = Tensor::from_vec(seed, cpu.shape()).unwrap();
    let cpu = cpu.backward_with(seed.clone()).unwrap();
    let gpu = gpu.backward_with(seed.to_device(device).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"));
    for (i, (here, there)) in here.iter().zip(&there).enumerate() {
        match (cpu.get(here), gpu.get(there)) {
            // The seed is of size 1, and gradients of normalised rows of two elements cancel to almost nothing.
            (Some(cpu), Some(gpu)) => close(&format!("{name}: gradient of input {i}"), [tolerance, 0.1], cpu, gpu),
            (None, None) => {}
            (cpu, gpu) => panic!("{name}: gradient of input {i}: {} {}", cpu.is_some(), gpu.is_some()),
        }
    }
}

fn with_kernel() -> impl Iterator<Item = &'static Operator> {
    OPERATORS.iter().filter(|operator| !WITHOUT_KERNEL.contains(&operator.name))
}

#[test]
fn operators_agree_with_the_cpu() {
    let Some(gpu) = for_tests() else { return };
    for operator in with_kernel() {
        (operator.cases)().iter().for_each(|case| compare(operator.name, case, Device::Gpu(gpu), TOLERANCE));
    }
}

proptest! {
    // The same cases in every run: what two drivers make of a sum is no property of the code.
    #![proptest_config(ProptestConfig { cases: 24, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_shapes_agree_with_the_cpu(seed in any::<u64>()) {
        if let Some(gpu) = for_tests() {
            for operator in with_kernel() {
                compare(operator.name, &(operator.random)(&mut Dice::new(seed)), Device::Gpu(gpu), RANDOM_TOLERANCE);
            }
        }
    }
}

#[test]
fn what_has_no_kernel_is_refused_by_name() {
    let Some(gpu) = for_tests() else { return };
    for operator in OPERATORS.iter().filter(|operator| WITHOUT_KERNEL.contains(&operator.name)) {
        for case in (operator.cases)() {
            let move_there = |tensor: Tensor| tensor.to_device(Device::Gpu(gpu)).unwrap();
            let there: Vec<Tensor> = inputs(&case, DType::F32, false).unwrap().into_iter().map(move_there).collect();
            let refused = (case.run)(&there).unwrap_err();
            assert!(
                matches!(refused, hankel_core::Error::Placement { .. }),
                "{} {}: {refused}",
                operator.name,
                case.name
            );
        }
    }
}
