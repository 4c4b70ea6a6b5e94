//! A lane to an element: the mask of the CPU.

use super::NAME;
use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, Kernel, groups};
use hankel_core::{Random, Result, Tensor};

static DROPOUT: Kernel = Kernel { name: NAME, source: include_str!("dropout.wgsl"), bindings: "rw" };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    elements: u32,
    threshold: u32,
    key: [u32; 2],
    step: [u32; 2],
    scale: f32,
}

pub(super) fn forward(gpu: &'static Gpu, x: &Tensor, p: f64, random: &Random) -> Result<Tensor> {
    let (n, y) = (x.elements(), Output::new(gpu, x.elements())?);
    let (key, step) = random.key();
    let parameters = Parameters {
        elements: n as u32,
        threshold: (p * 4_294_967_296.0) as u32,
        key,
        step: [step as u32, (step >> 32) as u32],
        scale: (1.0 / (1.0 - p)) as f32,
    };
    gpu.launch(&DROPOUT, &[], &[floats(NAME, "x", x, gpu)?, y.buffer()], &parameters, groups(n, 256))?;
    y.finish(x.shape())
}
