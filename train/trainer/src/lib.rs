//! Training of adapters on frozen transformers: configuration, tasks, training loop, evaluation, run directories and the
//! report of a run.

#![warn(clippy::print_stderr, unreachable_pub)]

/// As `eprintln!`, but a reader that has gone away (`2>&1 | head`) does not end the training, and names from files do not
/// steer the terminal. Of several processes the first one speaks.
#[macro_export]
macro_rules! tell {
    ($($message:tt)*) => {
        if !$crate::parallel::is_muted() {
            hankel_io::terminal::tell(&format!($($message)*))
        }
    };
}

pub mod config;
pub mod export;
pub mod fit;
pub mod format;
mod metrics;
mod optim;
pub mod parallel;
pub mod report;
pub mod results;
pub mod run;
mod settings;
pub mod tasks;

pub use metrics::TextMetric;
