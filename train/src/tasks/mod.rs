//! Tasks: small types that yield batches and score predictions.
//!
//! An example is a pure function of (seed, split, index), and the order of the training examples one of (seed, position)
//! ([`Order`]), so a resumed run sees exactly the batches that an uninterrupted one would have seen.

mod automaton;
mod bytes;
mod dfa;
mod order;
mod parity;
mod tally;

pub use automaton::Automaton;
pub use bytes::Bytes;
pub use dfa::Dfa;
pub use order::Order;
pub use parity::Parity;
pub use tally::{Judged, Tally};

use crate::config::TaskConfig;
use crate::results::{DataFile, Scores, Split, TaskResult};
use std::path::PathBuf;

/// Sequences of equal length with their targets: all fields are [sequences, length], row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// What the model reads.
    pub tokens: Vec<u32>,
    /// What it should predict after reading the token at the same place.
    pub targets: Vec<u32>,
    /// Weight of each target in the loss; 0 where there is nothing to predict.
    pub weights: Vec<f32>,
    /// Number of sequences, B.
    pub sequences: usize,
    /// Tokens in a sequence, T.
    pub length: usize,
}

impl Batch {
    /// Sum of the weights: what the mean loss is a mean over.
    pub fn weight(&self) -> f64 {
        self.weights.iter().map(|&weight| f64::from(weight)).sum()
    }
}

/// One example of a batch, to be filled in: three slices of the sequence length.
pub struct Row<'a> {
    /// What the model reads.
    pub tokens: &'a mut [u32],
    /// What it should predict.
    pub targets: &'a mut [u32],
    /// Weights of the targets, 0 to begin with.
    pub weights: &'a mut [f32],
}

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

    /// A token as a person would read it.
    fn text(&self, token: u32) -> String;

    /// Facts for the result file, with what can be reached without any training.
    fn describe(&self) -> TaskResult;

    /// Names of the metrics made of a tally, the one by which adapters are compared first.
    fn scores(&self, tally: &Tally) -> Scores {
        tally.scores()
    }

    /// Files that the examples come from.
    fn data_files(&self) -> Vec<DataFile> {
        Vec::new()
    }

    /// The examples `indices` of `split` as a batch.
    fn batch(&self, split: Split, indices: &[usize]) -> Batch {
        let (sequences, length) = (indices.len(), self.sequence_length());
        let elements = sequences * length;
        let mut batch = Batch {
            tokens: vec![0; elements],
            targets: vec![0; elements],
            weights: vec![0.0; elements],
            sequences,
            length,
        };
        let rows = batch.tokens.chunks_mut(length).zip(batch.targets.chunks_mut(length));
        for (((tokens, targets), weights), &index) in rows.zip(batch.weights.chunks_mut(length)).zip(indices) {
            self.example(split, index, Row { tokens, targets, weights });
        }
        batch
    }
}

/// A task that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The data file cannot be read.
    #[error("`task.path`: cannot read {path}: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system or the decompressor said.
        reason: String,
    },
    /// The data file holds nothing.
    #[error("`task.path`: {0} is empty")]
    Empty(PathBuf),
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
}

/// The task that a resolved configuration describes.
///
/// # Errors
/// When a file it needs cannot be used.
pub fn build(config: &TaskConfig) -> Result<Box<dyn Task>, TaskError> {
    Ok(match config {
        TaskConfig::Dfa(config) => Box::new(Dfa::new(config)),
        TaskConfig::Parity(config) => Box::new(Parity::new(config)),
        TaskConfig::Bytes(config) => Box::new(Bytes::open(config)?),
    })
}
