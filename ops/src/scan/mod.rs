//! Linear recurrences: `s_t = A s_{t-1} + u_t`.
//!
//! `u` `[batch, T, d]`, initial state `[batch, d]` (zero if not given), output: all states `[batch, T, d]`. The state matrix is
//! one of [`Poles`]: diagonal, modal (signed real poles, then 2x2 rotation-scaling blocks) or dense.
//!
//! With `g_t` the gradient of the loss with respect to `s_t`, the adjoint states run backwards in time,
//!
//! ```text
//! lam_t = g_t + A^T lam_{t+1}
//! d u_t = lam_t,   d s_{-1} = A^T lam_0,   d A = sum_t lam_t s_{t-1}^T   (restricted to the entries of the form)
//! ```
//!
//! Three evaluations agree within rounding (R3): step by step, in chunks, and as a causal convolution by FFT. Rounding of the FFT is
//! relative to the largest value of two neighbouring sequences, later steps included, since it transforms both at once: beside values
//! that are millions of times as large, small ones have no digits left, and a NaN spreads to both.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
pub mod cpu;
pub(crate) mod gpu;
mod poles;

pub use poles::{Poles, ScanPath};

use crate::check;
use crate::dispatch::on_device;
use hankel_core::{Error, Result, Tensor, autograd};

const NAME: &str = "scan";

/// All states of the recurrence.
///
/// # Errors
/// When shapes, element types or devices do not fit.
pub fn scan(u: &Tensor, poles: &Poles, initial: Option<&Tensor>, path: ScanPath) -> Result<Tensor> {
    check::float(NAME, u)?;
    let &[batch, steps, d] = &u.shape()[..] else {
        return Err(Error::shape(NAME, format!("expected [batch, T, d], found {}", u.shape())));
    };
    // With one step there is nothing to scan over, and generation makes many such calls.
    let path = if steps == 1 { ScanPath::Sequential } else { path };
    if poles.state_dim() != d {
        return Err(Error::shape(NAME, format!("{} poles for {d} states", poles.state_dim())));
    }
    if let Some(initial) = initial {
        check::input(NAME, "the initial state", initial, &[batch, d], u)?;
    }
    if let Poles::Modal { radius, angle, sign } = poles {
        // The variant can be made without its constructor.
        Poles::modal(radius, angle, sign)?;
    }
    if let Poles::Dense(a) = poles {
        check::shape(NAME, "the matrix of the poles", a, &[d, d])?;
    }
    let parameters = poles.parameters();
    for pole in &parameters {
        check::input(NAME, "the poles", pole, pole.shape(), u)?;
    }
    let states = on_device!(u, forward(u, poles, initial, path))?;

    let learns = parameters.iter().any(|pole| autograd::needs_gradient(pole));
    let saved_states = learns.then(|| states.clone());
    let saved_initial = initial.filter(|_| learns).map(Tensor::detach);
    let saved_poles = poles.detach();
    let mut inputs = vec![Some(u), initial];
    inputs.extend(parameters.into_iter().map(Some));
    states.from_operator(NAME, &inputs, move |g, wanted| {
        let adjoint = on_device!(g, adjoint(&g, &saved_poles, path))?;
        let d_initial = wanted[1].then(|| on_device!(g, initial_gradient(&adjoint, &saved_poles))).transpose()?;
        let d_poles = match &saved_states {
            Some(states) => on_device!(g, pole_gradient(&saved_poles, states, saved_initial.as_ref(), &adjoint))?,
            None => vec![None; wanted.len() - 2],
        };
        Ok([wanted[0].then_some(adjoint), d_initial].into_iter().chain(d_poles).collect())
    })
}
