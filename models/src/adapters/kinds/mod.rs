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
