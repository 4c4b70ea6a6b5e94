//! Generated answers and probable options of a task on texts.

use super::model::Model;
use crate::results::Split;
use crate::run::interrupt;
use crate::tasks::Text;
use crate::tasks::text::{Example, Prediction};
use anyhow::Result;
use hankel_core::{Tensor, no_grad};
use hankel_models::{Pass, State};
use hankel_ops::{linear, narrow_time};
use std::collections::BTreeSet;

/// Tokens of a prompt that are read at once.
const PART: usize = 1024;

/// Answers the first `sequences` questions of a split, greedily, and scores them; `None` when an interrupt was asked for
/// meanwhile.
///
/// # Errors
/// Those of the operators and of the tokenizer.
pub fn predict(model: &Model, text: &Text, split: Split, sequences: usize) -> Result<Option<Vec<Prediction>>> {
    let mut predictions = Vec::new();
    for example in text.examples(split).iter().take(sequences) {
        if interrupt::requested() {
            return Ok(None);
        }
        let mut line = answer(model, text, example)?;
        line.scores = text.scoring().score(&line);
        predictions.push(line);
    }
    Ok(Some(predictions))
}

fn answer(model: &Model, text: &Text, example: &Example) -> Result<Prediction> {
    let question = &example.question;
    let prompt = text.layout().prompt(example)?;
    let mut reader = Reader { model, state: State::default() };
    let next = reader.read(&prompt)?;
    let mut log_likelihoods = Vec::new();
    for ids in text.options(question)? {
        log_likelihoods.push(reader.clone().log_likelihood(&next, &ids)?);
    }
    Ok(Prediction {
        id: question.id.clone(),
        document: question.document.id.clone(),
        prediction: generate(reader, text, &prompt, next, example.new_tokens)?,
        references: question.references.clone(),
        dataset: question.dataset.clone(),
        all_classes: question.classes.clone(),
        options: question.options.iter().map(|(label, _)| label.clone()).collect(),
        log_likelihoods,
        ..Prediction::default()
    })
}

/// The most probable continuation, token by token, up to the end of the text, a stop string or `most` tokens.
fn generate(mut reader: Reader<'_>, text: &Text, prompt: &[u32], next: Vec<f32>, most: usize) -> Result<String> {
    let (config, tokenizer) = (text.config(), text.layout().tokenizer());
    let penalty = config.repetition_penalty.unwrap_or(1.0) as f32;
    let mut seen: BTreeSet<u32> = prompt.iter().copied().collect();
    let (mut ids, mut logits, mut written) = (Vec::new(), next, String::new());
    while ids.len() < most {
        penalise(&mut logits, &seen, penalty);
        let best = (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best }) as u32;
        if tokenizer.eos() == Some(best) {
            break;
        }
        ids.push(best);
        seen.insert(best);
        written = tokenizer.decode(&ids)?;
        if let Some(place) = config.stop.iter().filter_map(|stop| written.find(stop.as_str())).min() {
            written.truncate(place);
            break;
        }
        if ids.len() < most {
            logits = reader.read(&[best])?;
        }
    }
    Ok(written)
}

/// Makes tokens that were seen less probable (Keskar et al., 2019).
fn penalise(logits: &mut [f32], seen: &BTreeSet<u32>, penalty: f32) {
    for &token in seen {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
    }
}

/// A model in the middle of a text.
#[derive(Clone)]
struct Reader<'a> {
    model: &'a Model,
    state: State,
}

impl Reader<'_> {
    /// Reads `ids` and gives the logits of the next token.
    fn read(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        let Model { backbone, adapters } = self.model;
        no_grad(|| {
            let mut logits = Vec::new();
            for part in ids.chunks(PART) {
                let tokens = Tensor::from_vec(part.to_vec(), [1, part.len()])?;
                let hidden = backbone.hidden(&tokens, adapters, &mut Pass::streaming(&mut self.state))?;
                let last = narrow_time(&hidden, part.len() - 1, 1)?;
                logits = linear(&last, &backbone.head().tensor(), None)?.to_f64_vec();
            }
            Ok(logits.into_iter().map(|logit| logit as f32).collect())
        })
    }

    /// The log-likelihood of `ids`, the first of which has the logits `next`, in nats.
    fn log_likelihood(mut self, next: &[f32], ids: &[u32]) -> Result<f64> {
        let (mut logits, mut sum) = (next.to_vec(), 0.0);
        for (index, &id) in ids.iter().enumerate() {
            if index > 0 {
                logits = self.read(&ids[index - 1..index])?;
            }
            let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f64 = logits.iter().map(|&logit| f64::from(logit - top).exp()).sum();
            sum += f64::from(logits[id as usize] - top) - total.ln();
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seen_tokens_become_less_probable() {
        let mut logits = [2.0, -1.0, 0.5, 0.0];
        penalise(&mut logits, &BTreeSet::from([0, 1, 3, 99]), 2.0);
        assert_eq!(logits, [1.0, -2.0, 0.5, 0.0]);
    }
}
