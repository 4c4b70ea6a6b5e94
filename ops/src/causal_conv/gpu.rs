//! All channels of all sequences.

use super::NAME;
use super::fft::{Lines, Load, Plan};
use crate::gpu::{Output, floats, zeros};
use hankel_core::gpu::Gpu;
use hankel_core::{Result, Tensor};

fn lines(u: &Tensor) -> Lines {
    let [batch, steps, channels] = [u.shape()[0], u.shape()[1], u.shape()[2]];
    Lines { batch, steps, width: channels, column: 0, count: channels, pairs: false }
}

pub(super) fn forward(gpu: &'static Gpu, u: &Tensor, kernel: &Tensor) -> Result<Tensor> {
    run(gpu, u, kernel, false)
}

/// The gradient of `u`: the same convolution with time reversed.
pub(super) fn backward(gpu: &'static Gpu, g: &Tensor, kernel: &Tensor) -> Result<Tensor> {
    run(gpu, g, kernel, true)
}

fn run(gpu: &'static Gpu, u: &Tensor, kernel: &Tensor, reversed: bool) -> Result<Tensor> {
    let out = Output::new(gpu, u.elements())?;
    if u.elements() > 0 {
        let (lines, plan) = (lines(u), Plan::new(gpu, NAME, u.shape()[1])?);
        let kernel = floats(NAME, "the kernel", kernel, gpu)?;
        let spectrum = plan.spectrum(Lines { batch: 1, ..lines }, Load::Taps(kernel))?;
        plan.convolve(lines, floats(NAME, "u", u, gpu)?, None, (spectrum.buffer(), reversed), out.buffer())?;
    }
    out.finish(u.shape())
}

/// The gradient of the kernel, `[channels, T]`.
pub(super) fn kernel_gradient(gpu: &'static Gpu, u: &Tensor, g: &Tensor) -> Result<Tensor> {
    let [steps, channels] = [u.shape()[1], u.shape()[2]];
    if u.elements() == 0 {
        return zeros(gpu, &[channels, steps]);
    }
    let out = Output::new(gpu, channels * steps)?;
    let (u_in, g) = (floats(NAME, "u", u, gpu)?, floats(NAME, "gradient", g, gpu)?);
    Plan::new(gpu, NAME, steps)?.correlate(lines(u), u_in, g, out.buffer())?;
    out.finish([channels, steps])
}
