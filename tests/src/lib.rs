//! What crosses crates: gradients, equivalence, conformance and recovery.

pub mod golden;
pub mod gradients;
pub mod operators;
pub mod sequences;
