//! What a training makes a model forget: the loss on another task with the adapter, less that without.

use super::evaluate::evaluate;
use super::model::Model;
use crate::parallel::Group;
use crate::results::{Scores, Split, metric};
use crate::tasks::Task;
use anyhow::Result;
use hankel_models::AdapterSet;

/// The other task, and the loss of the model without an adapter.
pub struct Forgetting {
    task: Box<dyn Task>,
    sequences: usize,
    batch_size: usize,
    before: f64,
}

impl Forgetting {
    /// Evaluates the backbone alone on the first `sequences` of the validation split of `task`, or on all; `None` when interrupted.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn new(
        group: &Group,
        model: &Model,
        task: Box<dyn Task>,
        sequences: Option<usize>,
        batch_size: usize,
    ) -> Result<Option<Self>> {
        let sequences = sequences.unwrap_or_else(|| task.sequences(Split::Validation));
        let alone = Model { adapters: AdapterSet::none(&model.backbone.placement()), ..model.clone() };
        let mut forgetting = Forgetting { task, sequences, batch_size, before: 0.0 };
        let Some(before) = forgetting.loss(group, &alone)? else { return Ok(None) };
        forgetting.before = before;
        Ok(Some(forgetting))
    }

    /// Adds [`metric::FORGETTING`] of `model` to the scores of its row; `false` when interrupted.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn measure(&self, group: &Group, model: &Model, scores: &mut Scores) -> Result<bool> {
        let Some(after) = self.loss(group, model)? else { return Ok(false) };
        scores.metrics.insert(metric::FORGETTING.to_owned(), after - self.before);
        Ok(true)
    }

    /// The mean loss over the validation split, in nats a token.
    fn loss(&self, group: &Group, model: &Model) -> Result<Option<f64>> {
        let Forgetting { task, sequences, batch_size, .. } = self;
        let scores = evaluate(group, model, &**task, Split::Validation, *sequences, *batch_size, 0.0, None)?;
        Ok(scores.map(|scores| scores.get(metric::LOSS).unwrap_or(f64::NAN)))
    }
}
