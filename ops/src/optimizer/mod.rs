//! An optimizer step on the device of the parameters: the norm of all gradients, and the update of AdamW.
//!
//! On a GPU the norm stays there, and the update clips by it without reading it back.
//!
//! These are not operators: they change parameters in place and have no gradient. Their reference is the
//! trajectories of PyTorch, which the tests of hankel-train follow on the CPU and on a GPU.

mod adamw;
mod gpu;
mod norm;
#[cfg(test)]
mod tests;

pub use adamw::{AdamW, Moments, Rate, Scale};
pub use norm::{clip_factor, gradient_norm};
