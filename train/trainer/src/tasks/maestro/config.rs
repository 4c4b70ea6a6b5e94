//! Settings of `maestro`.

use super::Maestro;
use super::events::VOCABULARY;
use crate::settings::check::Checks;
use crate::tasks::settings::{GeneratedData, TaskSettings, TokenKind, generated};
use crate::tasks::{Task, TaskError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The events of piano performances, the next one predicted at every position, in the splits of MAESTRO's table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaestroConfig {
    /// The directory of MAESTRO, in which its table lies, or that table.
    pub path: PathBuf,
    /// Events read by the model in a window, T; one more is needed for the last target.
    #[serde(default = "MaestroConfig::default_length")]
    pub length: usize,
    /// The windows: those of training are drawn once, those of validation and test are evenly spaced over their split.
    #[serde(skip)]
    pub sequences: GeneratedData,
}

impl MaestroConfig {
    /// Values of `task.kind`.
    pub(in crate::tasks) const KINDS: &[&str] = &["maestro"];

    fn default_length() -> usize {
        512
    }
}

impl TaskSettings for MaestroConfig {
    fn kind(&self) -> &'static str {
        Self::KINDS[0]
    }

    generated!();

    fn sequence_length(&self) -> usize {
        self.length
    }

    fn vocabulary(&self) -> usize {
        VOCABULARY
    }

    fn token_kind(&self) -> TokenKind {
        TokenKind::Events
    }

    fn check(&self, checks: &mut Checks<'_>) {
        self.sequences.check(self.length, checks);
        checks.require("path", !self.path.as_os_str().is_empty(), || "must name a file".to_owned());
    }

    fn resolve(&mut self, seed: u64) -> Result<Option<String>, (&'static str, String)> {
        self.sequences.resolve(seed);
        Ok(None)
    }

    fn build(&self) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(Maestro::open(self)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::documented::{assert_documented, keys};

    #[test]
    fn settings_are_documented() {
        assert_documented(&[keys::<MaestroConfig>()], &[]);
    }
}
