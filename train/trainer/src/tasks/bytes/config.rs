//! Settings of `bytes`.

use super::Bytes;
use crate::settings::check::Checks;
use crate::tasks::settings::{GeneratedData, TaskSettings, TokenKind, generated};
use crate::tasks::{Task, TaskError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The bytes of a file, the next one predicted at every position. The file is cut 90/5/5 into training, validation and
/// test part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BytesConfig {
    /// The file; gzip is recognised by its content.
    pub path: PathBuf,
    /// Bytes read by the model in a window, T; one more is needed for the last target.
    #[serde(default = "BytesConfig::default_length")]
    pub length: usize,
    /// The windows: those of training are drawn once, those of validation and test are evenly spaced over their split.
    #[serde(skip)]
    pub sequences: GeneratedData,
}

impl BytesConfig {
    /// Values of `task.kind`.
    pub(in crate::tasks) const KINDS: &[&str] = &["bytes"];

    fn default_length() -> usize {
        512
    }
}

impl TaskSettings for BytesConfig {
    fn kind(&self) -> &'static str {
        Self::KINDS[0]
    }

    generated!();

    fn sequence_length(&self) -> usize {
        self.length
    }

    fn vocabulary(&self) -> usize {
        256
    }

    fn token_kind(&self) -> TokenKind {
        TokenKind::Bytes
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
        Ok(Box::new(Bytes::open(self)?))
    }

    fn build_on(&self, file: &Path) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(Bytes::open_on(self, file)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::documented::{assert_documented, keys};

    #[test]
    fn settings_are_documented() {
        assert_documented(&[keys::<BytesConfig>()], &[]);
    }
}
