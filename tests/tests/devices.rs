//! Every operator of the registry on a GPU against the CPU: outputs and gradients. Skipped, with a word, where there is no GPU.

use hankel_core::gpu::for_tests;
use hankel_core::{DType, Device, Random, Tensor};
use hankel_ops::registry::{Array, Case, Dice, OPERATORS, Values};
use hankel_ops::{Poles, ScanPath, causal_conv, scan};
use hankel_tests::operators::inputs;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

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

#[test]
fn operators_agree_with_the_cpu() {
    let Some(gpu) = for_tests() else { return };
    for operator in OPERATORS {
        (operator.cases)().iter().for_each(|case| compare(operator.name, case, Device::Gpu(gpu), TOLERANCE));
    }
}

proptest! {
    // The same cases in every run: what two drivers make of a sum is no property of the code.
    #![proptest_config(ProptestConfig { cases: 24, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_shapes_agree_with_the_cpu(seed in any::<u64>()) {
        if let Some(gpu) = for_tests() {
            for operator in OPERATORS {
                compare(operator.name, &(operator.random)(&mut Dice::new(seed)), Device::Gpu(gpu), RANDOM_TOLERANCE);
            }
        }
    }
}

#[test]
fn tensors_on_different_devices_are_refused_by_name() {
    let Some(gpu) = for_tests() else { return };
    let mut refused = 0;
    for operator in OPERATORS {
        for case in (operator.cases)() {
            let here = inputs(&case, DType::F32, false).unwrap();
            let floats = |i: &usize| !matches!(case.inputs[*i].values, Values::Tokens(_)) && here[*i].elements() > 0;
            let (Some(one), true) = ((0..here.len()).find(floats), (0..here.len()).filter(floats).count() > 1) else {
                continue;
            };
            for apart in [true, false] {
                // One of them is elsewhere than the others; what a case does not use may be anywhere.
                let place = |i: usize, tensor: &Tensor| {
                    let there = floats(&i) && (i == one) == apart;
                    if there { tensor.to_device(Device::Gpu(gpu)).unwrap() } else { tensor.clone() }
                };
                let mixed: Vec<Tensor> = here.iter().enumerate().map(|(i, tensor)| place(i, tensor)).collect();
                match (case.run)(&mixed) {
                    Ok(_) => {}
                    Err(hankel_core::Error::Placement { .. }) => refused += 1,
                    Err(e) => panic!("{} {}: {e}", operator.name, case.name),
                }
            }
        }
    }
    assert!(refused > 2 * OPERATORS.len(), "{refused} refusals");
}

#[test]
fn convolutions_of_any_length() {
    let Some(gpu) = for_tests() else { return };
    // One launch: radix 2, 4 and 8 alone and after 8. Then columns and rows, of the same length or not.
    let short = [1, 2, 4, 8, 16, 1024].map(|steps| [1, steps, 1]);
    let long = [[3, 1025, 3], [2, 5000, 2], [1, 131_072, 1]];
    for [batch, steps, channels] in short.into_iter().chain(long) {
        let name = format!("causal_conv {batch} x {steps} x {channels}");
        let draw = |name: &'static str, shape: &[usize]| {
            let values = Random::new(3, name, 0).normal_vec::<f32>(shape.iter().product(), 1.0);
            Tensor::from_vec(values, shape).unwrap()
        };
        let here = [draw("u", &[batch, steps, channels]), draw("kernel", &[channels, steps])];
        let seed = draw("seed", &[batch, steps, channels]);
        let run = |device: Device| {
            let [u, kernel] = here.each_ref().map(|x| x.to_device(device).unwrap().parameter().unwrap());
            let y = causal_conv(&u, &kernel).unwrap();
            let found = y.backward_with(seed.to_device(device).unwrap()).unwrap();
            [y.detach(), found.get(&u).unwrap().clone(), found.get(&kernel).unwrap().clone()]
        };
        let (cpu, gpu) = (run(Device::Cpu), run(Device::Gpu(gpu)));
        for (what, (cpu, gpu)) in ["output", "gradient of u", "gradient of the kernel"].iter().zip(cpu.iter().zip(&gpu))
        {
            close(&format!("{name}: {what}"), [TOLERANCE, 0.1], cpu, gpu);
        }
    }
}

/// A recurrence of slow poles over many steps: what is wrong in a pole adds up.
#[test]
fn long_recurrences_agree_on_every_path() {
    let Some(gpu) = for_tests() else { return };
    let (batch, steps, real, pairs) = (3, 2500, 3, 4);
    let draw = |name: &'static str, shape: &[usize]| {
        Tensor::from_vec(Random::new(4, name, 0).normal_vec::<f32>(shape.iter().product(), 1.0), shape).unwrap()
    };
    let radius = (0..real + pairs).map(|i| 1.0 - 0.1_f32.powf(0.5 + 0.4 * i as f32)).collect();
    let angle = (0..pairs).map(|i| -3.0 + 1.7 * i as f32).collect();
    let sign = (0..real).map(|i| if i % 2 == 0 { 1.0_f32 } else { -1.0 }).collect();
    let [radius, angle, sign] = [(radius, real + pairs), (angle, pairs), (sign, real)]
        .map(|(values, n): (Vec<f32>, usize)| Tensor::from_vec(values, [n]).unwrap());
    let dim = real + 2 * pairs;
    let (u, start, seed) =
        (draw("u", &[batch, steps, dim]), draw("start", &[batch, dim]), draw("seed", &[batch, steps, dim]));
    let run = |device: Device, dtype: DType, path: ScanPath| {
        let leaf = |x: &Tensor| x.to_dtype(dtype).unwrap().to_device(device).unwrap().parameter().unwrap();
        let leaves = [&u, &radius, &angle, &start].map(leaf);
        let poles = Poles::modal(&leaves[1], &leaves[2], &sign.to_dtype(dtype).unwrap()).unwrap();
        let states = scan(&leaves[0], &poles, Some(&leaves[3]), path).unwrap();
        let seed = seed.to_dtype(dtype).unwrap().to_device(device).unwrap();
        let gradients = states.backward_with(seed).unwrap();
        let of_leaves = leaves.each_ref().map(|leaf| gradients.get(leaf).unwrap().clone());
        std::iter::once(states.detach()).chain(of_leaves).collect::<Vec<_>>()
    };
    let exact = run(Device::Cpu, DType::F64, ScanPath::Sequential);
    for path in [ScanPath::Sequential, ScanPath::Chunked, ScanPath::Fft] {
        for (i, (exact, found)) in exact.iter().zip(run(Device::Gpu(gpu), DType::F32, path)).enumerate() {
            close(&format!("{path:?}, tensor {i}"), [RANDOM_TOLERANCE, 1e-3], exact, &found);
        }
    }
}
