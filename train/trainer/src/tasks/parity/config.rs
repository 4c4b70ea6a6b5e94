//! Settings of `parity`.

use super::Parity;
use crate::settings::check::Checks;
use crate::tasks::settings::{GeneratedData, TaskSettings, TokenKind, generated};
use crate::tasks::{Task, TaskError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the targets of parity are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ParityVariant {
    /// The running parity is predicted after every bit.
    #[default]
    PerPosition,
    /// The released form: T bits, a separator, then the T running parities, predicted one after the other.
    Sequence,
}

/// Running parity of random bits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ParityConfig {
    /// Where the targets are.
    pub variant: ParityVariant,
    /// Bits in a sequence, T.
    pub length: usize,
    /// The sequences.
    #[serde(skip)]
    pub sequences: GeneratedData,
}

impl Default for ParityConfig {
    fn default() -> Self {
        ParityConfig { variant: ParityVariant::PerPosition, length: 64, sequences: GeneratedData::default() }
    }
}

impl ParityConfig {
    /// Values of `task.kind`.
    pub(in crate::tasks) const KINDS: &[&str] = &["parity"];
}

impl TaskSettings for ParityConfig {
    fn kind(&self) -> &'static str {
        Self::KINDS[0]
    }

    generated!();

    fn sequence_length(&self) -> usize {
        match self.variant {
            ParityVariant::PerPosition => self.length,
            ParityVariant::Sequence => self.length.saturating_mul(2),
        }
    }

    /// The two parities, then the two bits, then (sequence) the separator.
    fn vocabulary(&self) -> usize {
        4 + usize::from(self.variant == ParityVariant::Sequence)
    }

    fn token_kind(&self) -> TokenKind {
        TokenKind::Symbols
    }

    fn check(&self, checks: &mut Checks<'_>) {
        self.sequences.check(self.length, checks);
    }

    fn resolve(&mut self, seed: u64) -> Result<Option<String>, (&'static str, String)> {
        self.sequences.resolve(seed);
        Ok(None)
    }

    fn build(&self) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(Parity::new(self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::documented::{assert_documented, keys, values};

    #[test]
    fn settings_are_documented() {
        assert_documented(&[keys::<ParityConfig>()], &[values::<ParityVariant>()]);
    }
}
