//! Stream adapters made with the interface that is open to everyone.

pub mod complex;
pub mod hankel_shared;
pub mod selective;
pub mod state_offset;
#[cfg(test)]
mod tests;

pub use complex::Complex;
pub use hankel_shared::HankelShared;
pub use selective::Selective;
pub use state_offset::StateOffset;

use hankel_core::{Result, Tensor};
use hankel_ops::narrow_time;

/// The states `[batch, d]` after the last step of `states` `[batch, T, d]`; those before it, `initial`, when there is no step.
fn last(states: &Tensor, initial: Option<&Tensor>) -> Result<Tensor> {
    let &[batch, steps, d] = &states.shape()[..] else { return Ok(states.clone()) };
    match (steps, initial) {
        (0, Some(initial)) => Ok(initial.clone()),
        (0, None) => Tensor::zeros_of(states.dtype(), [batch, d]),
        _ => narrow_time(states, steps - 1, 1)?.reshape([batch, d]),
    }
}
