//! Every operator of the registry on a GPU against the CPU: outputs and gradients. Skipped, with a word, where there is no GPU.

use hankel_core::gpu::for_tests;
use hankel_core::{DType, Device, Random, Tensor};
use hankel_ops::registry::{Case, Dice, OPERATORS, Values};
use hankel_tests::operators::inputs;

/// Operators that a GPU does not have yet: they are refused by name.
const WITHOUT_KERNEL: &[&str] = &["causal_conv", "orthogonality", "row_norms"];

/// Largest difference from the CPU, relative to the largest value.
const TOLERANCE: f64 = 1e-5;

fn close(name: &str, cpu: &Tensor, gpu: &Tensor) {
    assert_eq!(cpu.shape(), gpu.shape(), "{name}");
    let (cpu, gpu) = (cpu.to_f64_vec(), gpu.to_f64_vec());
    let scale = cpu.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
    for (i, (cpu, gpu)) in cpu.iter().zip(&gpu).enumerate() {
        assert!(
            (cpu - gpu).abs() <= TOLERANCE * scale,
            "{name}: element {i} is {gpu}, on the CPU {cpu}, scale {scale}"
        );
    }
}

fn compare(operator: &str, case: &Case, device: Device) {
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
    close(&name, &cpu, &gpu);
    if !cpu.is_tracked() {
        return;
    }
    let seed: Vec<f32> = Random::new(2, "seed", 0).normal_vec(cpu.elements(), 1.0);
    let seed = Tensor::from_vec(seed, cpu.shape()).unwrap();
    let cpu = cpu.backward_with(seed.clone()).unwrap();
    let gpu = gpu.backward_with(seed.to_device(device).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"));
    for (i, (here, there)) in here.iter().zip(&there).enumerate() {
        match (cpu.get(here), gpu.get(there)) {
            (Some(cpu), Some(gpu)) => close(&format!("{name}: gradient of input {i}"), cpu, gpu),
            (None, None) => {}
            (cpu, gpu) => panic!("{name}: gradient of input {i}: {} {}", cpu.is_some(), gpu.is_some()),
        }
    }
}

#[test]
fn operators_agree_with_the_cpu() {
    let Some(gpu) = for_tests() else { return };
    let only = std::env::var("OPERATOR").unwrap_or_default();
    for operator in OPERATORS.iter().filter(|o| !WITHOUT_KERNEL.contains(&o.name) && o.name.contains(&only)) {
        (operator.cases)().iter().for_each(|case| compare(operator.name, case, Device::Gpu(gpu)));
        for seed in 0..20 {
            compare(operator.name, &(operator.random)(&mut Dice::new(seed)), Device::Gpu(gpu));
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
