//! Evaluation on a split.

use super::contribution::Contributions;
use super::model::Model;
use super::predict::predict;
use crate::results::{Scores, Split};
use crate::run::interrupt;
use crate::tasks::text::Prediction;
use crate::tasks::{MetricSums, Task};
use anyhow::Result;

/// Scores the first `sequences` of a split in batches of `batch_size`; `None` when interrupted. What
/// the adapters add to the stream is measured where `contributions` are given.
///
/// # Errors
/// Those of the operators.
pub(super) fn evaluate(
    model: &Model,
    task: &dyn Task,
    split: Split,
    sequences: usize,
    batch_size: usize,
    smoothing: f64,
    mut contributions: Option<&mut Contributions>,
) -> Result<Option<Scores>> {
    let indices: Vec<usize> = (0..sequences.min(task.sequences(split))).collect();
    let mut sums = MetricSums::with_smoothing(smoothing);
    for indices in indices.chunks(batch_size.max(1)) {
        if interrupt::requested() {
            return Ok(None);
        }
        let batch = task.batch(split, indices)?;
        let mut recorded = contributions.is_some().then(Vec::new);
        sums.add(&batch, model.predict_targets(&batch, smoothing, recorded.as_mut())?);
        if let (Some(contributions), Some(recorded)) = (&mut contributions, &recorded) {
            contributions.add(&batch, recorded);
        }
    }
    Ok(Some(task.scores(&sums)))
}

/// As `evaluate`, and for tasks on texts the answers that the model generates, with their scores.
///
/// # Errors
/// Those of the operators.
pub fn evaluate_and_generate(
    model: &Model,
    task: &dyn Task,
    split: Split,
    sequences: usize,
    batch_size: usize,
    smoothing: f64,
    contributions: Option<&mut Contributions>,
) -> Result<Option<(Scores, Vec<Prediction>)>> {
    let scores = evaluate(model, task, split, sequences, batch_size, smoothing, contributions)?;
    let Some(mut scores) = scores else { return Ok(None) };
    let Some(text) = task.as_text().filter(|text| text.scoring().generate) else {
        return Ok(Some((scores, Vec::new())));
    };
    let Some(predictions) = predict(model, text, split, sequences)? else { return Ok(None) };
    scores.metrics.extend(text.scoring().means(predictions.iter()));
    Ok(Some((scores, predictions)))
}

/// Predictions as JSON lines.
///
/// # Errors
/// Never for what [`evaluate_and_generate`] gives.
pub fn to_lines<'a>(predictions: impl IntoIterator<Item = &'a Prediction>) -> Result<String> {
    let line = |prediction| Ok(serde_json::to_string(prediction)? + "\n");
    predictions.into_iter().map(line).collect()
}
