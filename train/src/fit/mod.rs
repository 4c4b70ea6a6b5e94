//! Training: one loop for every task, adapter and stage.
//!
//! A run is a list of stages (pretraining, then one per adapter). A stage differs from another one in which parameters are
//! trained, on which task and with which settings; the loop (`Stage`) and its step ([`Training`]) are the same.

mod dry_run;
mod evaluate;
mod foundation;
mod memory;
mod model;
mod predict;
mod record;
mod rows;
mod session;
mod stage;
mod training;
mod transformer;
mod truncate;
mod whole;

pub use dry_run::dry_run;
pub use evaluate::{evaluate, examine, to_lines};
pub use foundation::{Foundation, open_device};
pub use model::{Model, adapter_directory};
pub use predict::predict;
pub use record::record_states;
pub use rows::{count_parameters, layer_results};
pub use training::{Trained, Training};
pub use transformer::Transformer;
pub use whole::{Outcome, Prepared, fit};

use std::path::PathBuf;

/// Why training ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// Ctrl-C, or a scheduler's request.
    #[error("interrupted after step {step} of `{stage}`; the full state is saved: continue with --resume")]
    Interrupted {
        /// The stage.
        stage: String,
        /// The last complete step.
        step: u64,
    },
    /// A loss or gradient that is not finite.
    #[error(
        "`{stage}` stopped at step {step}: {cause}; {}; a lower `train.lr`, more `train.warmup_steps` or a smaller gate \
         may help",
        .checkpoint.as_ref().map_or_else(
            || "no checkpoint had been saved yet".to_owned(),
            |path| format!("the last good checkpoint is {}", path.display()),
        )
    )]
    NonFinite {
        /// The stage.
        stage: String,
        /// The step that failed.
        step: u64,
        /// Layer and operator that produced the first such value.
        cause: String,
        /// The newest checkpoint.
        checkpoint: Option<PathBuf>,
    },
}
