//! Every operator on a GPU against the CPU: outputs and gradients. Skipped, with a word, where there is no GPU.

use hankel_core::gpu::{Gpu, for_tests};
use hankel_core::{DType, Device, Random, Result, Tensor};
use hankel_ops::testing::{Array, Case, OPERATORS, ShapeRng, Values};
use hankel_ops::{
    Head, Heads, Poles, ScanPath, Targets, add, add_scaled, attention, causal_conv, cross_entropy, rms_norm, scan,
};
use hankel_tests::largest_difference;
use hankel_tests::operators::inputs;
use proptest::prelude::*;

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
            // The seed is of size 1, and gradients of normalised rows of one or two elements cancel to almost nothing: an H200 leaves
            // 1e-6 of terms of up to 316.
            (Some(cpu), Some(gpu)) => close(&format!("{name}: gradient of input {i}"), [tolerance, 0.2], cpu, gpu),
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
    #![proptest_config(hankel_tests::cases(24))]
    #[test]
    fn random_shapes_agree_with_the_cpu(seed in any::<u64>()) {
        if let Some(gpu) = for_tests() {
            for operator in OPERATORS {
                compare(operator.name, &(operator.random)(&mut ShapeRng::new(seed)), Device::Gpu(gpu), RANDOM_TOLERANCE);
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

/// Numbers between -1 and 1, others for each name.
fn noise(name: &str, shape: &[usize]) -> Tensor {
    let start = name.bytes().fold(7_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let value = |i: u32| {
        let mixed = (i ^ (i >> 15)).wrapping_add(start).wrapping_mul(0x9e37_79b1);
        (mixed ^ (mixed >> 13)).wrapping_mul(0x85eb_ca6b) as i32 as f32 / 2.0_f32.powi(31)
    };
    Tensor::from_vec((0..shape.iter().product::<usize>() as u32).map(value).collect(), shape).unwrap()
}

/// Compares output and all gradients with those of the CPU.
fn agree(name: &str, tolerance: f64, gpu: &'static Gpu, inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let run = |device: Device| {
        let leaves: Vec<Tensor> = inputs.iter().map(|x| x.to_device(device).unwrap().parameter().unwrap()).collect();
        let y = f(&leaves).unwrap_or_else(|e| panic!("{name}: {e}"));
        let seed = noise("seed", y.shape()).to_device(device).unwrap();
        let gradients = y.backward_with(seed).unwrap_or_else(|e| panic!("{name}: {e}"));
        let of_leaves = leaves.iter().map(|leaf| gradients.get(leaf).unwrap().clone());
        std::iter::once(y.detach()).chain(of_leaves).collect::<Vec<_>>()
    };
    for (i, (cpu, gpu)) in run(Device::Cpu).iter().zip(run(Device::Gpu(gpu))).enumerate() {
        let what = if i == 0 { "output".to_owned() } else { format!("gradient {i}") };
        close(&format!("{name}: {what}"), [tolerance, 0.1], cpu, &gpu);
    }
}

#[test]
fn convolutions_of_any_length() {
    let Some(gpu) = for_tests() else { return };
    // One launch: radix 2, 4 and 8 alone and after 8. Then columns and rows, of the same length or not.
    let short = [1, 2, 4, 8, 16, 1024].map(|steps| [1, steps, 1]);
    let long = [[3, 1025, 3], [2, 5000, 2], [1, 131_072, 1]];
    for [batch, steps, channels] in short.into_iter().chain(long) {
        let inputs = [noise("u", &[batch, steps, channels]), noise("kernel", &[channels, steps])];
        let name = format!("causal_conv {batch} x {steps} x {channels}");
        agree(&name, TOLERANCE, gpu, &inputs, |x| causal_conv(&x[0], &x[1]));
    }
}

#[test]
fn more_workgroups_than_one_dimension_has() {
    let Some(gpu) = for_tests() else { return };
    const N: usize = 65_537;
    // Of 256 elements, rows, sequences of a dense recurrence, pieces of 128 steps, rows of a loss.
    agree("add", TOLERANCE, gpu, &[noise("x", &[256 * N])], |x| add(&x[0], &x[0]));
    agree("rms_norm", TOLERANCE, gpu, &[noise("x", &[N, 3]), noise("w", &[3])], |x| rms_norm(&x[0], &x[1], 1e-5));
    agree("dense scan", TOLERANCE, gpu, &[noise("u", &[N, 1, 2]), noise("a", &[2, 2])], |x| {
        scan(&x[0], &Poles::Dense(x[1].clone()), None, ScanPath::Sequential)
    });
    let poles = Tensor::from_vec(vec![0.5_f32], [1]).unwrap();
    agree("scan", TOLERANCE, gpu, &[noise("u", &[N, 128, 1]), poles], |x| {
        scan(&x[0], &Poles::Diagonal(x[1].clone()), None, ScanPath::Chunked)
    });
    let (tokens, weights) = (Tensor::full([N], 1_u32), Tensor::full([N], 1.0_f32));
    agree("cross_entropy", TOLERANCE, gpu, &[noise("x", &[N, 2]), noise("w", &[3, 2])], |x| {
        let targets = Targets { tokens: &tokens, weights: &weights, smoothing: 0.1, normalizer: 1e3 };
        cross_entropy(&x[0], Head::new(&x[1]), targets)
    });
    // The sum of a whole tensor: a gradient of a single number.
    let inputs = [noise("x", &[N]), noise("y", &[N]), noise("f", &[1])];
    agree("add_scaled", TOLERANCE, gpu, &inputs, |x| add_scaled(&x[0], &x[1], &x[2]));
    // Sequences at once are what attention has no more dimensions for.
    let x = noise("x", &[N, 1, 2]).to_device(Device::Gpu(gpu)).unwrap();
    let refused = attention(&x, &x, &x, Heads { query: 1, key_value: 1 }, None).unwrap_err().to_string();
    assert!(refused.contains("attention: 65537 workgroups"), "{refused}");
}

/// A recurrence of slow poles over many steps: what is wrong in a pole adds up.
#[test]
fn long_recurrences_agree_on_every_path() {
    let Some(gpu) = for_tests() else { return };
    let (batch, steps, real, pairs) = (3, 2500, 3, 4);
    let radius = (0..real + pairs).map(|i| 1.0 - 0.1_f32.powf(0.5 + 0.4 * i as f32)).collect();
    let angle = (0..pairs).map(|i| -3.0 + 1.7 * i as f32).collect();
    let sign = (0..real).map(|i| if i % 2 == 0 { 1.0_f32 } else { -1.0 }).collect();
    let [radius, angle, sign] = [(radius, real + pairs), (angle, pairs), (sign, real)]
        .map(|(values, n): (Vec<f32>, usize)| Tensor::from_vec(values, [n]).unwrap());
    let dim = real + 2 * pairs;
    let (u, start, seed) =
        (noise("u", &[batch, steps, dim]), noise("start", &[batch, dim]), noise("seed", &[batch, steps, dim]));
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
    let errors = |device, path| -> Vec<f64> {
        let error = |(exact, found): (&Tensor, Tensor)| {
            let (exact, found) = (exact.to_f64_vec(), found.to_f64_vec());
            let scale = exact.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
            largest_difference(&found, &exact) / scale
        };
        exact.iter().zip(run(device, DType::F32, path)).map(error).collect()
    };
    for path in [ScanPath::Sequential, ScanPath::Chunked, ScanPath::Fft] {
        // Poles are rounded to f32, and what is lost there counts for the 800 steps that a state lasts: as much on the CPU.
        let (cpu, gpu) = (errors(Device::Cpu, path), errors(Device::Gpu(gpu), path));
        for (i, (cpu, gpu)) in cpu.iter().zip(&gpu).enumerate() {
            assert!(*gpu <= 2.0 * cpu + 1e-5, "{path:?}, tensor {i}: error {gpu:e}, on the CPU {cpu:e}");
        }
    }
}
