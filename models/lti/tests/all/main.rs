//! Every test of this crate's surface, in one program.

mod common;
mod empirical;
mod golden_bt;
mod golden_weighted;
mod proof;
mod properties;
mod scales;
mod weighted;
