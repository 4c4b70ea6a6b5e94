//! What a stage of a run trains.

use super::model::Model;
use crate::config::{ReduceConfig, TrainConfig};
use crate::tasks::Task;
use std::path::PathBuf;

/// What is trained, on what, and how.
pub(super) struct Stage<'a> {
    /// `pretrain` or the adapter's name.
    pub name: &'a str,
    /// The model; what is trainable in it is trained.
    pub model: &'a Model,
    /// The task.
    pub task: &'a dyn Task,
    /// The settings.
    pub settings: &'a TrainConfig,
    /// Truncation in the middle of the stage.
    pub reduction: Option<&'a Reduction<'a>>,
    /// Weight of the sum of the Hankel singular values in the loss.
    pub regularization: f64,
}

/// A truncation in the middle of a stage.
pub(super) struct Reduction<'a> {
    /// When, and by which rule.
    pub config: ReduceConfig,
    /// Where the truncated adapter is saved, with its certificate; a resumed run takes its shapes from there.
    pub directory: PathBuf,
    /// Name of the backbone in the adapter's file.
    pub base_model: &'a str,
}
