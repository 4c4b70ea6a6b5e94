use super::*;
use hankel_core::gpu::{Gpu, for_tests};
use hankel_core::{Device, Random, Tensor};

const OPTIMIZER: AdamW = AdamW { betas: [0.9, 0.999], eps: 1e-8 };
const RATE: Rate = Rate { lr: 0.1, weight_decay: 0.5 };

fn there(gpu: &'static Gpu, values: Vec<f32>) -> Tensor {
    let n = values.len();
    Tensor::from_vec(values, [n]).unwrap().to_device(Device::Gpu(gpu)).unwrap()
}

#[test]
fn shapes_and_steps_must_fit() {
    let mut value = Tensor::zeros::<f32>([3]);
    let mut moments = Moments::new(&value).unwrap();
    let mut update = |gradient: usize, step, second_since| {
        moments.second_since = second_since;
        let gradient = Tensor::zeros::<f32>([gradient]);
        OPTIMIZER.update(&mut value, &gradient, &mut moments, step, Scale::By(1.0), RATE)
    };
    let error = update(4, 1, 0).unwrap_err();
    assert!(error.to_string().contains("gradient [4] for a parameter [3]"), "{error}");
    let error = update(3, 7, 7).unwrap_err();
    assert!(error.to_string().contains("step 7 of moments that began after step 7"), "{error}");
    update(3, 8, 7).unwrap();
}

#[test]
fn norms_of_a_gpu_are_those_of_the_cpu() {
    let Some(gpu) = for_tests() else { return };
    // Pieces of one element, some, exactly one and several; none at all.
    let sizes: [&[usize]; 4] = [&[1], &[8192, 300, 0, 8193], &[100_003, 5], &[0]];
    for (case, sizes) in sizes.iter().enumerate() {
        for size in [1e-35_f32, 1e-12, 1.0, 3e18, 1e37] {
            let draw = |(i, &n): (usize, &usize)| -> Tensor {
                let values = Random::new(case as u64, "gradient", i as u64).normal_vec::<f32>(n, 1.0);
                Tensor::from_vec(values.into_iter().map(|x| size * x).collect(), [n]).unwrap()
            };
            let here: Vec<Tensor> = sizes.iter().enumerate().map(draw).collect();
            let there: Vec<Tensor> = here.iter().map(|g| g.to_device(Device::Gpu(gpu)).unwrap()).collect();
            let exact = gradient_norm(&here).unwrap().item().unwrap();
            let found = gradient_norm(&there).unwrap();
            assert_eq!(found.device(), Device::Gpu(gpu));
            let found = found.item().unwrap();
            if exact > f64::from(f32::MAX) {
                assert!(!found.is_finite(), "{found}");
            } else {
                assert!((found - exact).abs() <= 1e-6 * exact, "{sizes:?} of size {size}: {found} for {exact}");
            }
            assert_eq!(gradient_norm(&there).unwrap().item().unwrap().to_bits(), found.to_bits());
        }
    }
    let alone = [Tensor::zeros::<f32>([1]), there(gpu, vec![0.0])];
    for pair in [[&alone[0], &alone[1]], [&alone[1], &alone[0]]] {
        assert!(matches!(gradient_norm(pair), Err(hankel_core::Error::Placement { .. })));
    }
}

#[test]
fn a_gpu_steps_as_the_cpu_and_copies_what_is_shared() {
    let Some(gpu) = for_tests() else { return };
    let normal = |seed, n| Random::new(seed, "value", 0).normal_vec::<f32>(n, 1.0);
    for n in [0, 1, 1000] {
        let mut here = Tensor::from_vec(normal(0, n), [n]).unwrap();
        let mut value = here.to_device(Device::Gpu(gpu)).unwrap().parameter().unwrap();
        let before = value.detach();
        let (mut moments, mut moments_here) = (Moments::new(&value).unwrap(), Moments::new(&here).unwrap());
        for step in 1..5 {
            if step == 3 {
                // As after a truncation.
                (moments.second_since, moments_here.second_since) = (2, 2);
            }
            let gradient = Tensor::from_vec(normal(step, n), [n]).unwrap();
            let norm = gradient_norm([&gradient]).unwrap();
            let scale = Scale::Clip { norm: &norm, limit: 2.0 };
            OPTIMIZER.update(&mut here, &gradient, &mut moments_here, step, scale, RATE).unwrap();
            let gradient = gradient.to_device(Device::Gpu(gpu)).unwrap();
            let norm = gradient_norm([&gradient]).unwrap();
            let scale = Scale::Clip { norm: &norm, limit: 2.0 };
            OPTIMIZER.update(&mut value, &gradient, &mut moments, step, scale, RATE).unwrap();
        }
        assert!(value.is_tracked() && value.device() == Device::Gpu(gpu));
        let pairs = [(&here, &value), (&moments_here.first, &moments.first), (&moments_here.second, &moments.second)];
        for (here, there) in pairs {
            let (here, there) = (here.to_f64_vec(), there.to_f64_vec());
            assert!(here.iter().zip(&there).all(|(a, b)| (a - b).abs() <= 1e-6), "{here:?} {there:?}");
        }
        assert!(before.to_f64_vec() == normal(0, n).iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
    }
}

/// Under one gradient every step moves by the learning rate, also of second moments that began anew, as after a truncation.
#[test]
fn steps_are_corrected_for_the_moments_that_began_later() {
    for device in for_tests().map(Device::Gpu).into_iter().chain([Device::Cpu]) {
        let mut value = Tensor::full([3], 1.0_f32).to_device(device).unwrap();
        let gradient = Tensor::full([3], 0.25_f32).to_device(device).unwrap();
        let mut moments = Moments::new(&value).unwrap();
        for step in 1..8 {
            if step == 4 {
                moments.second = Tensor::zeros::<f32>([3]).to_device(device).unwrap();
                moments.second_since = 3;
            }
            let rate = Rate { weight_decay: 0.0, ..RATE };
            OPTIMIZER.update(&mut value, &gradient, &mut moments, step, Scale::By(1.0), rate).unwrap();
            let expected = 1.0 - RATE.lr * step as f64;
            assert!(
                value.to_f64_vec().iter().all(|x| (x - expected).abs() < 1e-5),
                "step {step} on {device}: {value:?}"
            );
        }
    }
}

#[test]
fn what_is_not_finite_changes_nothing() {
    let devices = for_tests().map(Device::Gpu).into_iter().chain([Device::Cpu]);
    for device in devices {
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut value = Tensor::full([300], 3.0_f32).to_device(device).unwrap();
            let mut moments = Moments::new(&value).unwrap();
            let mut gradient = vec![1.0; 300];
            gradient[257] = wrong;
            let gradient = Tensor::from_vec(gradient, [300]).unwrap().to_device(device).unwrap();
            let norm = gradient_norm([&gradient]).unwrap();
            assert!(!norm.item().unwrap().is_finite());
            // Also where nothing is clipped.
            for limit in [0.0, 1.0] {
                let scale = Scale::Clip { norm: &norm, limit };
                OPTIMIZER.update(&mut value, &gradient, &mut moments, 1, scale, RATE).unwrap();
            }
            assert_eq!(value.to_f64_vec(), [3.0; 300]);
            assert_eq!([moments.first, moments.second].map(|moment| moment.to_f64_vec()), [[0.0; 300]; 2]);
        }
    }
}

#[test]
fn different_devices_are_refused() {
    let Some(gpu) = for_tests() else { return };
    let (here, far) = (Tensor::zeros::<f32>([2]), there(gpu, vec![0.0; 2]));
    for (value, gradient, of_moments) in [(&here, &far, &here), (&far, &here, &far), (&far, &far, &here)] {
        let mut moments = Moments::new(of_moments).unwrap();
        let refused =
            OPTIMIZER.update(&mut value.detach(), gradient, &mut moments, 1, Scale::By(1.0), RATE).unwrap_err();
        assert!(matches!(refused, hankel_core::Error::Placement { .. }), "{refused}");
    }
}

#[test]
fn scores_of_a_gpu_are_those_of_the_cpu() {
    let short = Sensitivity::new(&Tensor::zeros::<f32>([3])).unwrap();
    let (value, gradient) = (Tensor::zeros::<f32>([3]), Tensor::zeros::<f32>([4]));
    let error = short.clone().update(&value, &gradient, 1.0, [0.85, 0.85]).unwrap_err();
    assert!(error.to_string().contains("gradient [4] for a parameter [3]"), "{error}");
    let Some(gpu) = for_tests() else { return };
    let normal = |name, step, n| Tensor::from_vec(Random::new(3, name, step).normal_vec::<f32>(n, 1.0), [n]).unwrap();
    for n in [0, 1, 1000] {
        let there = |tensor: &Tensor| tensor.to_device(Device::Gpu(gpu)).unwrap();
        let mut here = Sensitivity::new(&normal("w", 0, n)).unwrap();
        let mut on_gpu = Sensitivity::new(&there(&normal("w", 0, n))).unwrap();
        let start = on_gpu.clone();
        for step in 0..4 {
            let (w, g) = (normal("w", step, n), normal("g", step, n));
            here.update(&w, &g, 0.5, [0.85, 0.9]).unwrap();
            on_gpu.update(&there(&w), &there(&g), 0.5, [0.85, 0.9]).unwrap();
        }
        for (here, there) in [(&here.mean, &on_gpu.mean), (&here.uncertainty, &on_gpu.uncertainty)] {
            let pairs = here.to_f64_vec().into_iter().zip(there.to_f64_vec());
            pairs.for_each(|(a, b)| assert!((a - b).abs() <= 1e-6 * a.abs().max(1e-3), "{a} {b}"));
        }
        assert!(start.mean.to_f64_vec().iter().all(|&x| x == 0.0), "what was shared is copied");
        let other = Sensitivity::new(&normal("w", 0, n)).unwrap().update(
            &there(&normal("w", 0, n)),
            &there(&normal("g", 0, n)),
            1.0,
            [0.5; 2],
        );
        assert!(other.is_err(), "means in main memory");
    }
}
