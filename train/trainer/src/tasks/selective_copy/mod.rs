//! Selective copying (A. Gu and T. Dao, Mamba, 2023, section 4.1): keep what matters, in order, and forget the rest.
//!
//! A few symbols lie scattered among blanks; as many questions follow, and each is to be answered by the next symbol. Where the
//! symbols lie differs from sequence to sequence, so that no fixed delay or decay finds them.

mod config;

pub(crate) use config::SelectiveCopyConfig;

use super::drawn::symbols;
use super::settings::TaskSettings as _;
use super::{Row, Task};
use crate::results::{Split, TaskResult, metric};
use hankel_core::Random;

/// The task `selective-copy`. Tokens: the symbols, the blank, the question.
pub(crate) struct SelectiveCopy {
    config: SelectiveCopyConfig,
    data_seed: u64,
}

impl SelectiveCopy {
    /// The task of a resolved configuration.
    pub(crate) fn new(config: &SelectiveCopyConfig) -> Self {
        SelectiveCopy { config: config.clone(), data_seed: config.sequences.seed() }
    }

    fn blank(&self) -> u32 {
        self.config.symbols as u32
    }

    fn question(&self) -> u32 {
        self.blank() + 1
    }
}

impl Task for SelectiveCopy {
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
        let SelectiveCopyConfig { symbols: k, items, length, .. } = self.config;
        let places = Random::new(self.data_seed, &format!("selective-copy.places.{}", split.name()), index as u64);
        let mut places = places.permutation(length);
        places.truncate(items);
        places.sort_unstable();
        row.tokens[..length].fill(self.blank());
        row.tokens[length..].fill(self.question());
        let drawn = symbols(self.data_seed, "selective-copy", split, index, k);
        for (item, (place, symbol)) in places.into_iter().zip(drawn).enumerate() {
            row.tokens[place] = symbol;
            row.targets[length + item] = symbol;
            row.weights[length + item] = 1.0;
        }
    }

    fn text(&self, token: u32) -> String {
        match token {
            token if token == self.blank() => ".".to_owned(),
            token if token == self.question() => "?".to_owned(),
            token => char::from_digit(token + 10, 36).map_or_else(|| format!("x{token}"), String::from),
        }
    }

    fn describe(&self) -> TaskResult {
        let SelectiveCopyConfig { symbols, items, length, .. } = self.config;
        TaskResult {
            kind: "selective-copy".to_owned(),
            primary_metric: metric::ACCURACY.to_owned(),
            sequence_length: self.sequence_length(),
            vocabulary: self.vocabulary(),
            description: format!("{items} symbols of {symbols} kinds among {} blanks, copied in order", length - items),
            baselines: [("constant".to_owned(), 1.0 / symbols as f64)].into(),
            ..TaskResult::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_asked_for_in_order() {
        let config = SelectiveCopyConfig { symbols: 5, items: 3, length: 12, ..SelectiveCopyConfig::default() };
        let task = SelectiveCopy::new(&config);
        let mut layouts = std::collections::BTreeSet::new();
        for index in 0..20 {
            let batch = task.batch(Split::Train, &[index]).unwrap();
            assert_eq!((batch.length, batch.weight()), (15, 3.0));
            let (scattered, questions) = batch.tokens.split_at(12);
            let found: Vec<u32> = scattered.iter().copied().filter(|&token| token < 5).collect();
            assert_eq!(found, batch.targets[12..]);
            assert!(questions.iter().all(|&token| token == 6) && scattered.iter().all(|&token| token <= 5));
            layouts.insert(scattered.iter().map(|&token| token < 5).collect::<Vec<_>>());
        }
        assert!(layouts.len() > 10, "places differ");
        assert_eq!((task.text(0), task.text(5), task.text(6)), ("a".into(), ".".into(), "?".into()));
    }
}
