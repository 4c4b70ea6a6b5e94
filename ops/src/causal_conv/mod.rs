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

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
pub mod cpu;
pub(crate) mod fft;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use hankel_core::{Error, Result, Tensor, autograd};

const NAME: &str = "causal_conv";

/// Convolves each channel with its kernel.
///
/// # Errors
/// When shapes, element types or devices do not fit.
pub fn causal_conv(u: &Tensor, kernel: &Tensor) -> Result<Tensor> {
    check::float(NAME, u)?;
    let &[_, steps, channels] = &u.shape()[..] else {
        return Err(Error::shape(NAME, format!("expected [batch, T, channels], found {}", u.shape())));
    };
    check::input(NAME, "the kernel", kernel, &[channels, steps], u)?;
    let y = on_device!(u, forward(u, kernel))?;
    let saved_u = autograd::needs_gradient(kernel).then(|| u.detach());
    let saved_kernel = autograd::needs_gradient(u).then(|| kernel.detach());
    y.from_operator(NAME, &[Some(u), Some(kernel)], move |g, _| {
        let d_u = saved_kernel.map(|kernel| on_device!(g, backward(&g, &kernel))).transpose()?;
        let d_kernel = saved_u.map(|u| on_device!(g, kernel_gradient(&u, &g))).transpose()?;
        Ok(vec![d_u, d_kernel])
    })
}
