//! Causal convolution over time, by Fourier transform: `y_t = sum over k <= t of kernel_k u_{t-k}` for each channel.
//!
//! `u` `[batch, T, channels]`, `kernel` `[channels, T]`, output as `u`. With `g` the gradient of the output,
//!
//! ```text
//! d u_t      = sum over k of kernel_k g_{t+k}         the same convolution with time reversed
//! d kernel_k = sum over batch and t of g_t u_{t-k}    a correlation
//! ```
//!
//! Both are computed by the same transforms; nothing is differentiated through them. The recurrence of
//! [`scan`](crate::scan()) is the convolution with the powers of its poles, and its path `fft` runs on these kernels.

#[doc(hidden)]
pub mod cases;
pub mod cpu;
pub(crate) mod fft;
mod gpu;

use crate::check;
use crate::dispatch::for_float;
use crate::scan::cpu::Direction;
use hankel_core::{Buffer, Error, Result, Tensor, autograd};

/// Convolves each channel with its kernel.
///
/// # Errors
/// When shapes or element types do not fit.
pub fn causal_conv(u: &Tensor, kernel: &Tensor) -> Result<Tensor> {
    let &[_, tokens, channels] = &u.shape()[..] else {
        return Err(Error::shape("causal_conv", format!("expected [batch, T, channels], found {}", u.shape())));
    };
    check::shape("causal_conv", "the kernel", kernel, &[channels, tokens])?;
    check::dtype("causal_conv", "the kernel", kernel, u.dtype())?;
    if let Some(gpu) = u.gpu() {
        return gpu::causal_conv(gpu, u, kernel);
    }
    for_float!(u, "causal_conv", T => {
        let mut out = Buffer::<T>::unspecified(u.elements());
        let spectra = cpu::Spectra::of_kernels(kernel.data::<T>()?, tokens);
        cpu::convolve(Direction::Forward, &spectra, u.data()?, None, &mut out);
        let out = Tensor::from_buffer(out, u.shape())?;
        let saved_u = autograd::needs_gradient(kernel).then(|| u.detach());
        let saved_kernel = autograd::needs_gradient(u).then(|| kernel.detach());
        out.from_operator("causal_conv", &[Some(u), Some(kernel)], move |g, _| {
            let (mut d_u, mut d_kernel) = (None, None);
            if let Some(kernel) = saved_kernel {
                let mut out = Buffer::<T>::unspecified(g.elements());
                let spectra = cpu::Spectra::of_kernels(kernel.data::<T>()?, tokens);
                cpu::convolve(Direction::Backward, &spectra, g.data()?, None, &mut out);
                d_u = Some(Tensor::from_buffer(out, g.shape())?);
            }
            if let Some(u) = saved_u {
                let mut out = Buffer::<T>::unspecified(channels * tokens);
                cpu::kernel_gradient(channels, tokens, u.data()?, g.data()?, &mut out);
                d_kernel = Some(Tensor::from_buffer(out, [channels, tokens])?);
            }
            Ok(vec![d_u, d_kernel])
        })
    })
}
