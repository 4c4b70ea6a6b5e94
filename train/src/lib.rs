//! The train binary: configuration, tasks, training loop, evaluation and reports.

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
