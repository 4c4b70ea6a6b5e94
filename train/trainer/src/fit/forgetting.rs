//! What a training makes a model forget: the loss on another task with the adapter, less that without.

use super::evaluate::evaluate;
use super::model::Model;
use crate::parallel::Group;
use crate::results::{Scores, Split, metric};
use crate::tasks::Task;
use anyhow::Result;
use hankel_models::AdapterSet;

/// The other task, and the loss of the model without an adapter.
pub(super) struct Forgetting {
    task: Box<dyn Task>,
    batch_size: usize,
    before: f64,
}

impl Forgetting {
    /// Evaluates the backbone alone; `None` when interrupted.
    ///
    /// # Errors
    /// Those of the operators.
    pub(super) fn new(group: &Group, model: &Model, task: Box<dyn Task>, batch_size: usize) -> Result<Option<Self>> {
        let alone = Model { adapters: AdapterSet::none(&model.backbone.placement()), ..model.clone() };
        let loss = loss(group, &alone, &*task, batch_size)?;
        Ok(loss.map(|before| Forgetting { task, batch_size, before }))
    }

    /// Adds [`metric::FORGETTING`] of `model` to the scores of its row; `false` when interrupted.
    ///
    /// # Errors
    /// Those of the operators.
    pub(super) fn measure(&self, group: &Group, model: &Model, scores: &mut Scores) -> Result<bool> {
        let Some(after) = loss(group, model, &*self.task, self.batch_size)? else { return Ok(false) };
        scores.metrics.insert(metric::FORGETTING.to_owned(), after - self.before);
        Ok(true)
    }
}

/// The mean loss over the validation split, in nats a token.
fn loss(group: &Group, model: &Model, task: &dyn Task, batch_size: usize) -> Result<Option<f64>> {
    let sequences = task.sequences(Split::Validation);
    let scores = evaluate(group, model, task, Split::Validation, sequences, batch_size, 0.0, None)?;
    Ok(scores.map(|scores| scores.get(metric::LOSS).unwrap_or(f64::NAN)))
}
