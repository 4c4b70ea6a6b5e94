//! Every test of this crate's surface but those that need a process of their own.

mod autograd;
mod golden_blocks;
mod gpu;
