//! All channels of all sequences.

#[doc(hidden)]
pub mod convolution;

use super::NAME;
use crate::dispatch::for_float;
use crate::scan::cpu::recurrence::Direction;
use convolution::{Spectra, convolve};
use hankel_core::{Buffer, Result, Tensor};

pub(super) fn forward(u: &Tensor, kernel: &Tensor) -> Result<Tensor> {
    run(Direction::Forward, u, kernel)
}

/// The gradient of `u`: the same convolution with time reversed.
pub(super) fn backward(g: &Tensor, kernel: &Tensor) -> Result<Tensor> {
    run(Direction::Backward, g, kernel)
}

fn run(direction: Direction, u: &Tensor, kernel: &Tensor) -> Result<Tensor> {
    for_float!(u, NAME, T => {
        let mut out = Buffer::<T>::unspecified(u.elements());
        convolve(direction, &Spectra::of_kernels(kernel.data()?, u.shape()[1]), u.data()?, None, &mut out);
        Tensor::from_buffer(out, u.shape())
    })
}

/// The gradient of the kernel, `[channels, T]`.
pub(super) fn kernel_gradient(u: &Tensor, g: &Tensor) -> Result<Tensor> {
    let [steps, channels] = [u.shape()[1], u.shape()[2]];
    for_float!(u, NAME, T => {
        let mut out = Buffer::<T>::unspecified(channels * steps);
        convolution::kernel_gradient(channels, steps, u.data()?, g.data()?, &mut out);
        Tensor::from_buffer(out, [channels, steps])
    })
}
