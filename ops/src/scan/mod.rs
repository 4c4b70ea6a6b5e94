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
//! Three evaluations agree within rounding (R3): step by step, in chunks, and as a causal convolution by FFT.

#[doc(hidden)]
pub mod cases;
pub mod cpu;
mod dense;
pub(crate) mod gpu;
mod matrix;
mod poles;

pub use poles::{Poles, ScanPath};

use crate::check;
use crate::dispatch::for_float;
use cpu::Direction;
use hankel_core::{Buffer, Error, Result, Tensor, autograd};
use matrix::Matrix;

/// All states of the recurrence.
///
/// # Errors
/// When shapes or element types do not fit.
pub fn scan(u: &Tensor, poles: &Poles, initial: Option<&Tensor>, path: ScanPath) -> Result<Tensor> {
    let &[batch, steps, d] = &u.shape()[..] else {
        return Err(Error::shape("scan", format!("expected [batch, T, d], found {}", u.shape())));
    };
    if poles.state_dim() != d {
        return Err(Error::shape("scan", format!("{} poles for {d} states", poles.state_dim())));
    }
    if let Some(initial) = initial {
        check::shape("scan", "the initial state", initial, &[batch, d])?;
        check::dtype("scan", "the initial state", initial, u.dtype())?;
    }
    for pole in poles.parents() {
        check::dtype("scan", "the poles", pole, u.dtype())?;
    }
    if let Some(gpu) = u.gpu() {
        return gpu::scan(gpu, u, poles, initial, path);
    }
    for_float!(u, "scan", T => {
        let matrix = Matrix::<T>::new(poles)?;
        let start = initial.map(Tensor::data::<T>).transpose()?;
        let mut states = Buffer::<T>::unspecified(batch * steps * d);
        matrix.run(u.data()?, start, steps, Direction::Forward, path, &mut states);
        let states = Tensor::from_buffer(states, [batch, steps, d])?;

        let mut parents = vec![Some(u), initial];
        parents.extend(poles.parents().into_iter().map(Some));
        let learns = poles.parents().iter().any(|pole| autograd::needs_gradient(pole));
        let saved_states = learns.then(|| states.clone());
        let saved_initial = initial.filter(|_| learns).map(Tensor::detach);
        let saved_poles = poles.detach();
        states.from_operator("scan", &parents, move |g, wanted| {
            let matrix = Matrix::<T>::new(&saved_poles)?;
            let mut adjoint = Buffer::<T>::unspecified(batch * steps * d);
            matrix.run(g.data()?, None, steps, Direction::Backward, path, &mut adjoint);
            let mut gradients = vec![None, None];
            if wanted[1] {
                let mut first = vec![T::default(); batch * d];
                matrix.initial_gradient(&adjoint, steps, &mut first);
                gradients[1] = Some(Tensor::from_vec(first, [batch, d])?);
            }
            match &saved_states {
                Some(states) => {
                    let start = saved_initial.as_ref().map(Tensor::data::<T>).transpose()?;
                    gradients.extend(matrix.gradient(&saved_poles, states.data()?, start, &adjoint, steps)?);
                }
                None => gradients.resize(wanted.len(), None),
            }
            if wanted[0] {
                gradients[0] = Some(Tensor::from_buffer(adjoint, [batch, steps, d])?);
            }
            Ok(gradients)
        })
    })
}
