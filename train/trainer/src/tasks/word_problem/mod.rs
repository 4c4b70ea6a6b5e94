//! The word problem of a group: after every element, the product of all elements so far.
//!
//! It is the task that tells what a recurrence can follow. The product of elements that do not commute needs their order, the product in a
//! group that is not solvable is as hard as a sequential computation can be (D. Barrington, 1989), and every element counts for ever: a window
//! over the last elements knows nothing. Trained on short words and tested on long ones, it tells a rule from what was learnt by heart.
//!
//! A sequence of `length` elements asks for the product after each, so training on it is training on words of 1 to `length` elements. The test has
//! words of `test_length`; `accuracy_to_N` is the accuracy over their first N products, which is that of a test with words of N elements.

mod config;
mod group;

pub(crate) use config::WordProblemConfig;
pub(crate) use group::Group;

use super::automaton::WINDOWS;
use super::drawn::symbols;
use super::settings::TaskSettings as _;
use super::{Batch, MetricSums, Row, Task, TaskError};
use crate::results::{Scores, Split, TaskResult, metric};
use group::Elements;

/// The task `word-problem`. Tokens: those of the elements, asked for by the same tokens, and one before them if there is one.
pub(crate) struct WordProblem {
    config: WordProblemConfig,
    elements: Elements,
    data_seed: u64,
}

impl WordProblem {
    /// The task of a resolved configuration.
    pub(crate) fn new(config: &WordProblemConfig) -> Self {
        WordProblem { elements: config.group.elements(), data_seed: config.sequences.seed(), config: config.clone() }
    }
}

impl Task for WordProblem {
    fn vocabulary(&self) -> usize {
        self.config.vocabulary()
    }

    fn sequence_length(&self) -> usize {
        self.config.sequence_length()
    }

    fn sequences(&self, split: Split) -> usize {
        self.config.sequences.count(split)
    }

    fn example(&self, split: Split, index: usize, row: Row<'_>) {
        let first = self.config.first_token as u32;
        let mut places = row.tokens.iter_mut().zip(row.targets).zip(row.weights);
        if let Some(start) = self.config.start_token
            && let Some(((token, _), _)) = places.next()
        {
            *token = start as u32;
        }
        let mut product = 0;
        for (((token, target), weight), element) in
            places.zip(symbols(self.data_seed, "word-problem", split, index, self.config.group.order()))
        {
            product = self.elements.product(product, element);
            (*token, *target, *weight) = (first + element, first + product, 1.0);
        }
    }

    fn text(&self, token: u32) -> String {
        match token.checked_sub(self.config.first_token as u32) {
            Some(element) if (element as usize) < self.config.group.order() => self.elements.name(element).to_owned(),
            _ => "|".to_owned(),
        }
    }

    fn describe(&self) -> TaskResult {
        let (group, length, test) = (self.config.group, self.config.length, self.config.test_length);
        // The product of what a window does not see is any element, each as probable as the others.
        let window = |window: usize| {
            let seen = window.min(length);
            let accuracy = (seen as f64 + (length - seen) as f64 / group.order() as f64) / length as f64;
            (format!("window_{window}"), accuracy)
        };
        TaskResult {
            kind: "word-problem".to_owned(),
            primary_metric: metric::ACCURACY.to_owned(),
            sequence_length: self.sequence_length(),
            vocabulary: self.vocabulary(),
            description: format!(
                "product of all elements of {} so far, after every one of {length}; tested to {test}",
                group.name()
            ),
            baselines: (0..=WINDOWS).map(window).collect(),
            ..TaskResult::default()
        }
    }

    fn scores(&self, sums: &MetricSums) -> Scores {
        let mut scores = sums.scores();
        let targets = scores.tokens.checked_div(scores.sequences).unwrap_or(0) as usize;
        for (length, accuracy) in sums.accuracy_to() {
            if (self.config.length..=targets).contains(&length) {
                scores.metrics.insert(format!("{}{length}", metric::ACCURACY_TO), accuracy);
            }
        }
        scores
    }

    fn batch(&self, split: Split, indices: &[usize]) -> Result<Batch, TaskError> {
        let elements = if split == Split::Test { self.config.test_length } else { self.config.length };
        let mut batch = Batch::blank(indices.len(), self.config.tokens(elements));
        for (row, &index) in batch.rows().zip(indices) {
            self.example(split, index, row);
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::TokenPrediction;

    #[test]
    fn targets_are_the_products_so_far() {
        let config = WordProblemConfig {
            length: 24,
            test_length: 64,
            first_token: 10,
            start_token: Some(1),
            ..WordProblemConfig::default()
        };
        let task = WordProblem::new(&config);
        assert_eq!((task.sequence_length(), task.vocabulary(), config.longest_sequence()), (25, 16, 65));
        for (split, tokens) in [(Split::Train, 25), (Split::Test, 65)] {
            let batch = task.batch(split, &[0, 3]).unwrap();
            assert_eq!((batch.sequences, batch.length, batch.weight()), (2, tokens, 2.0 * (tokens - 1) as f64));
            for row in 0..2 {
                let places = row * tokens..(row + 1) * tokens;
                assert_eq!((batch.tokens[places.start], batch.weights[places.start]), (1, 0.0));
                // A permutation of three things, written down, applied one after the other.
                let mut product = [0, 1, 2];
                for place in places.skip(1) {
                    let element: Vec<usize> =
                        task.text(batch.tokens[place]).bytes().map(|b| (b - b'0').into()).collect();
                    product = product.map(|i| element[i]);
                    assert_eq!(task.text(batch.targets[place]), product.map(|i| i.to_string()).concat());
                }
            }
        }
        assert_eq!(task.batch(Split::Train, &[5]).unwrap(), task.batch(Split::Train, &[5]).unwrap());
        assert!((task.describe().baselines["window_8"] - (8.0 + 16.0 / 6.0) / 24.0).abs() < 1e-12);
    }

    #[test]
    fn accuracy_is_told_for_every_length() {
        let config =
            WordProblemConfig { length: 4, test_length: 16, start_token: Some(9), ..WordProblemConfig::default() };
        let task = WordProblem::new(&config);
        let batch = task.batch(Split::Test, &[0, 1]).unwrap();
        // Right up to the sixth product.
        let counted = (0..2).flat_map(|row| (0..16).map(move |nth| (row * 17 + nth + 1, nth)));
        let predictions = counted.map(|(place, nth)| {
            let predicted = if nth < 6 { batch.targets[place] } else { 99 };
            TokenPrediction { loss: 1.0, smoothed: 1.0, predicted }
        });
        let mut sums = MetricSums::with_smoothing(0.0);
        sums.add(&batch, predictions);
        let mut twice = sums.clone();
        twice.merge(&sums);
        for sums in [sums, twice] {
            let scores = task.scores(&sums);
            let to = |length: usize| scores.get(&format!("accuracy_to_{length}"));
            assert_eq!([to(2), to(4), to(8), to(16), to(32)], [None, Some(1.0), Some(0.75), Some(0.375), None]);
            assert_eq!(scores.get(metric::ACCURACY), Some(0.375));
        }
    }
}
