//! The kernel on a GPU: the same mask.

use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, Kernel, groups};
use hankel_core::{Random, Result, Tensor};

static DROPOUT: Kernel = Kernel { name: "dropout", source: include_str!("dropout.wgsl"), bindings: "rw" };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    elements: u32,
    threshold: u32,
    key: [u32; 2],
    step: [u32; 2],
    scale: f32,
}

pub(super) fn dropout(gpu: &'static Gpu, x: &Tensor, p: f64, random: Random) -> Result<Tensor> {
    let n = x.elements();
    let (key, step) = random.key();
    let parameters = Parameters {
        elements: n as u32,
        threshold: (p * 4_294_967_296.0) as u32,
        key,
        step: [step as u32, (step >> 32) as u32],
        scale: (1.0 / (1.0 - p)) as f32,
    };
    let run = move |x: &Tensor| {
        let y = Output::new(gpu, n)?;
        gpu.launch(&DROPOUT, &[], &[floats("dropout", "x", x, gpu)?, y.buffer()], &parameters, groups(n, 256))?;
        y.finish(x.shape())
    };
    run(x)?.from_operator("dropout", &[Some(x)], move |g, _| Ok(vec![Some(run(&g)?)]))
}
