//! Running parity of random bits.

mod config;

pub(crate) use config::{ParityConfig, ParityVariant};

use super::automaton::Automaton;
use super::drawn::symbols;
use super::settings::TaskSettings as _;
use super::{Row, Task};
use crate::results::{Split, TaskResult, metric};

/// The task `parity`. Tokens: the parities 0 and 1, then the bits; the sequence variant adds a separator.
pub(crate) struct Parity {
    config: ParityConfig,
    data_seed: u64,
}

const BIT: u32 = 2;
const SEPARATOR: u32 = 4;

impl Parity {
    /// The task of a resolved configuration.
    pub(crate) fn new(config: &ParityConfig) -> Self {
        Parity { config: config.clone(), data_seed: config.sequences.seed() }
    }
}

impl Task for Parity {
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
        let length = self.config.length;
        let mut parity = 0;
        for (place, bit) in symbols(self.data_seed, "parity", split, index, 2).take(length).enumerate() {
            parity ^= bit;
            row.tokens[place] = BIT + bit;
            let target = match self.config.variant {
                ParityVariant::PerPosition => place,
                // The separator predicts the first parity, each parity the next one; the last one need not be read.
                ParityVariant::Sequence => {
                    if let Some(slot) = row.tokens.get_mut(length + place + 1) {
                        *slot = parity;
                    }
                    length + place
                }
            };
            row.targets[target] = parity;
            row.weights[target] = 1.0;
        }
        if self.config.variant == ParityVariant::Sequence {
            row.tokens[length] = SEPARATOR;
        }
    }

    fn text(&self, token: u32) -> String {
        match token {
            0 => "even".to_owned(),
            1 => "odd".to_owned(),
            SEPARATOR => "|".to_owned(),
            bit => (bit - BIT).to_string(),
        }
    }

    fn describe(&self) -> TaskResult {
        let length = self.config.length;
        let mut result = TaskResult {
            kind: "parity".to_owned(),
            primary_metric: metric::ACCURACY.to_owned(),
            sequence_length: self.sequence_length(),
            vocabulary: self.vocabulary(),
            description: format!("running parity of {length} random bits"),
            ..TaskResult::default()
        };
        result.baselines = match self.config.variant {
            ParityVariant::PerPosition => Automaton::new(vec![vec![0, 1], vec![1, 0]]).baselines(length),
            ParityVariant::Sequence => [("constant".to_owned(), 0.5)].into(),
        };
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn per_position() {
        let task = Parity::new(&ParityConfig { length: 30, ..ParityConfig::default() });
        let batch = task.batch(Split::Train, &[0]).unwrap();
        let mut parity = 0;
        for (token, target) in batch.tokens.iter().zip(&batch.targets) {
            parity ^= token - 2;
            assert_eq!(*target, parity);
        }
        let facts = task.describe();
        // Without the whole prefix a window says nothing: 8 of 30 positions are known, the rest are guessed.
        assert!((facts.baselines["window_8"] - (8.0 + 22.0 * 0.5) / 30.0).abs() < 1e-12);
    }

    #[test]
    fn sequence() {
        let config = ParityConfig { length: 9, variant: ParityVariant::Sequence, ..ParityConfig::default() };
        let task = Parity::new(&config);
        let batch = task.batch(Split::Train, &[4]).unwrap();
        assert_eq!((batch.length, batch.tokens[9], batch.weight()), (18, SEPARATOR, 9.0));
        let mut parity = 0;
        for place in 0..9 {
            parity ^= batch.tokens[place] - 2;
            assert_eq!((batch.targets[9 + place], batch.weights[9 + place]), (parity, 1.0));
            if place < 8 {
                assert_eq!(batch.tokens[10 + place], parity);
            }
        }
    }
}
