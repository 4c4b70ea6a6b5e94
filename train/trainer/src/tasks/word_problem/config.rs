//! Settings of `word-problem`.

use super::{Group, WordProblem};
use crate::settings::check::Checks;
use crate::tasks::settings::{GeneratedData, TaskSettings, TokenKind, generated};
use crate::tasks::{Task, TaskError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most ids that may lie before those of the elements, more than any model has.
const MOST_TOKENS: usize = 1 << 24;

/// Products of random elements of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WordProblemConfig {
    /// The group.
    pub group: Group,
    /// Elements of a sequence that is trained or validated on.
    pub length: usize,
    /// Elements of a sequence of the test.
    pub test_length: usize,
    /// Token of the identity; the other elements follow.
    pub first_token: usize,
    /// Token id placed before the first element; it has no target.
    pub start_token: Option<usize>,
    /// The sequences.
    #[serde(skip)]
    pub sequences: GeneratedData,
}

impl Default for WordProblemConfig {
    fn default() -> Self {
        WordProblemConfig {
            group: Group::default(),
            length: 32,
            test_length: 512,
            first_token: 0,
            start_token: None,
            sequences: GeneratedData::default(),
        }
    }
}

impl WordProblemConfig {
    /// Values of `task.kind`.
    pub(in crate::tasks) const KINDS: &[&str] = &["word-problem"];

    /// Tokens of a sequence of so many elements.
    pub(super) fn tokens(&self, elements: usize) -> usize {
        elements.saturating_add(usize::from(self.start_token.is_some()))
    }
}

impl TaskSettings for WordProblemConfig {
    fn kind(&self) -> &'static str {
        Self::KINDS[0]
    }

    generated!();

    fn sequence_length(&self) -> usize {
        self.tokens(self.length)
    }

    fn longest_sequence(&self) -> usize {
        self.tokens(if self.sequences.test_sequences > 0 { self.length.max(self.test_length) } else { self.length })
    }

    fn vocabulary(&self) -> usize {
        let elements = self.first_token.saturating_add(self.group.order());
        self.start_token.map_or(elements, |start| elements.max(start.saturating_add(1)))
    }

    fn token_kind(&self) -> TokenKind {
        TokenKind::Symbols
    }

    fn check(&self, checks: &mut Checks<'_>) {
        self.sequences.check(self.length, checks);
        let (length, test) = (self.length, self.test_length);
        checks.require("test_length", test.is_power_of_two() && (length..=1 << 24).contains(&test), || {
            format!("must be a power of two, at least `length` = {length} and at most 2^24, found {test}")
        });
        checks.at_most("first_token", self.first_token, MOST_TOKENS);
        let elements = self.first_token..self.first_token.saturating_add(self.group.order());
        if let Some(start) = self.start_token {
            checks.at_most("start_token", start, MOST_TOKENS);
            checks.require("start_token", !elements.contains(&start), || {
                format!(
                    "must not be one of the elements, which are the tokens {} to {}",
                    elements.start,
                    elements.end - 1
                )
            });
        }
    }

    fn resolve(&mut self, seed: u64) -> Result<Option<String>, (&'static str, String)> {
        self.sequences.resolve(seed);
        Ok(None)
    }

    fn build(&self) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(WordProblem::new(self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::documented::{assert_documented, keys, values};

    #[test]
    fn settings_are_documented() {
        assert_documented(&[keys::<WordProblemConfig>()], &[values::<Group>()]);
    }
}
