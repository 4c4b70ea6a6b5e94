//! What crosses crates: gradients, equivalence, conformance and recovery.

pub mod golden;
pub mod gradients;
pub mod sequences;
