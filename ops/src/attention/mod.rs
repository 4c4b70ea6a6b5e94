//! Causal attention: `softmax(scale Q K^T + mask) V` for each head.

pub mod cpu;
#[doc(hidden)]
pub mod oracle;
