//! Training: one loop for every task, adapter and stage.
//!
//! A run is a list of stages (pretraining, then one per adapter). A stage differs from another one in which parameters are
//! trained, on which task and with which settings; the loop (`Stage`) and its step (`Training`) are the same.

mod backbone_snapshot;
mod batches;
mod contribution;
mod dry_run;
mod empirical_start;
mod evaluate;
mod fingerprint;
mod forgetting;
mod guard;
mod memory;
mod model;
mod positions;
mod predict;
mod preference;
mod pretrained;
mod probe;
mod record;
mod record_gradients;
mod record_inputs;
mod replaced;
mod resumed;
mod rows;
mod run;
mod session;
mod slices;
mod stage;
mod start;
mod step_metrics;
mod training;
mod training_loop;
mod transformer;
mod truncate;

pub use backbone_snapshot::{BackboneSnapshot, open_device};
pub use dry_run::{DryRun, dry_run};
pub use evaluate::{evaluate_and_generate, to_lines};
pub use fingerprint::{check_same, check_same_adapters};
pub use forgetting::Forgetting;
pub use model::{Model, adapter_directory};
pub use positions::position_warning;
pub use pretrained::Pretrained;
pub use record::record_states;
pub use record_gradients::record_gradients;
pub use record_inputs::{FittedWeight, record_inputs};
pub use run::{Outcome, Prepared, fit};
pub use transformer::Transformer;

use std::fmt;
use std::path::PathBuf;

/// Why training ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// Ctrl-C, or a scheduler's request.
    #[error(
        "interrupted after step {step} of `{stage}`; the full state is saved: continue with `train fit --out {} --resume`",
        .run.display()
    )]
    Interrupted {
        /// The directory of the run.
        run: PathBuf,
        /// The stage.
        stage: String,
        /// The last complete step.
        step: u64,
    },
    /// A loss or gradient that is not finite.
    #[error("{0}")]
    NonFinite(Failure),
    /// A GPU that was lost, or that has no room.
    #[error("{0}")]
    Device(Failure),
}

/// Advice where values are not finite.
const SMALLER_STEPS: &str =
    "a lower `train.lr`, more `train.warmup_steps` or a smaller gate, where there is one, may help";

/// What went wrong in a step.
#[derive(Debug)]
pub struct Failure {
    /// The stage.
    pub stage: String,
    /// The step that failed.
    pub step: u64,
    /// What happened, and where.
    pub cause: String,
    /// The newest checkpoint before it went wrong.
    pub checkpoint: Option<PathBuf>,
    /// What to do.
    pub advice: &'static str,
}

impl Failure {
    /// Where it was, and what.
    fn event(&self) -> String {
        format!("`{}` stopped at step {}: {}", self.stage, self.step, self.cause)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; ", self.event())?;
        match &self.checkpoint {
            Some(path) => write!(f, "the last good checkpoint is {}; ", path.display())?,
            None => f.write_str("there is no good checkpoint before that; ")?,
        }
        f.write_str(self.advice)
    }
}
