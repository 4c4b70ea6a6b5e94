//! Tasks: small types that yield batches and score predictions.
//!
//! An example is a pure function of (seed, split, index), and the order of the training examples one of (seed, position)
//! (`Order`), so a resumed run sees exactly the batches that an uninterrupted one would have seen.

pub(crate) mod automaton;
mod batch;
pub(crate) mod bytes;
pub(crate) mod dfa;
mod drawn;
mod file;
pub(crate) mod linear_system;
pub mod maestro;
mod metric_sums;
mod ngram;
mod order;
mod pairs;
pub(crate) mod parity;
pub(crate) mod plain_text;
mod registry;
pub(crate) mod selective_copy;
pub(crate) mod settings;
pub mod text;
mod tokenizer;
pub(crate) mod word_problem;

pub use registry::TaskConfig;
pub use settings::TokenKind;

pub(crate) use batch::{Batch, Row, Sequence};
pub(crate) use metric_sums::{MetricSums, TokenPrediction};
pub(crate) use order::Order;
pub(crate) use pairs::PairSums;
pub(crate) use text::Text;

use crate::results::{DataFile, Scores, Split, TaskResult};
use hankel_models::weights::WeightsError;
use std::path::PathBuf;

/// A source of examples.
pub trait Task: Send + Sync {
    /// Size of the vocabulary.
    fn vocabulary(&self) -> usize;

    /// Tokens in a sequence, T.
    fn sequence_length(&self) -> usize;

    /// Number of sequences in a split.
    fn sequences(&self, split: Split) -> usize;

    /// Writes example `index` of `split`.
    fn example(&self, split: Split, index: usize, row: Row<'_>);

    /// Number of sequences of an example in a batch.
    fn sequences_per_example(&self) -> usize {
        1
    }

    /// Tokens of an example at most: of both answers of a pair.
    fn tokens_per_example(&self) -> usize {
        self.sequence_length() * self.sequences_per_example()
    }

    /// A token as a person would read it.
    fn text(&self, token: u32) -> String;

    /// The first example of a batch in a form that shows more than a list of tokens, if there is one.
    fn show(&self, _batch: &Batch) -> Option<String> {
        None
    }

    /// The task itself, if it is one whose answers are generated.
    fn as_text(&self) -> Option<&Text> {
        None
    }

    /// Facts for the result file, with what can be reached without any training.
    fn describe(&self) -> TaskResult;

    /// The metrics of an evaluation.
    fn scores(&self, sums: &MetricSums) -> Scores {
        sums.scores()
    }

    /// Files that the examples come from.
    fn data_files(&self) -> Vec<DataFile> {
        Vec::new()
    }

    /// The examples `indices` of `split` as a batch.
    ///
    /// # Errors
    /// When an example cannot be made.
    fn batch(&self, split: Split, indices: &[usize]) -> Result<Batch, TaskError> {
        let mut batch = Batch::blank(indices.len(), self.sequence_length());
        for (row, &index) in batch.rows().zip(indices) {
            self.example(split, index, row);
        }
        Ok(batch)
    }
}

/// A task that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The data file cannot be read.
    #[error("{}cannot read {path}: {reason}", named(key))]
    Unreadable {
        /// The key or option that names it, or nothing.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system or the decompressor said.
        reason: String,
    },
    /// A data file holds nothing.
    #[error("{}{path} is empty", named(key))]
    Empty {
        /// The key or option that names it, or nothing.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A split of the file is shorter than one window.
    #[error(
        "`task.path`: {path} has {bytes} bytes, so its {split} part has {part}; a window of `task.length` = {length} \
         needs {needed}: take a longer file or a smaller `task.length`"
    )]
    TooShort {
        /// The file.
        path: PathBuf,
        /// Its size, unpacked.
        bytes: usize,
        /// The split.
        split: &'static str,
        /// Bytes in the split.
        part: usize,
        /// The configured window.
        length: usize,
        /// Bytes a window takes.
        needed: usize,
    },
    /// The tokenizer fails.
    #[error("`task.tokenizer`: {0}")]
    Tokenizer(WeightsError),
    /// Files that can be read but not used.
    #[error("{0}")]
    Unusable(String),
}

/// How a message about a file begins that a key of the configuration, an option, or nothing but its place on the command line
/// names.
fn named(by: &str) -> String {
    match by {
        "" => String::new(),
        option if option.starts_with("--") => format!("{option}: "),
        key => format!("`{key}`: "),
    }
}
