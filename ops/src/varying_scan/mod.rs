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

#[doc(hidden)]
pub mod cases;
pub mod cpu;
mod gpu;

use crate::check;
use crate::dispatch::for_float;
use crate::scan::ScanPath;
use cpu::{Direction, Rows};
use hankel_core::{Buffer, Error, Result, Tensor, autograd};

/// All states of the recurrence. Evaluated step by step or in chunks; the two agree within rounding.
///
/// # Errors
/// When shapes or element types do not fit, or for the evaluation by FFT, which needs poles that stay the same.
pub fn varying_scan(a: &Tensor, u: &Tensor, initial: Option<&Tensor>, path: ScanPath) -> Result<Tensor> {
    let &[batch, steps, d] = &u.shape()[..] else {
        return Err(Error::shape("varying_scan", format!("expected [batch, T, d], found {}", u.shape())));
    };
    check::shape("varying_scan", "a", a, &[batch, steps, d])?;
    check::dtype("varying_scan", "a", a, u.dtype())?;
    if let Some(initial) = initial {
        check::shape("varying_scan", "the initial state", initial, &[batch, d])?;
        check::dtype("varying_scan", "the initial state", initial, u.dtype())?;
    }
    let chunk = match path {
        ScanPath::Sequential => None,
        ScanPath::Chunked => Some(cpu::CHUNK),
        ScanPath::Fft => {
            let problem = "poles that change have no convolution kernel: evaluate it sequentially or in chunks";
            return Err(Error::invalid("varying_scan", problem));
        }
    };
    if let Some(gpu) = u.gpu() {
        return gpu::varying_scan(gpu, a, u, initial);
    }
    for_float!(u, "varying_scan", T => {
        let rows = Rows { steps, dim: d, chunk };
        let start = initial.map(Tensor::data::<T>).transpose()?;
        let mut states = Buffer::<T>::unspecified(batch * steps * d);
        cpu::scan(rows, Direction::Forward, a.data()?, u.data()?, start, &mut states);
        let states = Tensor::from_buffer(states, [batch, steps, d])?;
        let learns = autograd::needs_gradient(a);
        let (saved_states, saved_initial) = (learns.then(|| states.clone()), initial.map(Tensor::detach));
        let saved_a = a.detach();
        states.from_operator("varying_scan", &[Some(a), Some(u), initial], move |g, wanted| {
            let a = saved_a.data::<T>()?;
            let mut adjoint = Buffer::<T>::unspecified(batch * steps * d);
            cpu::scan(rows, Direction::Backward, a, g.data()?, None, &mut adjoint);
            let of_a = match &saved_states {
                Some(states) => {
                    let start = saved_initial.as_ref().map(Tensor::data::<T>).transpose()?;
                    let mut of_a = Buffer::<T>::unspecified(batch * steps * d);
                    cpu::factor_gradient(rows, states.data()?, start, &adjoint, &mut of_a);
                    Some(Tensor::from_buffer(of_a, [batch, steps, d])?)
                }
                None => None,
            };
            let first = |values: &[T], b: usize, i: usize| values[b * steps * d + i];
            let of_initial = wanted[2].then(|| {
                let product = |b: usize, i: usize| if steps == 0 { T::default() } else { first(a, b, i) * first(&adjoint, b, i) };
                let values = (0..batch).flat_map(|b| (0..d).map(move |i| (b, i))).map(|(b, i)| product(b, i));
                Tensor::from_vec(values.collect(), [batch, d])
            });
            let of_initial = of_initial.transpose()?;
            let of_u = if wanted[1] { Some(Tensor::from_buffer(adjoint, [batch, steps, d])?) } else { None };
            Ok(vec![of_a, of_u, of_initial])
        })
    })
}
