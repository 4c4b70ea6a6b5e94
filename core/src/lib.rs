//! Tensors, automatic differentiation, random numbers and the helpers every kernel needs. Knows no operator.

mod dtype;
mod float;

pub use dtype::{DType, Element};
pub use float::Float;
