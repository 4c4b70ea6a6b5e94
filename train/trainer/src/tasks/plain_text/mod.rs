//! Plain text: documents as tokens, end to end, in windows.
//!
//! ```text
//! bos? document eos  bos? document eos  bos? document eos ...
//! |--------- window ---------|--------- window ---------|---
//! ```
//!
//! Every token but the first of a part is predicted once. What is missing in the last window has no weight.

mod config;
mod documents;

pub(crate) use config::PlainTextConfig;

use super::{Batch, MetricSums, Row, Task, TaskError, named, tokenizer};
use crate::format::counted;
use crate::results::{DataFile, Scores, Split, TaskResult, metric};
use documents::Parts;
use hankel_models::Tokenizer;
use hankel_models::weights::WeightsError;
use rayon::prelude::*;
use std::path::Path;

/// The task `text`.
pub(crate) struct PlainText {
    config: PlainTextConfig,
    tokenizer: Tokenizer,
    parts: [Stream; 3],
    division: String,
    files: Vec<DataFile>,
}

/// The tokens of a part.
#[derive(Debug, Default)]
struct Stream {
    ids: Vec<u32>,
    /// Bytes of text that each token adds to those before it; 0 for special ones.
    bytes: Vec<u32>,
    documents: usize,
    /// Windows that are used.
    windows: usize,
}

impl PlainText {
    /// Reads the files of a resolved configuration.
    ///
    /// # Errors
    /// When a file cannot be read, or a part is too short.
    pub(crate) fn open(config: &PlainTextConfig) -> Result<Self, TaskError> {
        let task = Self::of(config, documents::load(config)?)?;
        for split in [Split::Train, Split::Validation] {
            task.check_part("task.path", split)?;
        }
        Ok(task)
    }

    /// All of another file or folder as the test part.
    ///
    /// # Errors
    /// When it cannot be read, or is too short.
    pub(crate) fn open_on(config: &PlainTextConfig, path: &Path) -> Result<Self, TaskError> {
        let config = PlainTextConfig { test_sequences: None, ..config.clone() };
        let task = Self::of(&config, documents::whole(&config, path)?)?;
        task.check_part("--data", Split::Test)?;
        Ok(task)
    }

    fn of(config: &PlainTextConfig, (parts, files): (Parts, Vec<DataFile>)) -> Result<Self, TaskError> {
        let tokenizer =
            Tokenizer::load(&tokenizer::place(config.tokenizer.as_deref())).map_err(TaskError::Tokenizer)?;
        let stream = |documents: &[String], limit: Option<usize>| {
            Stream::of(&tokenizer, documents, config.length, limit).map_err(TaskError::Tokenizer)
        };
        let streams = [
            stream(&parts.train, config.train_sequences)?,
            stream(&parts.validation, config.validation_sequences)?,
            stream(&parts.test, config.test_sequences)?,
        ];
        Ok(PlainText { config: config.clone(), tokenizer, parts: streams, division: parts.division, files })
    }

    fn check_part(&self, key: &str, split: Split) -> Result<(), TaskError> {
        let stream = self.stream(split);
        if stream.windows > 0 {
            return Ok(());
        }
        let (tokens, name) = (stream.ids.len(), split.name());
        let problem =
            format!("{}the {name} part has {tokens} tokens; at least 2 are needed: bring more text", named(key));
        Err(TaskError::Unusable(problem))
    }

    fn stream(&self, split: Split) -> &Stream {
        &self.parts[split as usize]
    }
}

impl Stream {
    /// The tokens of `documents`, and how many windows of `length` they fill, at most `limit`.
    fn of(
        tokenizer: &Tokenizer,
        documents: &[String],
        length: usize,
        limit: Option<usize>,
    ) -> Result<Self, WeightsError> {
        let encoded = |text: &String| Ok((tokenizer.encode_with_places(text)?, text.len()));
        let encoded: Vec<_> = documents.par_iter().map(encoded).collect::<Result<_, WeightsError>>()?;
        let mut stream = Stream { documents: documents.len(), ..Stream::default() };
        for (tokens, size) in encoded {
            stream.extend(tokenizer.before(), 0);
            let (mut end, last) = (0, tokens.len().saturating_sub(1));
            for (index, (id, place)) in tokens.into_iter().enumerate() {
                // Tokens that make a character together have the same place; what none stands for, the last one has.
                let reached = if index == last { size } else { place.end.max(end) };
                stream.extend(&[id], (reached - end) as u32);
                end = reached;
            }
            stream.extend(&tokenizer.eos().into_iter().collect::<Vec<_>>(), 0);
        }
        let all = stream.ids.len().saturating_sub(1).div_ceil(length);
        stream.windows = limit.map_or(all, |limit| limit.min(all));
        Ok(stream)
    }

    fn extend(&mut self, ids: &[u32], bytes: u32) {
        self.ids.extend(ids);
        self.bytes.extend(ids.iter().map(|_| bytes));
    }

    /// The places of the tokens that window `index` reads.
    fn window(&self, index: usize, length: usize) -> std::ops::Range<usize> {
        let all = (self.ids.len() - 1).div_ceil(length);
        // Evenly spaced when not all are used.
        let window = index as u128 * all as u128 / self.windows as u128;
        let start = window as usize * length;
        start..(start + length).min(self.ids.len() - 1)
    }
}

impl Task for PlainText {
    fn vocabulary(&self) -> usize {
        self.tokenizer.vocabulary()
    }

    fn sequence_length(&self) -> usize {
        self.config.length
    }

    fn sequences(&self, split: Split) -> usize {
        self.stream(split).windows
    }

    fn example(&self, split: Split, index: usize, row: Row<'_>) {
        let stream = self.stream(split);
        let window = stream.window(index, self.config.length);
        let n = window.len();
        row.tokens[..n].copy_from_slice(&stream.ids[window.clone()]);
        row.targets[..n].copy_from_slice(&stream.ids[window.start + 1..=window.end]);
        row.weights[..n].fill(1.0);
    }

    fn batch(&self, split: Split, indices: &[usize]) -> Result<Batch, TaskError> {
        let mut batch = Batch::blank(indices.len(), self.config.length);
        for (row, &index) in batch.rows().zip(indices) {
            self.example(split, index, row);
        }
        let stream = self.stream(split);
        let bytes = |&index: &usize| {
            let window = stream.window(index, self.config.length);
            stream.bytes[window.start + 1..=window.end].iter().map(|&bytes| u64::from(bytes)).sum::<u64>()
        };
        batch.text_bytes = indices.iter().map(bytes).sum();
        Ok(batch)
    }

    fn text(&self, token: u32) -> String {
        let piece = self.tokenizer.piece(token);
        piece.map_or_else(|| format!("<{token}>"), |piece| piece.escape_debug().to_string())
    }

    fn show(&self, batch: &Batch) -> Option<String> {
        let text = self.tokenizer.decode_with_special(&batch.tokens[..batch.length]).ok()?;
        let around = tokenizer::around(&self.tokenizer, "a document");
        Some(format!("{around}\nThe first window as the model sees it; every token of it is learned:\n\n{text}\n"))
    }

    fn describe(&self) -> TaskResult {
        let part = |name: &str, split| match self.stream(split) {
            Stream { windows: 0, .. } => String::new(),
            stream => format!(
                "; {name}: {}, {}, {}",
                counted(stream.windows, "window"),
                counted(stream.documents, "document"),
                counted(stream.ids.len().min(stream.windows * self.config.length), "token")
            ),
        };
        TaskResult {
            kind: "text".to_owned(),
            primary_metric: metric::PERPLEXITY.to_owned(),
            sequence_length: self.config.length,
            vocabulary: self.vocabulary(),
            description: format!(
                "next token of plain text, windows of {} tokens{}{}{}; {}",
                self.config.length,
                part("training", Split::Train),
                part("validation", Split::Validation),
                part("test", Split::Test),
                self.division
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
        scores.metrics.insert(metric::PERPLEXITY.to_owned(), sums.mean_loss().exp());
        if let Some(bits) = sums.bits_per_byte() {
            scores.metrics.insert(metric::BITS_PER_BYTE.to_owned(), bits);
        }
        scores
    }

    fn data_files(&self) -> Vec<DataFile> {
        self.files.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::TokenPrediction;
    use std::path::PathBuf;

    const TEXT: &str = "Grüße aus 東京!\nIt was a dark and stormy night; the rain fell in torrents.\n";

    fn open(place: &Path, more: &str) -> Result<PlainText, TaskError> {
        let tokenizer = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/tokenizer");
        let text = format!("path = {:?}\ntokenizer = {tokenizer:?}\n{more}", place.join("a.txt"));
        PlainText::open(&toml::from_str(&text).unwrap())
    }

    #[test]
    fn every_token_is_predicted_once_and_every_byte_counted() {
        let place = tempfile::tempdir().unwrap();
        let text = TEXT.repeat(40);
        std::fs::write(place.path().join("a.txt"), &text).unwrap();
        let task = open(place.path(), "length = 16").unwrap();
        for split in [Split::Train, Split::Validation] {
            let stream = task.stream(split);
            assert_eq!((stream.ids[0], *stream.ids.last().unwrap()), (1, 2), "<s> before, </s> after");
            let indices: Vec<usize> = (0..task.sequences(split)).collect();
            let batch = task.batch(split, &indices).unwrap();
            let predicted = |values: &[u32]| -> Vec<u32> {
                values.iter().zip(&batch.weights).filter(|(_, weight)| **weight > 0.0).map(|(id, _)| *id).collect()
            };
            assert_eq!(predicted(&batch.targets), stream.ids[1..]);
            assert_eq!(predicted(&batch.tokens), stream.ids[..stream.ids.len() - 1]);
        }
        let bytes = [Split::Train, Split::Validation]
            .map(|split| task.batch(split, &(0..task.sequences(split)).collect::<Vec<_>>()).unwrap().text_bytes);
        assert_eq!(bytes.iter().sum::<u64>(), text.len() as u64);
        assert!(bytes[1] > text.len() as u64 / 20 && bytes[1] < text.len() as u64 / 5, "{bytes:?}");

        let some = open(place.path(), "length = 16\ntrain_sequences = 5").unwrap();
        assert_eq!(some.sequences(Split::Train), 5);
        let starts: Vec<usize> = (0..5).map(|index| some.stream(Split::Train).window(index, 16).start / 16).collect();
        let all = task.sequences(Split::Train);
        assert_eq!(starts, (0..5).map(|index| index * all / 5).collect::<Vec<_>>());
    }

    #[test]
    fn perplexity_and_bits_per_byte() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a.txt"), TEXT.repeat(10)).unwrap();
        let task = open(place.path(), "length = 8").unwrap();
        let batch = task.batch(Split::Train, &[0, 1]).unwrap();
        let mut sums = MetricSums::with_smoothing(0.0);
        let loss = 4.0 * std::f64::consts::LN_2;
        sums.add(&batch, (0..16).map(|_| TokenPrediction { loss, smoothed: loss, predicted: 0 }));
        let scores = task.scores(&sums);
        assert!((scores.get(metric::PERPLEXITY).unwrap() - 16.0).abs() < 1e-12);
        let expected = 4.0 * 16.0 / batch.text_bytes as f64;
        assert!((scores.get(metric::BITS_PER_BYTE).unwrap() - expected).abs() < 1e-12);
    }

    #[test]
    fn a_text_that_is_too_short() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a.txt"), "x").unwrap();
        // One letter cannot be divided: training has nothing but the tokens around it.
        let task = open(place.path(), "");
        assert!(task.is_ok_and(|task| task.sequences(Split::Train) == 1));
        std::fs::write(place.path().join("a.txt"), " \n").unwrap();
        assert!(open(place.path(), "").err().unwrap().to_string().contains("there is no text"));
    }
}
