//! The context of a GPU: memory, launches, read-back and failures. Skipped, with a word, where there is no GPU.

use hankel_core::autograd::Wanted;
use hankel_core::gpu::{Gpu, Kernel, devices, for_tests, groups};
use hankel_core::{DType, Device, Tensor, scope};
use proptest::prelude::*;

fn floats(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.37).sin()).collect()
}

#[test]
fn elements_come_back_as_they_went() {
    let Some(gpu) = for_tests() else { return };
    for n in [0, 1, 2, 3, 255, 257, 100_003] {
        let x = Tensor::from_vec(floats(n), [n]).unwrap();
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let here = x.to_dtype(dtype).unwrap();
            let there = here.to_device(Device::Gpu(gpu)).unwrap();
            assert_eq!((there.device(), there.dtype(), there.bytes()), (Device::Gpu(gpu), dtype, here.bytes()));
            assert_eq!(there.to_f64_vec(), here.to_f64_vec(), "{n} {dtype}");
        }
        let tokens = Tensor::from_vec((0..n as u32).collect(), [n]).unwrap();
        assert_eq!(tokens.to_device(Device::Gpu(gpu)).unwrap().to_f64_vec(), tokens.to_f64_vec());
    }
    let wide = Tensor::from_vec(vec![1.0_f64], [1]).unwrap().to_device(Device::Gpu(gpu));
    assert!(wide.unwrap_err().to_string().contains("f64 does not move"));
    let there = Tensor::scalar(2.5_f32).to_device(Device::Gpu(gpu)).unwrap();
    assert_eq!(there.item().unwrap(), 2.5);
    assert!(there.data::<f32>().unwrap_err().to_string().contains("not in main memory"));
}

/// The bits of floats of 16 or 32 bits in main memory.
fn bits(tensor: &Tensor) -> Vec<u32> {
    let here = tensor.to_device(Device::Cpu).unwrap();
    let short = |bits: u16| u32::from(bits);
    match here.dtype() {
        DType::F16 => here.data::<half::f16>().unwrap().iter().map(|x| short(x.to_bits())).collect(),
        DType::BF16 => here.data::<half::bf16>().unwrap().iter().map(|x| short(x.to_bits())).collect(),
        _ => here.data::<f32>().unwrap().iter().map(|x| x.to_bits()).collect(),
    }
}

#[test]
fn conversions_give_the_bits_of_the_cpu() {
    let Some(gpu) = for_tests() else { return };
    let mut wide: Vec<f32> = (0..1 << 16).map(|i: u32| f32::from_bits(i.wrapping_mul(65_537 * 13))).collect();
    // Every float of 16 bits, what lies halfway to the next one, and both sides of that.
    for i in 0..=u16::MAX {
        for value in [half::f16::from_bits(i).to_f32(), half::bf16::from_bits(i).to_f32()] {
            let around = [0, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001].map(|more| value.to_bits() | more);
            wide.extend(around.map(f32::from_bits));
        }
    }
    wide.retain(|x| !x.is_nan());
    wide.push(1.0);
    for n in [0, 1, 2, 3, wide.len() - 1, wide.len()] {
        let here = Tensor::from_vec(wide[..n].to_vec(), [n]).unwrap();
        let there = here.to_device(Device::Gpu(gpu)).unwrap();
        for (first, second) in [(DType::F16, DType::BF16), (DType::BF16, DType::F16)] {
            let (mut here, mut there) = (here.clone(), there.clone());
            for dtype in [first, second, DType::F32] {
                (here, there) = (here.to_dtype(dtype).unwrap(), there.to_dtype(dtype).unwrap());
                assert_eq!((there.device(), there.dtype()), (Device::Gpu(gpu), dtype));
                let (here, there) = (bits(&here), bits(&there));
                let wrong = here.iter().zip(&there).position(|(a, b)| a != b);
                assert_eq!(wrong.map(|i| (wide[i], here[i], there[i])), None, "{n} to {dtype}");
            }
        }
    }
    let nan = Tensor::from_vec(vec![f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff)], [3]).unwrap();
    let nan = nan.to_device(Device::Gpu(gpu)).unwrap();
    for dtype in [DType::F16, DType::BF16] {
        let short = nan.to_dtype(dtype).unwrap();
        assert!(short.to_f64_vec().iter().chain(&short.to_dtype(DType::F32).unwrap().to_f64_vec()).all(|x| x.is_nan()));
    }
    let tokens = Tensor::zeros::<u32>([2]).to_device(Device::Gpu(gpu)).unwrap();
    assert!(tokens.to_dtype(DType::F32).is_err());
}

#[test]
fn what_is_asked_for_is_as_it_was_then() {
    let Some(gpu) = for_tests() else { return };
    let mut x = Tensor::from_vec(floats(1000), [1000]).unwrap().to_device(Device::Gpu(gpu)).unwrap();
    let before = x.read_back().unwrap();
    let mut later = Vec::new();
    for _ in 0..20 {
        // In place: the memory is written again while what was read from it is on its way.
        let storage = x.gpu_mut("test").unwrap();
        gpu.launch(&NUMBER, &[("FACTOR", 1.0)], &[&storage.buffer], &[1000_u32], groups(1000, 1)).unwrap();
        later.push(x.read_back().unwrap());
    }
    let after = later.pop().unwrap().wait().unwrap();
    drop(later);
    assert_eq!(before.wait().unwrap().data::<f32>().unwrap(), floats(1000));
    assert!(after.data::<f32>().unwrap().iter().zip(0..).all(|(x, i)| x.to_bits() == i));
    let none = Tensor::zeros::<f32>([0]).to_device(Device::Gpu(gpu)).unwrap().read_back().unwrap().wait().unwrap();
    assert_eq!((none.elements(), none.device()), (0, Device::Cpu));
    assert_eq!(Tensor::scalar(2.5_f64).read_back().unwrap().wait().unwrap().item().unwrap(), 2.5);
}

#[test]
fn gradients_meet_on_the_device() {
    let Some(gpu) = for_tests() else { return };
    let x = Tensor::from_vec(floats(1000), [1000]).unwrap().to_device(Device::Gpu(gpu)).unwrap().parameter().unwrap();
    let twice = x.reshape([10, 100]).unwrap();
    let double = |g: Tensor, _: &mut Wanted| Ok(vec![Some(g.reshape([10, 100])?), Some(g.reshape([10, 100])?)]);
    let y = x.reshape([1000]).unwrap().detach().from_operator("double", &[Some(&twice), Some(&twice)], double).unwrap();
    let seed = Tensor::from_vec(floats(1000), [1000]).unwrap().to_device(Device::Gpu(gpu)).unwrap();
    let gradient = y.backward_with(seed).unwrap().take(&x).unwrap();
    assert!(gradient.to_f64_vec().iter().zip(floats(1000)).all(|(&g, x)| g == f64::from(2.0 * x)));
    assert_eq!(x.to_f64_vec()[1], f64::from(floats(2)[1]), "the leaf itself is as it was");
}

#[test]
fn freed_memory_is_used_again_and_a_budget_holds() {
    // Counts of one GPU are shared by all tests in a process, so this one looks at a size of its own.
    let Some(gpu) = for_tests() else { return };
    let size = 48 << 20;
    let first = gpu.allocate(size).unwrap();
    let before = gpu.memory();
    assert!(before.used >= size && before.peak >= before.used);
    drop(first);
    let held = gpu.memory().held;
    assert!(held >= size);
    let again = gpu.allocate(size - 100).unwrap();
    assert!(gpu.memory().held <= held - size);
    gpu.set_budget(Some(gpu.memory().used + (1 << 20)));
    let refused = scope("layers.3", || gpu.allocate(size)).map(|_| ()).unwrap_err().to_string();
    gpu.set_budget(None);
    for part in ["48.0 MiB for layers.3, beside", "over the budget of", "raise `gpu_memory`"] {
        assert!(refused.contains(part), "{refused}");
    }
    drop(again);
    let limit = gpu.facts().max_binding;
    let refused = scope("embedding", || gpu.allocate(limit + 1)).map(|_| ()).unwrap_err().to_string();
    for part in [&format!("{} bytes for embedding", limit + 1), "a kernel sees at most", "smaller"] {
        assert!(refused.contains(part), "{refused}");
    }
    // Up to it nothing is rounded over it.
    let most = gpu.allocate(limit - 3).map(|_| ());
    assert!(most.is_ok(), "{most:?}");
}

static NUMBER: Kernel = Kernel {
    name: "number",
    source: "
        var<immediate> elements: u32;
        override FACTOR: u32;
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(1)
        fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
            let i = flat(group, groups);
            if i < elements { y[i] = FACTOR * i; }
        }",
    bindings: "w",
};

#[test]
fn more_workgroups_than_one_dimension_has() {
    let Some(gpu) = for_tests() else { return };
    for n in [1_usize, 65_535, 65_536, 140_001] {
        let y = gpu.allocate(4 * n as u64).unwrap();
        gpu.launch(&NUMBER, &[("FACTOR", 3.0)], &[&y], &[n as u32], groups(n, 1)).unwrap();
        let bytes = gpu.download(&y, 4 * n).unwrap();
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
        assert!(words.iter().enumerate().all(|(i, &word)| word == 3 * i as u32), "{n}");
    }
    let y = gpu.allocate(4).unwrap();
    let refused = gpu.launch(&NUMBER, &[("FACTOR", 1.0)], &[&y], &[1_u32], [70_000, 1, 1]).unwrap_err().to_string();
    assert!(refused.contains("70000 workgroups"), "{refused}");
}

#[test]
fn what_does_not_exist_is_refused_with_what_there_is() {
    let Some(gpu) = for_tests() else { return };
    assert!(!devices().is_empty());
    assert_eq!(Device::open(&gpu.facts().name).unwrap(), Device::Gpu(gpu));
    assert_eq!(Device::open("gpu:0").unwrap(), Device::Gpu(gpu));
    for name in ["gpu:99", "no such card"] {
        let refused = Gpu::open(name).unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains("gpu:0 is "), "{refused}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]
    #[test]
    fn every_item_has_a_workgroup(n in 0_usize..20_000_000, size in 1_usize..1025) {
        let [x, y, z] = groups(n, size);
        prop_assert_eq!(z, 1);
        prop_assert!(x <= 65_535 && y <= 65_535);
        let lanes = x as usize * y as usize * size;
        prop_assert!(lanes >= n && lanes < n + size * (y as usize + 1));
    }
}
