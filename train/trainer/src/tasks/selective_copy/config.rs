//! Settings of `selective-copy`.

use super::SelectiveCopy;
use crate::settings::check::Checks;
use crate::tasks::settings::{GeneratedData, TaskSettings, TokenKind, generated};
use crate::tasks::{Task, TaskError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Symbols scattered among blanks, asked for in order after them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SelectiveCopyConfig {
    /// Kinds of symbols.
    pub symbols: usize,
    /// Symbols in a sequence, and questions after it.
    pub items: usize,
    /// Symbols and blanks, before the questions.
    pub length: usize,
    /// The sequences.
    #[serde(skip)]
    pub sequences: GeneratedData,
}

impl Default for SelectiveCopyConfig {
    fn default() -> Self {
        SelectiveCopyConfig { symbols: 8, items: 4, length: 60, sequences: GeneratedData::default() }
    }
}

impl SelectiveCopyConfig {
    /// Values of `task.kind`.
    pub(in crate::tasks) const KINDS: &[&str] = &["selective-copy"];
}

impl TaskSettings for SelectiveCopyConfig {
    fn kind(&self) -> &'static str {
        Self::KINDS[0]
    }

    generated!();

    fn sequence_length(&self) -> usize {
        self.length.saturating_add(self.items)
    }

    /// The symbols, the blank, the question.
    fn vocabulary(&self) -> usize {
        self.symbols.saturating_add(2)
    }

    fn token_kind(&self) -> TokenKind {
        TokenKind::Symbols
    }

    fn check(&self, checks: &mut Checks<'_>) {
        self.sequences.check(self.length, checks);
        checks.at_least("symbols", self.symbols, 1);
        checks.at_most("symbols", self.symbols, 4096);
        checks.at_least("items", self.items, 1);
        checks.require("items", self.items <= self.length, || {
            format!("is {}, more than `length` = {}", self.items, self.length)
        });
    }

    fn resolve(&mut self, seed: u64) -> Result<Option<String>, (&'static str, String)> {
        self.sequences.resolve(seed);
        Ok(None)
    }

    fn build(&self) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(SelectiveCopy::new(self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::documented::{assert_documented, keys};

    #[test]
    fn settings_are_documented() {
        assert_documented(&[keys::<SelectiveCopyConfig>()], &[]);
    }
}
