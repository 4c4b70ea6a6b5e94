//! The kernel on a GPU.

use crate::gpu::{Output, floats};
use hankel_core::gpu::{Gpu, Kernel, groups};
use hankel_core::{Result, Tensor};

static SWIGLU: Kernel = Kernel { name: "swiglu", source: include_str!("swiglu.wgsl"), bindings: "rrrw" };

pub(super) fn swiglu(gpu: &'static Gpu, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    let run = move |gate: &Tensor, b: &Tensor, g: Option<&Tensor>| {
        let (n, y) = (gate.elements(), Output::new(gpu, gate.elements())?);
        let [gate_buffer, b] = [floats("swiglu", "gate", gate, gpu)?, floats("swiglu", "up", b, gpu)?];
        let gradient = [("GATE_GRADIENT", f64::from(u8::from(g.is_some())))];
        let g = g.map_or(Ok(b), |g| floats("swiglu", "gradient", g, gpu))?;
        gpu.launch(&SWIGLU, &gradient, &[gate_buffer, b, g, y.buffer()], &[n as u32], groups(n, 256))?;
        y.finish(gate.shape())
    };
    let (saved_gate, saved_up) = (gate.detach(), up.detach());
    run(gate, up, None)?.from_operator("swiglu", &[Some(gate), Some(up)], move |g, wanted| {
        let d_gate = wanted[0].then(|| run(&saved_gate, &saved_up, Some(&g))).transpose()?;
        Ok(vec![d_gate, wanted[1].then(|| run(&saved_gate, &g, None)).transpose()?])
    })
}
