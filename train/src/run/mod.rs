//! What surrounds training: the run directory, files that are never half written, events, progress, Ctrl-C and facts
//! about the machine.

pub mod atomic;
pub mod checkpoint;
mod directory;
mod environment;
mod events;
pub mod interrupt;
mod progress;

pub use directory::{RunDirectory, RunError};
pub use environment::{environment, peak_memory};
pub use events::EventLog;
pub use progress::Progress;
