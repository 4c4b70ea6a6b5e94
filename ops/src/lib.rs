//! The operators: one folder each, with its equation, gradient and kernels.
//!
//! An operator is a function from tensors to a tensor. It checks shapes and element types once, at its door, computes in
//! `f32` or `f64`, and records a rule for its gradient only if one will be asked for.

mod check;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod kernels;
#[doc(hidden)]
pub mod registry;

pub use dropout::dropout;
pub use elementwise::{add, clamp, exp, expm1, multiply, scale, softplus};
pub use embedding::embedding;
