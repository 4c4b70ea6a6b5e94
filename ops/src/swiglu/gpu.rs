//! A lane to an element.

use super::NAME;
use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, Kernel, flag, groups};
use hankel_core::{Result, Tensor};

static SWIGLU: Kernel = Kernel { name: NAME, source: include_str!("swiglu.wgsl"), bindings: "rrrw" };

pub(super) fn forward(gpu: &'static Gpu, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    launch(gpu, gate, up, None)
}

/// As on the CPU.
#[expect(clippy::needless_pass_by_value, reason = "the CPU writes to its memory")]
pub(super) fn backward(
    gpu: &'static Gpu,
    gate: &Tensor,
    up: Option<&Tensor>,
    g: Tensor,
    of_up: bool,
) -> Result<[Option<Tensor>; 2]> {
    let d_gate = up.map(|up| launch(gpu, gate, up, Some(&g))).transpose()?;
    let d_up = of_up.then(|| launch(gpu, gate, &g, None)).transpose()?;
    Ok([d_gate, d_up])
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
