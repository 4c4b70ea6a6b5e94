//! A lane to an element.

use super::NAME;
use crate::gpu::{Output, flag, floats};
use hankel_core::gpu::{Gpu, Kernel, groups};
use hankel_core::{Result, Tensor};

static SWIGLU: Kernel = Kernel { name: NAME, source: include_str!("swiglu.wgsl"), bindings: "rrrw" };

pub(super) fn forward(gpu: &'static Gpu, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    launch(gpu, gate, up, None)
}

pub(super) fn gate_gradient(gpu: &'static Gpu, gate: &Tensor, up: &Tensor, g: &Tensor) -> Result<Tensor> {
    launch(gpu, gate, up, Some(g))
}

fn launch(gpu: &'static Gpu, gate: &Tensor, up: &Tensor, g: Option<&Tensor>) -> Result<Tensor> {
    let (n, y) = (gate.elements(), Output::new(gpu, gate.elements())?);
    let up = floats(NAME, "up", up, gpu)?;
    let gradient = [("GATE_GRADIENT", flag(g.is_some()))];
    let g = g.map_or(Ok(up), |g| floats(NAME, "gradient", g, gpu))?;
    let buffers = [floats(NAME, "gate", gate, gpu)?, up, g, y.buffer()];
    gpu.launch(&SWIGLU, &gradient, &buffers, &[n as u32], groups(n, 256))?;
    y.finish(gate.shape())
}
