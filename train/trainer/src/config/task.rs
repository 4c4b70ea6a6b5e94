//! `[task]`: what is learned, from how many sequences of which length.

use super::check::Checks;
use super::text::TextConfig;
use crate::results::Split;
use crate::tasks;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// `[task]`, by `kind`.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskConfig {
    /// `kind = "dfa"`.
    Dfa(DfaConfig),
    /// `kind = "parity"`.
    Parity(ParityConfig),
    /// `kind = "selective-copy"`.
    SelectiveCopy(SelectiveCopyConfig),
    /// `kind = "bytes"`.
    Bytes(BytesConfig),
    /// `kind = "maestro"`.
    Maestro(MaestroConfig),
    /// `kind = "quality"`, `"qmsum"`, `"narrativeqa"`, `"longbench"` or `"jsonl"`.
    Text(Box<TextConfig>),
}

/// Values of `task.kind`.
pub const KINDS: &[&str] =
    &["dfa", "parity", "selective-copy", "bytes", "maestro", "quality", "qmsum", "narrativeqa", "longbench", "jsonl"];

/// Most sequences of a part: 8 bytes of memory are taken for each, to shuffle them.
const MOST_SEQUENCES: usize = 100_000_000;

/// Most transitions that the search for a table follows for each.
const MOST_SEARCH: f64 = 2e7;

/// Where a sequence's targets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DfaVariant {
    /// One fixed transition table per run; the state is predicted after every symbol.
    #[default]
    PerPosition,
    /// The form of the released code: a table per example, written out before the symbols; the last state is
    /// predicted.
    FinalState,
}

/// How transition tables are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TableKind {
    /// Every entry uniform and independent.
    #[default]
    Random,
    /// Every symbol permutes the states, so that nothing is ever forgotten.
    Permutation,
}

/// A rule for tables: the best predictor that sees the last `symbols` symbols must be right at `accuracy` of the positions at
/// most. Many random tables forget within a few symbols, and then nothing is learned about memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaxWindow {
    /// Symbols that the predictor sees, w.
    pub symbols: usize,
    /// Its accuracy at most.
    pub accuracy: f64,
}

/// Deterministic finite automaton: predict its state from the symbols it reads. It starts in state 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DfaConfig {
    /// Where the targets are.
    pub variant: DfaVariant,
    /// Number of states, k.
    pub states: usize,
    /// Size of the alphabet.
    pub symbols: usize,
    /// How tables are drawn.
    pub table: TableKind,
    /// Seed of the table; the run's seed if not given. Tables and weights can thus vary apart.
    pub table_seed: Option<u64>,
    /// Only a table that asks for a memory: `table_seed` is then the first to be tried, and in a resolved configuration the one
    /// that was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_window: Option<MaxWindow>,
    /// The table itself, `[state][symbol]`, instead of a drawn one.
    pub transitions: Option<Vec<Vec<u32>>>,
    /// Symbols in a sequence, T.
    pub length: usize,
    /// Seed of the sequences; the run's seed if not given.
    pub data_seed: Option<u64>,
    /// Training sequences, drawn once.
    pub train_sequences: usize,
    /// Validation sequences.
    pub validation_sequences: usize,
    /// Test sequences.
    pub test_sequences: usize,
}

impl Default for DfaConfig {
    fn default() -> Self {
        DfaConfig {
            variant: DfaVariant::PerPosition,
            states: 4,
            symbols: 2,
            table: TableKind::Random,
            table_seed: None,
            max_window: None,
            transitions: None,
            length: 64,
            data_seed: None,
            train_sequences: 10_000,
            validation_sequences: 1000,
            test_sequences: 1000,
        }
    }
}

/// Where the targets of parity are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ParityVariant {
    /// The running parity is predicted after every bit.
    #[default]
    PerPosition,
    /// The released form: T bits, a separator, then the T running parities, predicted one after the other.
    Sequence,
}

/// Running parity of random bits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParityConfig {
    /// Where the targets are.
    pub variant: ParityVariant,
    /// Bits in a sequence, T.
    pub length: usize,
    /// Seed of the sequences; the run's seed if not given.
    pub data_seed: Option<u64>,
    /// Training sequences, drawn once.
    pub train_sequences: usize,
    /// Validation sequences.
    pub validation_sequences: usize,
    /// Test sequences.
    pub test_sequences: usize,
}

impl Default for ParityConfig {
    fn default() -> Self {
        ParityConfig {
            variant: ParityVariant::PerPosition,
            length: 64,
            data_seed: None,
            train_sequences: 10_000,
            validation_sequences: 1000,
            test_sequences: 1000,
        }
    }
}

/// Symbols scattered among blanks, asked for in order after them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SelectiveCopyConfig {
    /// Kinds of symbols.
    pub symbols: usize,
    /// Symbols in a sequence, and questions after it.
    pub items: usize,
    /// Symbols and blanks, before the questions.
    pub length: usize,
    /// Seed of the sequences; the run's seed if not given.
    pub data_seed: Option<u64>,
    /// Training sequences, drawn once.
    pub train_sequences: usize,
    /// Validation sequences.
    pub validation_sequences: usize,
    /// Test sequences.
    pub test_sequences: usize,
}

impl Default for SelectiveCopyConfig {
    fn default() -> Self {
        SelectiveCopyConfig {
            symbols: 8,
            items: 4,
            length: 60,
            data_seed: None,
            train_sequences: 10_000,
            validation_sequences: 1000,
            test_sequences: 1000,
        }
    }
}

/// The bytes of a file, the next one predicted at every position. The file is cut 90/5/5 into training, validation and
/// test part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BytesConfig {
    /// The file; gzip is recognised by its content.
    pub path: PathBuf,
    /// Bytes read by the model in a window, T; one more is needed for the last target.
    #[serde(default = "BytesConfig::default_length")]
    pub length: usize,
    /// Seed of the training windows; the run's seed if not given.
    #[serde(default)]
    pub data_seed: Option<u64>,
    /// Training windows, drawn once.
    #[serde(default = "BytesConfig::default_train")]
    pub train_sequences: usize,
    /// Validation windows, evenly spaced over the validation part.
    #[serde(default = "BytesConfig::default_evaluation")]
    pub validation_sequences: usize,
    /// Test windows, evenly spaced over the test part.
    #[serde(default = "BytesConfig::default_evaluation")]
    pub test_sequences: usize,
}

impl BytesConfig {
    fn default_length() -> usize {
        512
    }
    fn default_train() -> usize {
        10_000
    }
    fn default_evaluation() -> usize {
        1000
    }
}

/// The events of piano performances, the next one predicted at every position, in the splits of MAESTRO's table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaestroConfig {
    /// The directory of MAESTRO, in which its table lies, or that table.
    pub path: PathBuf,
    /// Events read by the model in a window, T; one more is needed for the last target.
    #[serde(default = "BytesConfig::default_length")]
    pub length: usize,
    /// Seed of the training windows; the run's seed if not given.
    #[serde(default)]
    pub data_seed: Option<u64>,
    /// Training windows, drawn once.
    #[serde(default = "BytesConfig::default_train")]
    pub train_sequences: usize,
    /// Validation windows, evenly spaced over the pieces of validation.
    #[serde(default = "BytesConfig::default_evaluation")]
    pub validation_sequences: usize,
    /// Test windows, evenly spaced over the test pieces.
    #[serde(default = "BytesConfig::default_evaluation")]
    pub test_sequences: usize,
}

impl MaestroConfig {
    /// Number of windows of a split.
    pub fn sequences(&self, split: Split) -> usize {
        match split {
            Split::Train => self.train_sequences,
            Split::Validation => self.validation_sequences,
            Split::Test => self.test_sequences,
        }
    }
}

impl TaskConfig {
    /// The value of `task.kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            TaskConfig::Dfa(_) => "dfa",
            TaskConfig::Parity(_) => "parity",
            TaskConfig::SelectiveCopy(_) => "selective-copy",
            TaskConfig::Bytes(_) => "bytes",
            TaskConfig::Maestro(_) => "maestro",
            TaskConfig::Text(c) => c.format.name(),
        }
    }

    /// Number of tokens the model reads in a sequence.
    pub fn sequence_length(&self) -> usize {
        match self {
            TaskConfig::Dfa(c) => match c.variant {
                DfaVariant::PerPosition => c.length,
                DfaVariant::FinalState => c.states.saturating_mul(c.symbols).saturating_add(c.length).saturating_add(2),
            },
            TaskConfig::Parity(c) => match c.variant {
                ParityVariant::PerPosition => c.length,
                ParityVariant::Sequence => c.length.saturating_mul(2),
            },
            TaskConfig::SelectiveCopy(c) => c.length.saturating_add(c.items),
            TaskConfig::Bytes(c) => c.length,
            TaskConfig::Maestro(c) => c.length,
            TaskConfig::Text(c) => c.length,
        }
    }

    /// Size of the vocabulary. DFA: a token for each state, then one for each symbol, then (final-state) the separator
    /// and one to spare, as released. Parity: the two parities, then the two bits, then (sequence) the separator.
    /// Selective copying: the symbols, the blank, the question.
    pub fn vocabulary(&self) -> usize {
        match self {
            TaskConfig::Dfa(c) => {
                c.states.saturating_add(c.symbols) + if c.variant == DfaVariant::FinalState { 2 } else { 0 }
            }
            TaskConfig::Parity(c) => 4 + usize::from(c.variant == ParityVariant::Sequence),
            TaskConfig::SelectiveCopy(c) => c.symbols.saturating_add(2),
            TaskConfig::Bytes(_) => 256,
            TaskConfig::Maestro(_) => tasks::maestro::events::VOCABULARY,
            TaskConfig::Text(c) => c.vocabulary(),
        }
    }

    /// Number of training sequences in an epoch; `None` when only the files can tell.
    pub fn train_sequences(&self) -> Option<usize> {
        match self {
            TaskConfig::Dfa(c) => Some(c.train_sequences),
            TaskConfig::Parity(c) => Some(c.train_sequences),
            TaskConfig::SelectiveCopy(c) => Some(c.train_sequences),
            TaskConfig::Bytes(c) => Some(c.train_sequences),
            TaskConfig::Maestro(c) => Some(c.train_sequences),
            TaskConfig::Text(_) => None,
        }
    }

    /// Lets the tokenizer default to the one beside the weights in `backbone`.
    pub(super) fn locate_tokenizer(&mut self, backbone: Option<&Path>) {
        if let (TaskConfig::Text(c), Some(backbone)) = (self, backbone) {
            c.tokenizer.get_or_insert_with(|| backbone.to_owned());
        }
    }

    /// Writes out the seeds that default to the run's, and looks for the table; what to tell about it.
    ///
    /// # Errors
    /// When there is no such table: a message for `max_window`.
    pub(super) fn resolve(&mut self, seed: u64) -> Result<Option<String>, String> {
        let seeds: &mut [&mut Option<u64>] = match self {
            TaskConfig::Dfa(c) => &mut [&mut c.table_seed, &mut c.data_seed],
            TaskConfig::Parity(c) => &mut [&mut c.data_seed],
            TaskConfig::SelectiveCopy(c) => &mut [&mut c.data_seed],
            TaskConfig::Bytes(c) => &mut [&mut c.data_seed],
            TaskConfig::Maestro(c) => &mut [&mut c.data_seed],
            TaskConfig::Text(c) => {
                c.resolve(seed);
                return Ok(None);
            }
        };
        for slot in seeds {
            slot.get_or_insert(seed);
        }
        let TaskConfig::Dfa(c) = self else { return Ok(None) };
        let found = tasks::Dfa::choose_table(c)?;
        Ok(found.map(|(table_seed, told)| {
            c.table_seed = Some(table_seed);
            told
        }))
    }

    pub(super) fn check(&self, checks: &mut Checks<'_>) {
        let (length, train, validation, test) = match self {
            TaskConfig::Dfa(c) => (c.length, c.train_sequences, c.validation_sequences, c.test_sequences),
            TaskConfig::Parity(c) => (c.length, c.train_sequences, c.validation_sequences, c.test_sequences),
            TaskConfig::SelectiveCopy(c) => (c.length, c.train_sequences, c.validation_sequences, c.test_sequences),
            TaskConfig::Bytes(c) => (c.length, c.train_sequences, c.validation_sequences, c.test_sequences),
            TaskConfig::Maestro(c) => (c.length, c.train_sequences, c.validation_sequences, c.test_sequences),
            // Numbers of examples are bounded by those in the files.
            TaskConfig::Text(c) => return c.check(checks),
        };
        checks.at_least("length", length, 1);
        checks.at_most("length", length, 1 << 24);
        checks.at_least("train_sequences", train, 1);
        checks.at_least("validation_sequences", validation, 1);
        for (key, sequences) in
            [("train_sequences", train), ("validation_sequences", validation), ("test_sequences", test)]
        {
            checks.require(key, sequences <= MOST_SEQUENCES, || {
                format!(
                    "must be at most {MOST_SEQUENCES} (shuffling so many takes 800 MB of memory), found {sequences}"
                )
            });
        }
        if let TaskConfig::Dfa(c) = self {
            checks.at_least("states", c.states, 1);
            checks.at_most("states", c.states, 4096);
            checks.at_least("symbols", c.symbols, 1);
            checks.at_most("symbols", c.symbols, 4096);
            if let Some(rule) = c.max_window {
                let mut checks = checks.inside("max_window");
                let drawn = c.variant == DfaVariant::PerPosition && c.transitions.is_none();
                checks.require("", drawn, || "is for a table that is drawn once for the run".to_owned());
                checks.require("accuracy", rule.accuracy > 0.0 && rule.accuracy <= 1.0, || {
                    format!("must be above 0 and at most 1, found {}", rule.accuracy)
                });
                let work = tasks::Automaton::window_work(c.states, c.symbols, tasks::RULE_LENGTH, rule.symbols);
                checks.require("symbols", work <= MOST_SEARCH, || {
                    format!(
                        "= {} makes every table take {work:.0e} transitions: at most {MOST_SEARCH:.0e} are taken",
                        rule.symbols
                    )
                });
            }
            if let Some(table) = &c.transitions {
                checks.require(
                    "transitions",
                    table.len() == c.states && table.iter().all(|row| row.len() == c.symbols),
                    || format!("must have {} rows (states) of {} entries (symbols)", c.states, c.symbols),
                );
                checks.require("transitions", table.iter().flatten().all(|&next| (next as usize) < c.states), || {
                    format!("must hold states 0 to {}", c.states.saturating_sub(1))
                });
                checks.require("transitions", c.variant == DfaVariant::PerPosition, || {
                    "is for `variant = \"per-position\"`: the other variant draws a table for each example".to_owned()
                });
            }
        }
        if let TaskConfig::SelectiveCopy(c) = self {
            checks.at_least("symbols", c.symbols, 1);
            checks.at_most("symbols", c.symbols, 4096);
            checks.at_least("items", c.items, 1);
            checks
                .require("items", c.items <= c.length, || format!("is {}, more than `length` = {}", c.items, c.length));
        }
        if let TaskConfig::Bytes(BytesConfig { path, .. }) | TaskConfig::Maestro(MaestroConfig { path, .. }) = self {
            checks.require("path", !path.as_os_str().is_empty(), || "must name a file".to_owned());
        }
    }
}
