//! The kernel on a GPU.

use crate::gpu::{Output, column_sums, floats};
use hankel_core::gpu::{Gpu, Kernel, groups};
use hankel_core::{Result, Tensor};

const NAME: &str = "layer_norm";
static LAYER_NORM: Kernel = Kernel { name: NAME, source: include_str!("layer_norm.wgsl"), bindings: "rrrrww" };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    rows: u32,
    width: u32,
    eps: f32,
}

pub(super) fn layer_norm(
    gpu: &'static Gpu,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    let (rows, width) = (x.shape().rows(), x.shape().last());
    let parameters = Parameters { rows: rows as u32, width: width as u32, eps: eps as f32 };
    let flag = |set: bool| f64::from(u8::from(set));
    let run = move |x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, g: Option<&Tensor>, gain: bool| {
        let [x_buffer, w] = [floats(NAME, "x", x, gpu)?, floats(NAME, "weight", weight, gpu)?];
        let constants = [("GRADIENT", flag(g.is_some())), ("GAIN", flag(gain)), ("BIAS", flag(bias.is_some()))];
        let g = g.map_or(Ok(x_buffer), |g| floats(NAME, "gradient", g, gpu))?;
        let b = bias.map_or(Ok(w), |b| floats(NAME, "bias", b, gpu))?;
        let y = Output::new(gpu, x.elements())?;
        let of_weight = Output::new(gpu, if gain { x.elements() } else { 0 })?;
        let buffers = [x_buffer, w, b, g, y.buffer(), of_weight.buffer()];
        gpu.launch(&LAYER_NORM, &constants, &buffers, &parameters, groups(rows, 1))?;
        let sum = gain.then(|| column_sums(gpu, of_weight.buffer(), None, rows, width)).transpose()?;
        Ok::<_, hankel_core::Error>((y.finish(x.shape())?, sum))
    };
    let (saved_x, saved_weight) = (x.detach(), weight.detach());
    let placeholder = Tensor::zeros::<f32>([0]);
    let parents = [x, weight, bias.unwrap_or(&placeholder)];
    run(x, weight, bias, None, false)?.0.from_operator(NAME, &parents, move |g, wanted| {
        let (dx, dw) = run(&saved_x, &saved_weight, None, Some(&g), wanted[1])?;
        let db = wanted[2].then(|| column_sums(gpu, floats(NAME, "gradient", &g, gpu)?, None, rows, width));
        Ok(vec![Some(dx), dw, db.transpose()?])
    })
}
