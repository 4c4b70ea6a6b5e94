//! The operator on a GPU.

use super::fft::{Lines, Load, Plan};
use crate::gpu::{Output, floats, zeros};
use hankel_core::gpu::Gpu;
use hankel_core::{Result, Tensor, autograd};

const NAME: &str = "causal_conv";

pub(super) fn causal_conv(gpu: &'static Gpu, u: &Tensor, kernel: &Tensor) -> Result<Tensor> {
    let [batch, steps, channels] = [u.shape()[0], u.shape()[1], u.shape()[2]];
    let lines = Lines { batch, steps, width: channels, column: 0, count: channels, pairs: false };
    let run = move |u: &Tensor, kernel: &Tensor, backward: bool| -> Result<Tensor> {
        let [u, kernel] = [floats(NAME, "u", u, gpu)?, floats(NAME, "the kernel", kernel, gpu)?];
        let out = Output::new(gpu, batch * steps * channels)?;
        if batch * steps * channels > 0 {
            let plan = Plan::new(gpu, NAME, steps)?;
            let spectrum = plan.spectrum(Lines { batch: 1, ..lines }, Load::Taps(kernel))?;
            plan.convolve(lines, u, None, (spectrum.buffer(), backward), out.buffer())?;
        }
        out.finish([batch, steps, channels])
    };
    let out = run(u, kernel, false)?;
    let saved_u = autograd::needs_gradient(kernel).then(|| u.detach());
    let saved_kernel = autograd::needs_gradient(u).then(|| kernel.detach());
    out.from_operator(NAME, &[Some(u), Some(kernel)], move |g, _| {
        let d_u = saved_kernel.map(|kernel| run(&g, &kernel, true)).transpose()?;
        let of_kernel = |u: Tensor| -> Result<Tensor> {
            if batch * steps * channels == 0 {
                return zeros(gpu, &[channels, steps]);
            }
            let out = Output::new(gpu, channels * steps)?;
            let [u, g] = [floats(NAME, "u", &u, gpu)?, floats(NAME, "gradient", &g, gpu)?];
            Plan::new(gpu, NAME, steps)?.correlate(lines, u, g, out.buffer())?;
            out.finish([channels, steps])
        };
        let d_kernel = saved_u.map(of_kernel).transpose()?;
        Ok(vec![d_u, d_kernel])
    })
}
