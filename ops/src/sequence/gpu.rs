//! Copies of ranges, a lane to an element.

use crate::gpu::{Output, floats, zeros};
use hankel_core::gpu::{Gpu, GpuBuffer, Kernel, groups};
use hankel_core::{Result, Tensor};

static COPY: Kernel = Kernel { name: "copy_steps", source: include_str!("copy.wgsl"), bindings: "rw" };

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
