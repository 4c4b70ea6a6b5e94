//! Copies of ranges and of steps, a lane to an element.

use super::{SELECT, Steps};
use crate::gpu::{Output, floats, words, zeros};
use hankel_core::gpu::{Gpu, GpuBuffer, Kernel, groups};
use hankel_core::{Result, Tensor};
use std::sync::Arc;

static COPY: Kernel = Kernel { name: "copy_steps", source: include_str!("copy.wgsl"), bindings: "rw" };
static SELECTED: Kernel = Kernel { name: SELECT, source: include_str!("select.wgsl"), bindings: "rrw" };

/// Steps `first .. first + steps`.
pub(crate) fn narrow(gpu: &'static Gpu, x: &Tensor, first: usize, steps: usize) -> Result<Tensor> {
    let [batch, total, width] = [x.shape()[0], x.shape()[1], x.shape()[2]];
    let out = Output::new(gpu, batch * steps * width)?;
    copy(gpu, floats("narrow_time", "x", x, gpu)?, out.buffer(), [total, steps], [first, 0], [batch, steps, width])?;
    out.finish([batch, steps, width])
}

/// Zeros of `total` steps, but `x` from step `first` on.
pub(super) fn pad(gpu: &'static Gpu, x: &Tensor, first: usize, total: usize) -> Result<Tensor> {
    let [batch, steps, width] = [x.shape()[0], x.shape()[1], x.shape()[2]];
    let mut out = zeros(gpu, &[batch, total, width])?;
    let to = &out.gpu_mut("narrow_time")?.buffer;
    copy(gpu, floats("narrow_time", "x", x, gpu)?, to, [steps, total], [0, first], [batch, steps, width])?;
    Ok(out)
}

/// All parts, of `total` steps together.
pub(crate) fn concat(gpu: &'static Gpu, parts: &[&Tensor], total: usize) -> Result<Tensor> {
    let [batch, width] = [parts[0].shape()[0], parts[0].shape()[2]];
    let out = Output::new(gpu, batch * total * width)?;
    let mut first = 0;
    for part in parts {
        let steps = part.shape()[1];
        let from = floats("concat_time", "a part", part, gpu)?;
        copy(gpu, from, out.buffer(), [steps, total], [0, first], [batch, steps, width])?;
        first += steps;
    }
    out.finish([batch, total, width])
}

/// Copies `steps` steps of every sequence; sequences have `lengths` steps and the ranges begin at `first` (from, to).
fn copy(
    gpu: &'static Gpu,
    from: &GpuBuffer,
    to: &GpuBuffer,
    lengths: [usize; 2],
    first: [usize; 2],
    [batch, steps, width]: [usize; 3],
) -> Result<()> {
    let n = batch * steps * width;
    let parameters = [n, steps, width, lengths[0], first[0], lengths[1], first[1]].map(|value| value as u32);
    gpu.launch(&COPY, &[], &[from, to], &parameters, groups(n, 256))
}

impl Steps {
    fn on(&self, gpu: &'static Gpu) -> Result<Arc<GpuBuffer>> {
        if let Some(buffer) = self.on_gpu.get().filter(|buffer| std::ptr::eq(buffer.gpu(), gpu)) {
            return Ok(Arc::clone(buffer));
        }
        let buffer = Arc::new(words(gpu, &self.steps)?);
        // Of two cards, the first one has its copy kept.
        let _ = self.on_gpu.set(Arc::clone(&buffer));
        Ok(buffer)
    }
}

/// Steps `steps` of every sequence, zeros for none.
pub(super) fn select(gpu: &'static Gpu, x: &Tensor, steps: &Steps) -> Result<Tensor> {
    let [batch, total, width] = [x.shape()[0], x.shape()[1], x.shape()[2]];
    let count = steps.steps.len();
    let n = batch * count * width;
    let y = Output::new(gpu, n)?;
    let buffers = [floats(SELECT, "x", x, gpu)?, &*steps.on(gpu)?, y.buffer()];
    let parameters = [n, width, count, total].map(|value| value as u32);
    gpu.launch(&SELECTED, &[], &buffers, &parameters, groups(n, 256))?;
    y.finish([batch, count, width])
}
