//! A device that goes away, in a process of its own: nothing can be done with it afterwards.

use hankel_core::gpu::for_tests;
use hankel_core::{Device, Tensor};

#[test]
fn a_lost_device_is_an_error() {
    let Some(gpu) = for_tests() else { return };
    let x = Tensor::full([1000], 1.0_f32).to_device(Device::Gpu(gpu)).unwrap();
    gpu.destroy();
    let error = x.to_device(Device::Cpu).and_then(|_| x.to_device(Device::Cpu)).unwrap_err().to_string();
    assert!(error.starts_with(&gpu.facts().name), "{error}");
    assert!(x.to_f64_vec().iter().all(|x| x.is_nan()));
    assert!(Tensor::full([10], 1.0_f32).to_device(Device::Gpu(gpu)).is_err());
}
