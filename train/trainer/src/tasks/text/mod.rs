//! Tasks on texts: questions about documents, answered by generation. The loss is on the answers.

mod calls;
mod config;
mod dedup;
mod document;
mod formats;
mod layout;
pub mod lines;
mod load;
mod prompts;
pub(super) mod records;
mod render;
mod scoring;
mod split;
mod template;
#[cfg(test)]
mod tests;
mod turns;

pub use formats::TextFormat;
pub use prompts::{Prompt, Prompts, Records};
pub use scoring::{Prediction, Scoring};

pub(crate) use config::TextConfig;
pub(crate) use dedup::duplicate_groups;
use document::Piece;
pub(crate) use document::{Document, Example, Question};
pub(crate) use formats::LONGBENCH_SCORE;
pub(crate) use layout::Layout;

use super::{Batch, MetricSums, Row, Sequence, Task, TaskError, tokenizer};
use crate::format::counted;
use crate::results::{DataFile, Scores, Split, TaskResult, metric};
use hankel_models::weights::WeightsError;
use hankel_models::{Tokenizer, TurnStart};
use rayon::prelude::*;
use render::Renderer;
use split::Parts;
use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

/// A task on texts.
pub struct Text {
    config: TextConfig,
    layout: Layout,
    renderer: Renderer,
    scoring: Scoring,
    turn_start: Option<TurnStart>,
    train: Vec<Example>,
    validation: Vec<Example>,
    test: Vec<Example>,
    files: Vec<DataFile>,
}

impl Text {
    /// Reads the files of a resolved configuration. Lines and examples that cannot be used are reported on standard error
    /// and left out.
    ///
    /// # Errors
    /// When a file cannot be read, nothing in it can be used, or a part of the division is left with nothing.
    pub fn open(config: &TextConfig) -> Result<Self, TaskError> {
        Self::with(config, |layout, renderer| load::load(config, layout, renderer))
    }

    /// All examples of another file, as the test part.
    ///
    /// # Errors
    /// When it cannot be read, or nothing in it can be used.
    pub fn open_on(config: &TextConfig, file: &Path) -> Result<Self, TaskError> {
        Self::with(config, |layout, renderer| load::whole(config, layout, renderer, file))
    }

    fn with(
        config: &TextConfig,
        load: impl FnOnce(&Layout, &Renderer) -> Result<(Parts, Vec<DataFile>), TaskError>,
    ) -> Result<Self, TaskError> {
        let tokenizer =
            Tokenizer::load(&tokenizer::place(config.tokenizer.as_deref())).map_err(TaskError::Tokenizer)?;
        let layout = Layout::new(tokenizer, config.length, config.truncation);
        let renderer = Renderer::new(config, layout.tokenizer())
            .map_err(|error| TaskError::Unusable(format!("`task.prompt` {error}")))?;
        let turn_start = turns::start(config, layout.tokenizer())?;
        let (parts, files) = load(&layout, &renderer)?;
        let text = Text {
            turn_start,
            scoring: Scoring { format: config.format, metrics: config.text_metrics(), generate: config.generates() },
            config: config.clone(),
            layout,
            renderer,
            train: parts.train,
            validation: parts.validation,
            test: parts.test,
            files,
        };
        if let (Some(start), Some(words)) = (&text.turn_start, &config.turn_start) {
            let has_turns = |example: &Example| {
                let sequence = text.layout.sequence(example).map_err(TaskError::Tokenizer)?;
                Ok(start.later_turns(&sequence.tokens).next().is_some())
            };
            let found = text.train.iter().map(has_turns).find(|found| !matches!(found, Ok(false))).transpose()?;
            if found.is_none() && !text.train.is_empty() {
                return Err(turns::never(words));
            }
        }
        Ok(text)
    }

    /// The settings.
    pub fn config(&self) -> &TextConfig {
        &self.config
    }

    /// From examples to tokens.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How generated answers are scored.
    pub fn scoring(&self) -> &Scoring {
        &self.scoring
    }

    /// What begins a turn.
    pub fn turn_start(&self) -> Option<TurnStart> {
        self.turn_start.clone()
    }

    /// The examples of a part.
    pub fn examples(&self, split: Split) -> &[Example] {
        match split {
            Split::Train => &self.train,
            Split::Validation => &self.validation,
            Split::Test => &self.test,
        }
    }

    /// The ids that the model writes when it chooses each option of a question.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn options(&self, question: &Question) -> Result<Vec<Vec<u32>>, WeightsError> {
        // The template was checked with the configuration: it names nothing else.
        let texts = self.renderer.options(question).unwrap_or_default();
        texts.iter().map(|text| self.layout.tokenizer().continuation(text)).collect()
    }

    fn sequences_of(&self, split: Split, indices: &[usize]) -> Result<Vec<Sequence>, TaskError> {
        let examples = self.examples(split);
        let sequences = |&index: &usize| self.layout.sequences(&examples[index]);
        let all: Vec<Vec<Sequence>> =
            indices.par_iter().map(sequences).collect::<Result<_, _>>().map_err(TaskError::Tokenizer)?;
        Ok(all.into_iter().flatten().collect())
    }
}

impl Task for Text {
    fn vocabulary(&self) -> usize {
        self.layout.tokenizer().vocabulary()
    }

    fn sequence_length(&self) -> usize {
        self.config.length
    }

    fn sequences(&self, split: Split) -> usize {
        self.examples(split).len()
    }

    fn sequences_per_example(&self) -> usize {
        if self.config.format.has_pairs { 2 } else { 1 }
    }

    fn example(&self, split: Split, index: usize, row: Row<'_>) {
        let Ok(example) = self.layout.sequence(&self.examples(split)[index]) else { return };
        let n = example.tokens.len();
        row.tokens[..n].copy_from_slice(&example.tokens);
        row.targets[..n].copy_from_slice(&example.targets);
        row.weights[..n].copy_from_slice(&example.weights);
    }

    fn batch(&self, split: Split, indices: &[usize]) -> Result<Batch, TaskError> {
        let sequences = self.sequences_of(split, indices)?;
        let mut batch = if self.config.pack { Batch::packed(&sequences) } else { Batch::padded(&sequences) };
        if let Some(start) = &self.turn_start {
            turns::divide(&mut batch, start);
        }
        Ok(Batch { preference: self.config.beta, ..batch })
    }

    fn text(&self, token: u32) -> String {
        let piece = self.layout.tokenizer().piece(token);
        piece.map_or_else(|| format!("<{token}>"), |piece| piece.escape_debug().to_string())
    }

    fn show(&self, batch: &Batch) -> Option<String> {
        let shown = batch.first(self.sequences_per_example());
        let is_conversation = |example: &Example| matches!(example.pieces[..], [Piece::Conversation(_)]);
        let around = if self.train.iter().all(is_conversation) {
            "the model's chat template writes every token; nothing is put before or after".to_owned()
        } else {
            tokenizer::around(self.layout.tokenizer(), "an answer")
        };
        let learned = "\u{27e6}what is learned\u{27e7} is marked";
        let heads = if self.config.format.has_pairs {
            let head = |answer| {
                format!(
                    "The first pair as the model sees it, the {answer} answer; \u{27e6}what is compared\u{27e7} is marked"
                )
            };
            vec![head("chosen"), head("rejected")]
        } else {
            vec![format!("The first example as the model sees it; {learned}")]
        };
        let mut told = around;
        if let Some(text) = &self.config.turn_start {
            write!(told, "\n{}", turns::describe(batch, text)).ok()?;
        }
        for (head, sequence) in heads.iter().zip(&shown) {
            let (text, tokens) = (self.layout.marked(sequence).ok()?, self.layout.marked_tokens(sequence));
            write!(told, "\n{head}:\n\n{text}\n\nToken by token:\n\n{tokens}\n").ok()?;
        }
        Some(told)
    }

    fn describe(&self) -> TaskResult {
        let documents =
            |examples: &[Example]| examples.iter().map(|example| example.group).collect::<HashSet<_>>().len();
        let part = |name: &str, examples: &[Example]| match examples.len() {
            0 => String::new(),
            n => {
                let documents = counted(documents(examples), "distinct document");
                format!("; {name}: {} on {documents}", counted(n, "example"))
            }
        };
        TaskResult {
            kind: self.config.format.name.to_owned(),
            primary_metric: self.scoring.primary_metric().to_owned(),
            sequence_length: self.config.length,
            vocabulary: self.vocabulary(),
            description: format!(
                "{}, at most {} tokens{}{}{}; no document is in two parts",
                self.config.format.name,
                self.config.length,
                part("training", &self.train),
                part("validation", &self.validation),
                part("test", &self.test)
            ),
            ..TaskResult::default()
        }
    }

    fn scores(&self, sums: &MetricSums) -> Scores {
        let mut scores = sums.scores();
        scores.metrics.retain(|name, _| !name.starts_with(metric::ACCURACY_QUARTER));
        if let Some(accuracy) = scores.metrics.remove(metric::ACCURACY) {
            scores.metrics.insert(metric::TOKEN_ACCURACY.to_owned(), accuracy);
        }
        scores
    }

    fn data_files(&self) -> Vec<DataFile> {
        self.files.clone()
    }

    fn as_text(&self) -> Option<&Text> {
        Some(self)
    }
}
