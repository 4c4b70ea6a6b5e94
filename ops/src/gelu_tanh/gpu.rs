//! A lane to an element.

use super::NAME;
use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, Kernel, flag, groups};
use hankel_core::{Result, Tensor};

static GELU_TANH: Kernel = Kernel { name: NAME, source: include_str!("gelu_tanh.wgsl"), bindings: "rrw" };

/// The output, and what the backward pass takes: the input.
pub(super) fn forward(gpu: &'static Gpu, x: &Tensor, _learns: bool) -> Result<(Tensor, Tensor)> {
    Ok((launch(gpu, x, None)?, x.detach()))
}

#[expect(clippy::needless_pass_by_value, reason = "on the CPU its memory is used for the result")]
pub(super) fn backward(gpu: &'static Gpu, x: &Tensor, g: Tensor) -> Result<Tensor> {
    launch(gpu, x, Some(&g))
}

fn launch(gpu: &'static Gpu, x: &Tensor, g: Option<&Tensor>) -> Result<Tensor> {
    let (n, y) = (x.elements(), Output::new(gpu, x.elements())?);
    let source = floats(NAME, "x", x, gpu)?;
    let gradient = [("GRADIENT", flag(g.is_some()))];
    let g = g.map_or(Ok(source), |g| floats(NAME, "gradient", g, gpu))?;
    gpu.launch(&GELU_TANH, &gradient, &[source, g, y.buffer()], &[n as u32], groups(n, 256))?;
    y.finish(x.shape())
}
