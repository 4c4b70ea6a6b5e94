//! The recurrence in chunks, whichever evaluation was asked for: step by step most of the GPU would wait.

use super::NAME;
use crate::elementwise::gpu::multiply;
use crate::gpu::{floats, zeros};
use crate::scan::ScanPath;
use crate::scan::gpu::{Modes, Time, before, first_step, run};
use hankel_core::gpu::Gpu;
use hankel_core::{Result, Tensor};

pub(super) fn forward(
    gpu: &'static Gpu,
    a: &Tensor,
    u: &Tensor,
    initial: Option<&Tensor>,
    _: ScanPath,
) -> Result<Tensor> {
    let start = initial.map(|initial| floats(NAME, "the initial state", initial, gpu)).transpose()?;
    run(gpu, modes(u), Time::Forward, (floats(NAME, "a", a, gpu)?, true), floats(NAME, "u", u, gpu)?, start)
}

/// The adjoint states `lam_t`.
pub(super) fn adjoint(gpu: &'static Gpu, a: &Tensor, g: &Tensor, _: ScanPath) -> Result<Tensor> {
    run(gpu, modes(g), Time::Backward, (floats(NAME, "a", a, gpu)?, true), floats(NAME, "gradient", g, gpu)?, None)
}

fn modes(u: &Tensor) -> Modes {
    let [batch, steps, dim] = [u.shape()[0], u.shape()[1], u.shape()[2]];
    Modes { batch, steps, dim, real: dim }
}

/// `lam_t s_{t-1}`: the gradient of `a`.
pub(super) fn pole_gradient(
    gpu: &'static Gpu,
    states: &Tensor,
    initial: Option<&Tensor>,
    adjoint: &Tensor,
) -> Result<Tensor> {
    multiply(gpu, adjoint, &before(gpu, states, initial)?)
}

/// `a_0 lam_0` of each sequence: the gradient of the initial state.
pub(super) fn initial_gradient(gpu: &'static Gpu, a: &Tensor, adjoint: &Tensor) -> Result<Tensor> {
    let [batch, steps, dim] = [a.shape()[0], a.shape()[1], a.shape()[2]];
    if steps == 0 {
        return zeros(gpu, &[batch, dim]);
    }
    multiply(gpu, &first_step(gpu, a)?, &first_step(gpu, adjoint)?)
}
