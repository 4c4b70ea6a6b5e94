//! Generated answers and probable options of a task on texts.

use super::model::Model;
use crate::parallel::Group;
use crate::results::Split;
use crate::run::interrupt;
use crate::tasks::Text;
use crate::tasks::text::{Example, Prediction};
use anyhow::Result;
use hankel_models::{Generator, Sampling};
use std::time::{Duration, Instant};

/// Between two lines about how far it is.
const INTERVAL: Duration = Duration::from_secs(30);

/// Answers the first `sequences` questions of a split, greedily, and scores them: every process of `group` each n-th question.
/// `None` when an interrupt was asked for meanwhile.
///
/// # Errors
/// Those of the operators and of the tokenizer.
pub(super) fn predict(
    group: &Group,
    model: &Model,
    text: &Text,
    split: Split,
    sequences: usize,
) -> Result<Option<Vec<Prediction>>> {
    let examples = text.examples(split);
    let examples = &examples[..sequences.min(examples.len())];
    let mut told = Instant::now();
    let one = |(index, example): (usize, &Example)| -> Result<Option<Prediction>> {
        if told.elapsed() >= INTERVAL {
            tell!("{index} of {} questions answered", examples.len());
            told = Instant::now();
        }
        if interrupt::requested() {
            return Ok(None);
        }
        let mut line = answer(model, text, example)?;
        line.scores = text.scoring().score(&line);
        Ok(Some(line))
    };
    // One after the other: neighbours are on one document, and take about as long.
    let own = examples.iter().enumerate().skip(group.rank()).step_by(group.size()).map(one).collect();
    let all: Option<Vec<Vec<Prediction>>> = group.exchange(own)?.into_iter().collect();
    let Some(all) = all else { return Ok(None) };
    let mut all: Vec<_> = all.into_iter().map(Vec::into_iter).collect();
    Ok((0..examples.len()).map(|index| all[index % group.size()].next()).collect())
}

fn answer(model: &Model, text: &Text, example: &Example) -> Result<Prediction> {
    let question = &example.question;
    let prompt = text.layout().prompt(example)?;
    let repetition_penalty = text.config().repetition_penalty.unwrap_or(1.0);
    let sampling = Sampling { repetition_penalty, ..Sampling::default() };
    let generator = Generator::new(&*model.backbone, &model.adapters, &prompt, sampling)?;
    let mut generator = generator.by_turns(text.turn_start());
    let options = text.options(question)?;
    let log_likelihoods = options.iter().map(|ids| generator.log_likelihood(ids)).collect::<Result<_, _>>()?;
    Ok(Prediction {
        id: question.id.clone(),
        document: question.document.id.clone(),
        prediction: generate(generator, text, example.new_tokens)?,
        references: question.references.clone(),
        dataset: question.dataset.clone(),
        all_classes: question.classes.clone(),
        options: question.options.iter().map(|(label, _)| label.clone()).collect(),
        log_likelihoods,
        ..Prediction::default()
    })
}

/// The continuation up to the end of the text, a stop string or `most` tokens.
fn generate(mut generator: Generator<'_>, text: &Text, most: usize) -> Result<String> {
    let (stops, tokenizer) = (&text.config().stop, text.layout().tokenizer());
    let ends = tokenizer.special_ids(stops);
    let (mut ids, mut written) = (Vec::new(), String::new());
    while ids.len() < most {
        let token = generator.step()?;
        if tokenizer.is_end(token) || ends.contains(&token) {
            break;
        }
        ids.push(token);
        written = tokenizer.decode(&ids)?;
        if let Some(place) = stops.iter().filter_map(|stop| written.find(stop.as_str())).min() {
            written.truncate(place);
            break;
        }
    }
    Ok(written)
}
