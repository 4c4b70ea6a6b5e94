//! The command line end to end: results, exit codes, and that nothing is written where something is wrong.

mod adapters;
mod certificates;
mod common;
mod control_page;
mod refusals;
mod systems;
mod weights;
