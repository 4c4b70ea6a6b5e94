//! What a kind does to all its adapters together while they are trained.

use crate::settings::Table;
use crate::weights::arrays::NamedArrays;
use hankel_core::{Gradients, Result, Tensor};
use std::collections::BTreeMap;

/// The ranks after a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// What the sum of the ranks should be by the schedule.
    pub budget: usize,
    /// Number of singular values that are not 0, by projection, if they were allocated anew in this step.
    pub ranks: Option<Vec<(String, usize)>>,
}

/// Training beyond gradients: a term of the loss, and a step after that of the optimizer.
pub trait SharedTraining: Send + Sync {
    /// A term of the loss of an optimizer step, added once for all its micro-batches.
    ///
    /// # Errors
    /// Those of the operators.
    fn penalty(&self) -> Result<Option<Tensor>> {
        Ok(None)
    }

    /// Whether [`SharedTraining::step`] does anything.
    fn allocates(&self) -> bool {
        false
    }

    /// What follows optimizer step `step`, counted from 0, with its gradients and the factor that the optimizer put on them.
    ///
    /// # Errors
    /// When a gradient is missing.
    fn step(&self, _step: usize, _gradients: &Gradients, _factor: f64) -> Result<Option<Allocation>> {
        Ok(None)
    }

    /// Ends the training, however many steps it had: what is computed from here on is what [`SharedTraining::finish`] writes. Gives
    /// the ranks if they were allocated for this.
    ///
    /// # Errors
    /// Those of the operators.
    fn end(&self) -> Result<Option<Allocation>> {
        Ok(None)
    }

    /// What a resumed training needs, by name.
    ///
    /// # Errors
    /// Those of the operators.
    fn save(&self) -> Result<BTreeMap<String, Tensor>>;

    /// Takes back what [`SharedTraining::save`] gave.
    ///
    /// # Errors
    /// When it is the state of other adapters.
    fn restore(&self, saved: &BTreeMap<String, Tensor>) -> Result<()>;

    /// Completes what a directory holds: the fields of `adapter_config.json` and the tensors.
    fn finish(&self, fields: &mut Table, arrays: &mut NamedArrays);
}
