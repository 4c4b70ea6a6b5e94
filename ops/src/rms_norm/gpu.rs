//! A workgroup to a row.

use super::NAME;
use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, Kernel, flag, groups};
use hankel_core::{Result, Tensor};

static RMS_NORM: Kernel = Kernel { name: NAME, source: include_str!("rms_norm.wgsl"), bindings: "rrrrww" };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    rows: u32,
    width: u32,
    eps: f32,
}

pub(super) fn forward(gpu: &'static Gpu, x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    Ok(launch(gpu, [x, weight], [None; 2], eps, false)?.0)
}

/// The gradient of `x`, added to `sum`, and if wanted the rows whose sum is the gradient of the weight.
#[expect(clippy::needless_pass_by_value, reason = "on the CPU its memory is used for the result")]
pub(super) fn backward(
    gpu: &'static Gpu,
    x: &Tensor,
    weight: &Tensor,
    eps: f64,
    g: Tensor,
    sum: Option<Tensor>,
    of_weight: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    launch(gpu, [x, weight], [Some(&g), sum.as_ref()], eps, of_weight)
}

fn launch(
    gpu: &'static Gpu,
    [x, weight]: [&Tensor; 2],
    [g, sum]: [Option<&Tensor>; 2],
    eps: f64,
    of_weight: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let (rows, width) = (x.shape().rows(), x.shape().last());
    let constants = [("GRADIENT", flag(g.is_some())), ("GAIN", flag(of_weight)), ("SUM", flag(sum.is_some()))];
    let y = Output::new(gpu, x.elements())?;
    let gain = Output::new(gpu, if of_weight { x.elements() } else { 0 })?;
    let source = floats(NAME, "x", x, gpu)?;
    // Bindings that the kernel does not read are filled with `x`.
    let g = g.map_or(Ok(source), |g| floats(NAME, "gradient", g, gpu))?;
    let sum = sum.map_or(Ok(source), |sum| floats(NAME, "sum of gradients", sum, gpu))?;
    let buffers = [source, floats(NAME, "weight", weight, gpu)?, g, sum, y.buffer(), gain.buffer()];
    let parameters = Parameters { rows: rows as u32, width: width as u32, eps: eps as f32 };
    gpu.launch(&RMS_NORM, &constants, &buffers, &parameters, groups(rows, 1))?;
    let gain = of_weight.then(|| gain.finish(x.shape())).transpose()?;
    Ok((y.finish(x.shape())?, gain))
}
