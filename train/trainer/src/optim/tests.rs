//! The optimizer against PyTorch, on the CPU and on a GPU.

use super::golden::{Golden, close};
use hankel_core::gpu::for_tests;
use hankel_core::{Device, Float, Tensor};
use hankel_ops::optimizer::{AdamW, Moments, Rate, Scale, clip_factor, gradient_norm};

const TRAJECTORIES: [&str; 5] =
    ["adamw_default", "adamw_cosine", "adamw_large_decay", "adamw_sparse", "adamw_tiny_gradients"];

fn follows<T: Float>(name: &str, device: Device) {
    let golden = Golden::open(name);
    let facts = golden.facts();
    let number = |key: &str| facts[key].as_f64();
    let optimizer = AdamW { betas: [0, 1].map(|i| facts["betas"][i].as_f64().unwrap()), eps: number("eps").unwrap() };
    let steps = number("steps").unwrap() as usize;
    let lrs = number("lr").map_or_else(|| golden.values("lrs"), |lr| vec![lr; steps]);
    for parameter in ["p0", "p1", "p2"] {
        let at = |what: &str| format!("{parameter}.{what}");
        let mut value = golden.tensor::<T>(&at("init")).to_device(device).unwrap();
        let gradients = golden.values(&at("grads"));
        let mut moments = Moments::new(&value).unwrap();
        assert_eq!([moments.first.device(), moments.second.device()], [device; 2]);
        for step in 1..=steps {
            let n = value.elements();
            let gradient = gradients[(step - 1) * n..step * n].iter().map(|&x| T::of(x)).collect();
            let gradient = Tensor::from_vec(gradient, value.shape()).unwrap().to_device(device).unwrap();
            let rate = Rate { lr: lrs[step - 1], weight_decay: number("weight_decay").unwrap() };
            optimizer.update(&mut value, &gradient, &mut moments, step as u64, Scale::By(1.0), rate).unwrap();
            let key = at(&format!("step{step}"));
            if golden.has(&key) {
                close::<T>(&golden, &key, &value);
            }
        }
        close::<T>(&golden, &at("exp_avg"), &moments.first);
        close::<T>(&golden, &at("exp_avg_sq"), &moments.second);
    }
}

fn clips<T: Float>(device: Device) {
    let golden = Golden::open("clip");
    for (index, case) in golden.facts()["cases"].as_array().unwrap().iter().enumerate() {
        let at = |what: &str| format!("c{index}.{what}");
        let load = |i| golden.tensor::<T>(&at(&format!("g{i}"))).to_device(device).unwrap();
        let gradients: Vec<Tensor> = (0..3).map(load).collect();
        let norm = gradient_norm(&gradients).unwrap();
        assert_eq!(norm.device(), device);
        close::<T>(&golden, &at("norm"), &norm.reshape([1]).unwrap());
        let limit = case["max_norm"].as_f64().unwrap();
        let factor = T::of(clip_factor(norm.item().unwrap(), limit));
        for (i, gradient) in gradients.iter().enumerate() {
            // Without decay of the moment, its first value is the clipped gradient.
            let optimizer = AdamW { betas: [0.0, 0.999], eps: 1e-8 };
            let mut moments = Moments::new(gradient).unwrap();
            let (rate, scale) = (Rate { lr: 0.0, weight_decay: 0.0 }, Scale::Clip { norm: &norm, limit });
            optimizer.update(&mut gradient.detach(), gradient, &mut moments, 1, scale, rate).unwrap();
            close::<T>(&golden, &at(&format!("clipped{i}")), &moments.first);
            if device == Device::Cpu {
                let clipped: Vec<T> = gradient.data::<T>().unwrap().iter().map(|&x| x * factor).collect();
                assert_eq!(moments.first.data::<T>().unwrap(), clipped);
            }
        }
    }
}

#[test]
fn the_trajectories_of_pytorch() {
    for name in TRAJECTORIES {
        follows::<f64>(name, Device::Cpu);
        follows::<f32>(name, Device::Cpu);
    }
}

#[test]
fn clips_as_pytorch_does() {
    clips::<f64>(Device::Cpu);
    clips::<f32>(Device::Cpu);
    assert_eq!(clip_factor(1e9, 0.0), 1.0);
    assert!(clip_factor(f64::NAN, 1.0).is_nan());
}

#[test]
fn a_gpu_does_as_pytorch_does() {
    let Some(gpu) = for_tests() else { return };
    TRAJECTORIES.iter().for_each(|name| follows::<f32>(name, Device::Gpu(gpu)));
    clips::<f32>(Device::Gpu(gpu));
}
