//! The train binary: configuration, tasks, training loop, evaluation and reports.

pub mod config;
pub mod results;
pub mod tasks;
