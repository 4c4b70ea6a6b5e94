//! A lane to an element.

use super::Form;
use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, Kernel, flag, groups};
use hankel_core::{Result, Tensor};

static GELU: Kernel = Kernel { name: "gelu", source: include_str!("gelu.wgsl"), bindings: "rrw" };

/// The output, and what the backward pass takes: the input.
pub(super) fn forward(gpu: &'static Gpu, form: Form, x: &Tensor, _learns: bool) -> Result<(Tensor, Tensor)> {
    Ok((launch(gpu, form, x, None)?, x.detach()))
}

#[expect(clippy::needless_pass_by_value, reason = "on the CPU its memory is used for the result")]
pub(super) fn backward(gpu: &'static Gpu, form: Form, x: &Tensor, g: Tensor) -> Result<Tensor> {
    launch(gpu, form, x, Some(&g))
}

fn launch(gpu: &'static Gpu, form: Form, x: &Tensor, g: Option<&Tensor>) -> Result<Tensor> {
    let (n, y) = (x.elements(), Output::new(gpu, x.elements())?);
    let source = floats(form.name(), "x", x, gpu)?;
    let constants = [("TANH", flag(matches!(form, Form::Tanh))), ("GRADIENT", flag(g.is_some()))];
    let g = g.map_or(Ok(source), |g| floats(form.name(), "gradient", g, gpu))?;
    gpu.launch(&GELU, &constants, &[source, g, y.buffer()], &[n as u32], groups(n, 256))?;
    y.finish(x.shape())
}
