//! The kernel on a GPU.

use crate::gpu::{Output, column_sums, floats};
use hankel_core::gpu::{Gpu, Kernel, groups};
use hankel_core::{Result, Tensor};

static RMS_NORM: Kernel = Kernel { name: "rms_norm", source: include_str!("rms_norm.wgsl"), bindings: "rrrww" };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    rows: u32,
    width: u32,
    eps: f32,
}

pub(super) fn rms_norm(gpu: &'static Gpu, x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let (rows, width) = (x.shape().rows(), x.shape().last());
    let parameters = Parameters { rows: rows as u32, width: width as u32, eps: eps as f32 };
    let run = move |x: &Tensor, weight: &Tensor, g: Option<&Tensor>, gain: bool| -> Result<(Tensor, Option<Tensor>)> {
        let [x_buffer, w] = [floats("rms_norm", "x", x, gpu)?, floats("rms_norm", "weight", weight, gpu)?];
        let constants = [("GRADIENT", f64::from(u8::from(g.is_some()))), ("GAIN", f64::from(u8::from(gain)))];
        let g = g.map_or(Ok(x_buffer), |g| floats("rms_norm", "gradient", g, gpu))?;
        let y = Output::new(gpu, x.elements())?;
        let of_weight = Output::new(gpu, if gain { x.elements() } else { 0 })?;
        let buffers = [x_buffer, w, g, y.buffer(), of_weight.buffer()];
        gpu.launch(&RMS_NORM, &constants, &buffers, &parameters, groups(rows, 1))?;
        let sum = gain.then(|| column_sums(gpu, of_weight.buffer(), None, rows, width)).transpose()?;
        Ok((y.finish(x.shape())?, sum))
    };
    let (saved_x, saved_weight) = (x.detach(), weight.detach());
    run(x, weight, None, false)?.0.from_operator("rms_norm", &[Some(x), Some(weight)], move |g, wanted| {
        let (dx, dw) = run(&saved_x, &saved_weight, Some(&g), wanted[1])?;
        Ok(vec![Some(dx), dw])
    })
}
