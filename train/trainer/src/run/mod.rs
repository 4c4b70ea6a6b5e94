//! What surrounds training: the run directory, checkpoints, events, progress, Ctrl-C and facts
//! about the machine.

pub mod checkpoint;
mod checksum;
mod directory;
mod environment;
mod events;
mod finder;
pub mod interrupt;
pub mod lock;
pub mod memory;
pub(crate) mod model_files;
mod progress;

pub use directory::{RunDirectory, RunError};
pub use finder::{Finder, begun_in};
pub use model_files::fingerprint;

pub(crate) use environment::environment;
pub(crate) use events::EventLog;
pub(crate) use progress::Progress;
