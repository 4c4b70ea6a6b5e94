//! The train binary: configuration, tasks, training loop, evaluation and reports.

#![warn(clippy::print_stderr)]

/// As `eprintln!`, but a reader that has gone away (`2>&1 | head`) does not end the training.
macro_rules! tell {
    ($($message:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($message)*);
    }};
}

pub mod commands;
pub mod config;
pub mod export;
pub mod fit;
pub mod metrics;
pub mod optim;
pub mod report;
pub mod results;
pub mod run;
pub mod statistics;
pub mod study;
pub mod sweep;
pub mod tasks;
