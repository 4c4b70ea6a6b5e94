//! Diagonal recurrences whose poles change from step to step: `s_t = a_t * s_{t-1} + u_t`.
//!
//! `a` and `u` `[batch, T, d]`, initial state `[batch, d]` (zero if not given), output: all states `[batch, T, d]`; products are
//! elementwise. It is what selective state-space models run (A. Gu and T. Dao, Mamba, 2023, equation 2), where `a_t` and `u_t`
//! are functions of the token.
//!
//! With `g_t` the gradient of the loss with respect to `s_t`, the adjoint states run backwards in time,
//!
//! ```text
//! lam_t = g_t + a_{t+1} lam_{t+1}
//! d u_t = lam_t,   d a_t = lam_t s_{t-1},   d s_{-1} = a_0 lam_0
//! ```

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::on_device;
use crate::scan::ScanPath;
use hankel_core::{Error, Result, Tensor, autograd};

const NAME: &str = "varying_scan";

/// All states of the recurrence. Evaluated step by step or in chunks; the two agree within rounding.
///
/// # Errors
/// When shapes, element types or devices do not fit, or for the evaluation by FFT, which needs poles that stay the same.
pub fn varying_scan(a: &Tensor, u: &Tensor, initial: Option<&Tensor>, path: ScanPath) -> Result<Tensor> {
    check::float(NAME, u)?;
    let &[batch, _, d] = &u.shape()[..] else {
        return Err(Error::shape(NAME, format!("expected [batch, T, d], found {}", u.shape())));
    };
    check::input(NAME, "a", a, u.shape(), u)?;
    if let Some(initial) = initial {
        check::input(NAME, "the initial state", initial, &[batch, d], u)?;
    }
    if path == ScanPath::Fft {
        let problem = "poles that change have no convolution kernel: choose the path sequential or chunked";
        return Err(Error::invalid(NAME, problem));
    }
    let states = on_device!(u, forward(a, u, initial, path))?;
    let learns = autograd::needs_gradient(a);
    let saved_states = learns.then(|| states.clone());
    let saved_initial = initial.filter(|_| learns).map(Tensor::detach);
    let saved_a = a.detach();
    states.from_operator(NAME, &[Some(a), Some(u), initial], move |g, wanted| {
        let adjoint = on_device!(g, adjoint(&saved_a, &g, path))?;
        let pole_gradient = |states: Tensor| on_device!(g, pole_gradient(&states, saved_initial.as_ref(), &adjoint));
        let d_a = saved_states.map(pole_gradient).transpose()?;
        let d_initial = wanted[2].then(|| on_device!(g, initial_gradient(&saved_a, &adjoint))).transpose()?;
        Ok(vec![d_a, wanted[1].then_some(adjoint), d_initial])
    })
}
