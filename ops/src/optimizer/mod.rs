//! An optimizer step on the device of the parameters: the norm of all gradients, the update of AdamW, and the scores of AdaLoRA.
//!
//! On a GPU the norm stays there, and the update clips by it without reading it back.
//!
//! These are not operators: they change parameters in place and have no gradient. Their reference is the
//! trajectories of PyTorch, which the tests of hankel-train follow on the CPU and on a GPU.

mod adamw;
mod gpu;
mod norm;
mod sensitivity;
#[cfg(test)]
mod tests;

pub use adamw::{AdamW, Moments, Rate, Scale};
pub use norm::{clip_factor, gradient_norm};
pub use sensitivity::Sensitivity;
