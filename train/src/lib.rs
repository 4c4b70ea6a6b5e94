//! The train binary: configuration, tasks, training loop, evaluation and reports.

pub mod commands;
pub mod config;
pub mod fit;
pub mod metrics;
pub mod optim;
pub mod report;
pub mod results;
pub mod run;
pub mod sweep;
pub mod tasks;
