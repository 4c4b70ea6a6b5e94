//! What the settings of every task can tell, and what the settings of generated tasks have in common.

use super::{Task, TaskError};
use crate::results::Split;
use crate::settings::check::Checks;
use hankel_models::TurnStart;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Most sequences of a split: shuffling takes 8 bytes of memory for each.
const MAX_SEQUENCES: usize = 100_000_000;

/// Longest sequence.
const MAX_LENGTH: usize = 1 << 24;

/// What the tokens of a task stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Symbols of a synthetic task.
    Symbols,
    /// Bytes.
    Bytes,
    /// Events of a piano performance.
    Events,
    /// Ids of a tokenizer.
    TokenizerIds,
}

/// The settings of a task, `[task]`.
pub(crate) trait TaskSettings {
    /// The value of `task.kind`.
    fn kind(&self) -> &'static str;

    /// Takes the value of `task.kind`, for settings that several kinds share.
    fn set_kind(&mut self, _kind: &'static str) {}

    /// Whether it has the settings that generated tasks have in common.
    fn is_generated() -> bool
    where
        Self: Sized,
    {
        false
    }

    /// The settings that generated tasks have in common, if this is one.
    fn sequences(&self) -> Option<&GeneratedData> {
        None
    }

    /// The same, to be set.
    fn sequences_mut(&mut self) -> Option<&mut GeneratedData> {
        None
    }

    /// Whether examples are pairs of answers, scored beside the model without its adapter.
    fn has_pairs(&self) -> bool {
        false
    }

    /// Number of tokens that the model reads in a sequence, T.
    fn sequence_length(&self) -> usize;

    /// The most tokens that the model reads in a sequence of any split.
    fn longest_sequence(&self) -> usize {
        self.sequence_length()
    }

    /// Size of the vocabulary.
    fn vocabulary(&self) -> usize;

    /// What the tokens stand for.
    fn token_kind(&self) -> TokenKind;

    /// Reports values that cannot work.
    fn check(&self, checks: &mut Checks<'_>);

    /// Reports what does not fit a loaded model with `vocabulary` tokens.
    fn check_model(&self, _vocabulary: usize, _checks: &mut Checks<'_>) {}

    /// Lets the tokenizer default to the one in the directory of a model.
    fn set_default_tokenizer(&mut self, _model: &Path) {}

    /// The directory or file of the tokenizer, if it has one.
    fn tokenizer(&self) -> Option<&Path> {
        None
    }

    /// Whether sequences are divided into turns, at each of which attention starts afresh.
    fn has_turns(&self) -> bool {
        false
    }

    /// What begins a turn, where sequences are divided into turns.
    ///
    /// # Errors
    /// When the tokenizer cannot be used.
    fn turn_start(&self) -> Result<Option<TurnStart>, TaskError> {
        Ok(None)
    }

    /// Writes out what defaults to something of the run. Returns a line to print, if there is anything to say.
    ///
    /// # Errors
    /// A key that cannot be followed, and why.
    fn resolve(&mut self, seed: u64) -> Result<Option<String>, (&'static str, String)>;

    /// The task of resolved settings.
    ///
    /// # Errors
    /// When a file it needs cannot be used.
    fn build(&self) -> Result<Box<dyn Task>, TaskError>;

    /// The task of resolved settings with the whole of `file`, in the format of its own files, as its test part.
    ///
    /// # Errors
    /// When it cannot be used, or the task has no files.
    fn build_on(&self, _file: &Path) -> Result<Box<dyn Task>, TaskError> {
        Err(TaskError::Unusable(format!("a task of kind {:?} is not evaluated on another file", self.kind())))
    }
}

/// The [`TaskSettings`] of a task whose field `sequences` is a [`GeneratedData`].
macro_rules! generated {
    () => {
        fn is_generated() -> bool {
            true
        }

        fn sequences(&self) -> Option<&crate::tasks::settings::GeneratedData> {
            Some(&self.sequences)
        }

        fn sequences_mut(&mut self) -> Option<&mut crate::tasks::settings::GeneratedData> {
            Some(&mut self.sequences)
        }
    };
}
pub(super) use generated;

/// How many sequences of each split are generated, and from which seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GeneratedData {
    /// Seed of the sequences; the run's seed if not given.
    pub data_seed: Option<u64>,
    /// Training sequences, drawn once.
    pub train_sequences: usize,
    /// Validation sequences.
    pub validation_sequences: usize,
    /// Test sequences.
    pub test_sequences: usize,
}

impl Default for GeneratedData {
    fn default() -> Self {
        GeneratedData { data_seed: None, train_sequences: 10_000, validation_sequences: 1000, test_sequences: 1000 }
    }
}

impl GeneratedData {
    /// The number of sequences of a split.
    pub fn count(&self, split: Split) -> usize {
        match split {
            Split::Train => self.train_sequences,
            Split::Validation => self.validation_sequences,
            Split::Test => self.test_sequences,
        }
    }

    /// The seed of resolved settings.
    pub fn seed(&self) -> u64 {
        self.data_seed.unwrap_or(0)
    }

    pub(crate) fn resolve(&mut self, seed: u64) {
        self.data_seed.get_or_insert(seed);
    }

    /// Checks the counts, and `length`.
    pub(crate) fn check(&self, length: usize, checks: &mut Checks<'_>) {
        checks.at_least("length", length, 1);
        checks.at_most("length", length, MAX_LENGTH);
        checks.at_least("train_sequences", self.train_sequences, 1);
        checks.at_least("validation_sequences", self.validation_sequences, 1);
        for (key, sequences) in [
            ("train_sequences", self.train_sequences),
            ("validation_sequences", self.validation_sequences),
            ("test_sequences", self.test_sequences),
        ] {
            checks.require(key, sequences <= MAX_SEQUENCES, || {
                format!("must be at most {MAX_SEQUENCES} (shuffling so many takes 800 MB of memory), found {sequences}")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::documented::{assert_documented, keys};

    #[test]
    fn keys_are_documented() {
        assert_documented(&[keys::<GeneratedData>()], &[]);
    }
}
