//! The recurrence on a GPU, in chunks whichever evaluation was asked for.

use crate::elementwise::multiply;
use crate::gpu::{floats, zeros};
use crate::scan::gpu::{Modes, Time, before, first_step, run};
use hankel_core::gpu::Gpu;
use hankel_core::{Result, Tensor, autograd};

const NAME: &str = "varying_scan";

pub(super) fn varying_scan(gpu: &'static Gpu, a: &Tensor, u: &Tensor, initial: Option<&Tensor>) -> Result<Tensor> {
    let [batch, steps, dim] = [u.shape()[0], u.shape()[1], u.shape()[2]];
    let modes = Modes { batch, steps, dim, real: dim };
    let start = initial.map(|initial| floats(NAME, "the initial state", initial, gpu)).transpose()?;
    let poles = (floats(NAME, "a", a, gpu)?, true);
    let states = run(gpu, modes, Time::Forward, poles, floats(NAME, "u", u, gpu)?, start)?;
    let saved_states = autograd::needs_gradient(a).then(|| states.clone());
    let (saved_a, saved_initial) = (a.detach(), initial.map(Tensor::detach));
    states.from_operator(NAME, &[Some(a), Some(u), initial], move |g, wanted| {
        let poles = (floats(NAME, "a", &saved_a, gpu)?, true);
        let adjoint = run(gpu, modes, Time::Backward, poles, floats(NAME, "gradient", &g, gpu)?, None)?;
        let of_a = match &saved_states {
            Some(states) => Some(multiply(&adjoint, &before(gpu, states, saved_initial.as_ref())?)?),
            None => None,
        };
        let of_initial = match wanted[2] {
            false => None,
            true if steps == 0 => Some(zeros(gpu, &[batch, dim])?),
            true => Some(multiply(&first_step(&saved_a)?, &first_step(&adjoint)?)?),
        };
        Ok(vec![of_a, wanted[1].then_some(adjoint), of_initial])
    })
}
