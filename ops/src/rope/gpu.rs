//! The kernel on a GPU. Sines and cosines come from the host, which has doubles.

use super::Rotation;
use super::cpu::Turns;
use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, GpuBuffer, Kernel, groups};
use hankel_core::{Result, Tensor};

static ROPE: Kernel = Kernel { name: "rope", source: include_str!("rope.wgsl"), bindings: "rrrw" };

pub(super) fn rope(gpu: &'static Gpu, x: &Tensor, rotation: Rotation) -> Result<Tensor> {
    let (steps, width) = (x.shape()[1], x.shape()[2]);
    let run = move |x: &Tensor, turns: &Turns<f32>| {
        let [cos, sin] = [upload(gpu, &turns.cos)?, upload(gpu, &turns.sin)?];
        let y = Output::new(gpu, x.elements())?;
        let planes = x.elements() / 2;
        let parameters = [planes, rotation.head_dim / 2, steps, width].map(|size| size as u32);
        let buffers = [floats("rope", "x", x, gpu)?, &cos, &sin, y.buffer()];
        gpu.launch(&ROPE, &[], &buffers, &parameters, groups(planes, 256))?;
        y.finish(x.shape())
    };
    run(x, &Turns::forward(rotation, steps))?
        .from_operator("rope", &[x], move |g, _| Ok(vec![Some(run(&g, &Turns::backward(rotation, steps))?)]))
}

fn upload(gpu: &'static Gpu, values: &[f32]) -> Result<GpuBuffer> {
    gpu.upload(bytemuck::cast_slice(values))
}
