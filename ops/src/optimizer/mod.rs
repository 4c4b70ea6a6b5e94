//! What an optimizer step does to parameters, on their device: the norm of all gradients, and the update of AdamW.
//!
//! On a GPU nothing is read back: the norm stays there, and the update takes it from there to clip by.

mod adamw;
mod gpu;
mod norm;
#[cfg(test)]
mod tests;

pub use adamw::{AdamW, Moments, Rate, Scale};
pub use norm::{clip_factor, gradient_norm};
