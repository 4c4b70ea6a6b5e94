//! Configuration.
mod de;
pub mod error;
mod tree;
