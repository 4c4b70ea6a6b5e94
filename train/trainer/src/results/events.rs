//! The lines of `metrics.jsonl`.

use super::not_finite::{figure, range};
use super::{Scores, Split};
use serde::{Deserialize, Serialize};

/// One line of `metrics.jsonl`.
///
/// `stage` is `pretrain` or the name of an adapter; `step` counts optimizer steps of that stage, from 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run begins (also written by a resumed run, with `resumed = true`).
    Start {
        /// Name of the run.
        name: String,
        /// Seed of the run.
        seed: u64,
        /// Version of the software.
        version: String,
        /// Whether the run continues an earlier one.
        resumed: bool,
        /// Directory in which it was begun, from which its configuration names files.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        directory: Option<String>,
        /// Device that computes from here on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
        /// Processes that compute from here on, where they are several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        processes: Option<usize>,
    },
    /// A stage begins at optimizer step `step` (0 unless resumed).
    Stage {
        /// Name of the stage.
        stage: String,
        /// Steps already done.
        step: u64,
        /// Steps to do in total.
        steps: u64,
        /// Number of trainable values.
        trainable: u64,
    },
    /// An adapter on a pretrained backbone before its first step, on the first batch of the validation split.
    Initial {
        /// Name of the stage.
        stage: String,
        /// Sequences evaluated on.
        sequences: usize,
        /// Mean loss in nats.
        #[serde(deserialize_with = "figure")]
        loss: f64,
        /// Mean loss of the backbone without the adapter.
        #[serde(deserialize_with = "figure")]
        backbone_loss: f64,
        /// Largest `||gate y|| / ||h||` of all layers, for adapters on the stream.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        contribution: Option<f64>,
    },
    /// One logged optimizer step.
    Step {
        /// Name of the stage.
        stage: String,
        /// Optimizer step.
        step: u64,
        /// Loss that was minimised (label-smoothed if smoothing is on), mean over the tokens since the last such line.
        loss: f64,
        /// Learning rate of the main parameter group at this step.
        learning_rate: f64,
        /// Global gradient norm before clipping.
        gradient_norm: f64,
        /// Target tokens seen by this stage so far.
        tokens: u64,
        /// Tokens (batch x length) per second since the last such line.
        tokens_per_second: f64,
        /// Seconds of training in this stage, evaluation apart.
        seconds: f64,
        /// Bytes of a GPU that tensors take or that are kept for the next ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device_bytes: Option<u64>,
        /// What was moved between processes, where they are several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        communication: Option<Communication>,
    },
    /// One evaluation.
    Eval {
        /// Name of the stage, or of the row (`hrm-truncated`, `none`).
        stage: String,
        /// Optimizer step.
        step: u64,
        /// Data evaluated on.
        split: Split,
        /// The figures.
        scores: Scores,
        /// Seconds it took.
        seconds: f64,
    },
    /// Gates, decay rates and the like of every adapted layer, logged with the evaluations.
    Layers {
        /// Name of the stage.
        stage: String,
        /// Optimizer step.
        step: u64,
        /// One entry per adapted site.
        layers: Vec<LayerState>,
    },
    /// A full state was written.
    Checkpoint {
        /// Name of the stage.
        stage: String,
        /// Optimizer step.
        step: u64,
        /// Directory, relative to the run directory.
        path: String,
    },
    /// An adapter was truncated.
    Truncation {
        /// Name of the stage.
        stage: String,
        /// The rule in words, for example `epsilon = 0.01`.
        rule: String,
        /// State dimensions per layer before.
        from: Vec<usize>,
        /// State dimensions per layer after.
        to: Vec<usize>,
    },
    /// The run ended before it was finished.
    Stopped {
        /// Name of the stage.
        stage: String,
        /// Last completed optimizer step.
        step: u64,
        /// Why.
        reason: String,
    },
    /// The run is complete.
    Finished {
        /// Seconds of this process since its start.
        seconds: f64,
    },
}

/// What process 0 moved in a step, a mean over the steps since the last such line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Communication {
    /// Number of processes.
    pub processes: usize,
    /// Bytes of gradients taken from other processes.
    pub bytes: f64,
    /// Seconds in which gradients were exchanged.
    pub seconds: f64,
    /// Seconds of small messages, waiting for the slowest process included.
    pub waiting_seconds: f64,
}

/// What can be logged of an adapted layer while it trains.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerState {
    /// Layer number, from 0.
    pub layer: usize,
    /// Site (`mlp`, `attention`, `q_proj` ...).
    pub site: String,
    /// The gate, for adapters that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<f64>,
    /// Smallest and largest pole radius, for recurrent adapters.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "range")]
    pub pole_range: Option<(f64, f64)>,
    /// The rank, for adapters that share ranks out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
}

impl Event {
    /// The stage or row that it is of.
    pub fn stage(&self) -> Option<&str> {
        match self {
            Event::Start { .. } | Event::Finished { .. } => None,
            Event::Stage { stage, .. }
            | Event::Initial { stage, .. }
            | Event::Step { stage, .. }
            | Event::Eval { stage, .. }
            | Event::Layers { stage, .. }
            | Event::Checkpoint { stage, .. }
            | Event::Truncation { stage, .. }
            | Event::Stopped { stage, .. } => Some(stage),
        }
    }
}
