//! The tasks that a configuration can name. A new task is a folder and a line in `tasks!`.

use super::settings::{GeneratedData, TaskSettings, TokenKind};
use super::{Task, TaskError, tokenizer};
use crate::settings::ConfigError;
use crate::settings::check::Checks;
use crate::settings::de::{keys, read};
use crate::settings::schema;
use crate::settings::tree::Node;
use hankel_models::TurnStart;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};

macro_rules! tasks {
    ($($(#[$doc:meta])* $variant:ident($settings:ty),)*) => {
        /// `[task]`, by `kind`.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(clippy::large_enum_variant, reason = "a configuration has one or two tasks")]
        pub enum TaskConfig {
            $($(#[$doc])* $variant($settings),)*
        }

        impl TaskConfig {
            /// Values of `task.kind`.
            pub(crate) fn kinds() -> Vec<&'static str> {
                [$(<$settings>::KINDS),*].concat()
            }

            /// For the settings of every task: its kinds, and what `make` makes of their schema and that of the settings that
            /// generated tasks have in common.
            pub(crate) fn schemas<R>(
                make: impl Fn(fn() -> Value, Option<fn() -> Value>) -> R,
            ) -> Vec<(Vec<&'static str>, R)> {
                let common = |generated: bool| generated.then_some(schema::of::<GeneratedData> as fn() -> Value);
                vec![$((
                    <$settings>::KINDS.to_vec(),
                    make(schema::of::<$settings>, common(<$settings as TaskSettings>::is_generated())),
                )),*]
            }

            /// Reads the settings of the task `kind`, one of [`TaskConfig::kinds`], from the table `node` at `path`.
            pub(crate) fn read(kind: &'static str, node: &Node, path: &str) -> Result<Self, ConfigError> {
                $(if <$settings>::KINDS.contains(&kind) {
                    return read_settings::<$settings>(kind, node, path).map(Self::$variant);
                })*
                unreachable!("`{kind}` is not among the kinds of tasks")
            }

            /// The settings as TOML, without `kind`.
            pub(crate) fn to_table(&self) -> toml::Table {
                let own = match self {
                    $(Self::$variant(settings) => toml::Table::try_from(settings),)*
                };
                let common = self.settings().sequences().map(toml::Table::try_from).transpose();
                let mut table = own.expect("settings are structs of TOML values");
                table.extend(common.expect("settings are structs of TOML values").unwrap_or_default());
                table
            }

            fn settings(&self) -> &dyn TaskSettings {
                match self {
                    $(Self::$variant(settings) => settings,)*
                }
            }

            fn settings_mut(&mut self) -> &mut dyn TaskSettings {
                match self {
                    $(Self::$variant(settings) => settings,)*
                }
            }
        }
    };
}

tasks! {
    /// `kind = "dfa"`.
    Dfa(super::dfa::DfaConfig),
    /// `kind = "parity"`.
    Parity(super::parity::ParityConfig),
    /// `kind = "selective-copy"`.
    SelectiveCopy(super::selective_copy::SelectiveCopyConfig),
    /// `kind = "linear-system"`.
    LinearSystem(super::linear_system::LinearSystemConfig),
    /// `kind = "word-problem"`.
    WordProblem(super::word_problem::WordProblemConfig),
    /// `kind = "bytes"`.
    Bytes(super::bytes::BytesConfig),
    /// `kind = "maestro"`.
    Maestro(super::maestro::MaestroConfig),
    /// `kind = "text"`.
    PlainText(super::plain_text::PlainTextConfig),
    /// `kind` is a data set of texts, as `"jsonl"`.
    Text(super::text::TextConfig),
}

/// Reads the task's own keys, and those of [`GeneratedData`] if the task has them.
fn read_settings<T: TaskSettings + DeserializeOwned>(
    kind: &'static str,
    node: &Node,
    path: &str,
) -> Result<T, ConfigError> {
    let (table, origin) = (node.as_table(path)?, &node.origin);
    let (own, common) = (keys::<T>(), keys::<GeneratedData>());
    let others = |keys: &[&'static str], without: &[&'static str]| -> Vec<&'static str> {
        keys.iter().copied().filter(|key| !without.contains(key)).chain(["kind"]).collect()
    };
    let mut settings: T = read(table, origin, path, &others(&common, &own))?;
    if let Some(sequences) = settings.sequences_mut() {
        *sequences = read(table, origin, path, &others(&own, &common))?;
    }
    settings.set_kind(kind);
    Ok(settings)
}

impl TaskConfig {
    /// The value of `task.kind`.
    pub fn kind(&self) -> &'static str {
        self.settings().kind()
    }

    /// Number of tokens that the model reads in a sequence, T.
    pub fn sequence_length(&self) -> usize {
        self.settings().sequence_length()
    }

    /// The most tokens that the model reads in a sequence of any split.
    pub fn longest_sequence(&self) -> usize {
        self.settings().longest_sequence()
    }

    /// Size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.settings().vocabulary()
    }

    /// Whether examples are pairs of answers, scored beside the model without its adapter.
    pub fn has_pairs(&self) -> bool {
        self.settings().has_pairs()
    }

    /// What the tokens stand for.
    pub fn token_kind(&self) -> TokenKind {
        self.settings().token_kind()
    }

    /// Number of training sequences in an epoch; `None` when only the files can tell.
    pub(crate) fn train_sequences(&self) -> Option<usize> {
        self.settings().sequences().map(|sequences| sequences.train_sequences)
    }

    pub(crate) fn check(&self, checks: &mut Checks<'_>) {
        self.settings().check(checks);
    }

    pub(crate) fn check_model(&self, vocabulary: usize, checks: &mut Checks<'_>) {
        self.settings().check_model(vocabulary, checks);
    }

    pub(crate) fn set_default_tokenizer(&mut self, model: &Path) {
        self.settings_mut().set_default_tokenizer(model);
    }

    pub(crate) fn tokenizer(&self) -> Option<&Path> {
        self.settings().tokenizer()
    }

    /// The directory, or GGUF file, of its tokenizer, where it has one.
    pub fn tokenizer_place(&self) -> Option<PathBuf> {
        self.tokenizer().map(|path| tokenizer::place(Some(path)))
    }

    /// Whether sequences are divided into turns, at each of which attention starts afresh.
    pub fn has_turns(&self) -> bool {
        self.settings().has_turns()
    }

    /// What begins a turn, where sequences are divided into turns.
    ///
    /// # Errors
    /// When the tokenizer cannot be used.
    pub fn turn_start(&self) -> Result<Option<TurnStart>, TaskError> {
        self.settings().turn_start()
    }

    pub(crate) fn resolve(&mut self, seed: u64) -> Result<Option<String>, (&'static str, String)> {
        self.settings_mut().resolve(seed)
    }

    /// The task of a resolved configuration.
    ///
    /// # Errors
    /// When a file it needs cannot be used.
    pub fn build(&self) -> Result<Box<dyn Task>, TaskError> {
        self.settings().build()
    }

    /// The task with the whole of another file as its test part.
    ///
    /// # Errors
    /// When the file cannot be used, or the task has no files.
    pub fn build_on(&self, file: &Path) -> Result<Box<dyn Task>, TaskError> {
        self.settings().build_on(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::documented::assert_documented;

    #[test]
    fn kinds_are_documented() {
        let kinds = TaskConfig::kinds().into_iter().map(str::to_owned).collect();
        assert_documented(&[], &[kinds]);
    }
}
