//! Evaluation on a split.

use super::contribution::Contributions;
use super::model::Model;
use super::predict::predict;
use crate::parallel::Group;
use crate::results::{Scores, Split};
use crate::run::interrupt;
use crate::tasks::text::Prediction;
use crate::tasks::{MetricSums, Task};
use anyhow::Result;
use serde::{Deserialize, Serialize};

/// What is known of one batch.
#[derive(Default, Serialize, Deserialize)]
struct Evaluated {
    sums: MetricSums,
    contributions: Contributions,
}

/// Scores the first `sequences` of a split in batches of `batch_size`, shared out over the processes of `group`; `None` when
/// one was interrupted. What the adapters add to the stream is measured where `contributions` are given. Sums are over
/// batches, in their order: they do not depend on the number of processes.
///
/// # Errors
/// Those of the operators.
pub(super) fn evaluate(
    group: &Group,
    model: &Model,
    task: &dyn Task,
    split: Split,
    sequences: usize,
    batch_size: usize,
    smoothing: f64,
    mut contributions: Option<&mut Contributions>,
) -> Result<Option<Scores>> {
    let indices: Vec<usize> = (0..sequences.min(task.sequences(split))).collect();
    let batches: Vec<&[usize]> = indices.chunks(batch_size.max(1)).collect();
    let measures = contributions.is_some();
    let one = |indices: &[usize]| -> Result<Evaluated> {
        let mut one = Evaluated { sums: MetricSums::with_smoothing(smoothing), ..Evaluated::default() };
        let batch = task.batch(split, indices)?;
        let mut recorded = measures.then(Vec::new);
        let predictions = model.predict_targets(&batch, smoothing, recorded.as_mut())?;
        if batch.preference.is_some() {
            let nll = predictions.iter().map(|token| token.loss);
            one.sums.add_pairs(&batch, &model.score_pairs(&batch, smoothing, nll)?);
        } else {
            one.sums.add(&batch, predictions);
        }
        one.contributions.add(&batch, &recorded.unwrap_or_default());
        Ok(one)
    };
    let share = group.share(batches.len() as u64);
    let own = batches[share.start as usize..share.end as usize].iter();
    let own = own.map(|indices| if interrupt::requested() { Ok(None) } else { one(indices).map(Some) });
    // Collecting ends at the first batch that is left out.
    let all: Option<Vec<Vec<Evaluated>>> = group.exchange(own.collect())?.into_iter().collect();
    let Some(all) = all else { return Ok(None) };
    let mut sums = MetricSums::with_smoothing(smoothing);
    for one in all.iter().flatten() {
        sums.merge(&one.sums);
        if let Some(contributions) = &mut contributions {
            contributions.merge(&one.contributions);
        }
    }
    Ok(Some(task.scores(&sums)))
}

/// As `evaluate`, and for tasks on texts the answers that the model generates, with their scores.
///
/// # Errors
/// Those of the operators.
pub fn evaluate_and_generate(
    group: &Group,
    model: &Model,
    task: &dyn Task,
    split: Split,
    sequences: usize,
    batch_size: usize,
    smoothing: f64,
    contributions: Option<&mut Contributions>,
) -> Result<Option<(Scores, Vec<Prediction>)>> {
    let scores = evaluate(group, model, task, split, sequences, batch_size, smoothing, contributions)?;
    let Some(mut scores) = scores else { return Ok(None) };
    let Some(text) = task.as_text().filter(|text| text.scoring().generate) else {
        return Ok(Some((scores, Vec::new())));
    };
    let Some(predictions) = predict(group, model, text, split, sequences)? else { return Ok(None) };
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
