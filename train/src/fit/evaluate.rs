//! Evaluation on a split.

use super::model::Model;
use crate::results::{Scores, Split};
use crate::run::interrupt;
use crate::tasks::{Tally, Task};
use anyhow::Result;

/// Scores the first `sequences` of a split in batches of `batch_size`; `None` when an interrupt was asked for meanwhile.
///
/// # Errors
/// Those of the operators.
pub fn evaluate(
    model: &Model,
    task: &dyn Task,
    split: Split,
    sequences: usize,
    batch_size: usize,
    smoothing: f64,
) -> Result<Option<Scores>> {
    let indices: Vec<usize> = (0..sequences.min(task.sequences(split))).collect();
    let mut tally = Tally::with_smoothing(smoothing);
    for indices in indices.chunks(batch_size.max(1)) {
        if interrupt::requested() {
            return Ok(None);
        }
        let batch = task.batch(split, indices)?;
        tally.add(&batch, model.judge(&batch, smoothing)?);
    }
    Ok(Some(task.scores(&tally)))
}
