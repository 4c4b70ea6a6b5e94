//! Sweeps: the cells of experiments, one run directory each, run in turn or shared out over the jobs of a cluster.
//!
//! Directories are all there is to know about a sweep: a cell with a `result.json` is done, one with a `config.toml` alone is gone
//! on with from its newest checkpoint, one with a `failed.json` has failed. A process holds a lock on its cell, which the system
//! takes back when the process ends however it ends, and a claim, which others see where a lock does not reach: several may work on
//! one sweep, and none repeats another's cell.

mod cell_directory;
mod claim;
mod others;
mod run;

pub use cell_directory::{CellDirectory, Failure, State};
pub use others::{finished_beside, of_other_settings};
pub use run::{Outcome, Selection, run};
