//! Settings of `text`.

use super::PlainText;
use crate::settings::Paths;
use crate::settings::check::Checks;
use crate::tasks::settings::{TaskSettings, TokenKind};
use crate::tasks::{Task, TaskError, tokenizer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// How a validation part is made of the files of `path`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Division {
    /// Whole documents are held out.
    Documents,
    /// The end of every document is held out.
    Share,
}

/// Plain text, the next token predicted at every position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlainTextConfig {
    /// Files of plain text, or folders of them; gzip is recognised by its content.
    pub path: Paths,
    /// Files or folders of validation texts; a share of `path` when not given. What is in both is not trained on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_path: Option<Paths>,
    /// Files or folders of test texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_path: Option<Paths>,
    /// Text at which a file is divided into documents; a file is a document when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<String>,
    /// How the validation part is made; `documents` when not given and there are at least 10 of them, else `share`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub division: Option<Division>,
    /// Share of the documents, or of every document, that is held out for validation.
    #[serde(default = "PlainTextConfig::default_share")]
    pub validation_share: f64,
    /// Seed of what is drawn; the run's seed if not given.
    #[serde(default)]
    pub data_seed: Option<u64>,
    /// Directory with `tokenizer.json`, or that file; beside the backbone's weights when not given.
    pub tokenizer: Option<PathBuf>,
    /// Tokens read by the model in a window, T.
    #[serde(default = "PlainTextConfig::default_length")]
    pub length: usize,
    /// Training windows that are used, evenly spaced; all when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_sequences: Option<usize>,
    /// Validation windows that are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_sequences: Option<usize>,
    /// Test windows that are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_sequences: Option<usize>,
}

impl PlainTextConfig {
    /// Values of `task.kind`.
    pub(in crate::tasks) const KINDS: &[&str] = &["text"];

    fn default_length() -> usize {
        512
    }

    pub(super) fn default_share() -> f64 {
        0.1
    }
}

impl TaskSettings for PlainTextConfig {
    fn kind(&self) -> &'static str {
        Self::KINDS[0]
    }

    fn sequence_length(&self) -> usize {
        self.length
    }

    fn vocabulary(&self) -> usize {
        tokenizer::vocabulary(self.tokenizer.as_deref())
    }

    fn token_kind(&self) -> TokenKind {
        TokenKind::TokenizerIds
    }

    fn set_default_tokenizer(&mut self, model: &Path) {
        self.tokenizer.get_or_insert_with(|| model.to_owned());
    }

    fn tokenizer(&self) -> Option<&Path> {
        self.tokenizer.as_deref()
    }

    fn check_model(&self, vocabulary: usize, checks: &mut Checks<'_>) {
        tokenizer::check_model(self.vocabulary(), vocabulary, checks);
    }

    fn check(&self, checks: &mut Checks<'_>) {
        for (key, paths) in [
            ("path", Some(&self.path)),
            ("validation_path", self.validation_path.as_ref()),
            ("test_path", self.test_path.as_ref()),
        ] {
            checks.require(key, paths.is_none_or(|paths| !paths.0.is_empty()), || {
                "must name a file or a folder".to_owned()
            });
        }
        checks.require("separator", self.separator.as_ref().is_none_or(|separator| !separator.is_empty()), || {
            "must not be empty".to_owned()
        });
        tokenizer::check(self.tokenizer.as_deref(), checks);
        checks.at_least("length", self.length, 2);
        checks.at_most("length", self.length, 1 << 24);
        checks.require("validation_share", self.validation_share > 0.0 && self.validation_share < 1.0, || {
            format!("must be above 0 and below 1, found {}", self.validation_share)
        });
        for (key, value) in
            [("train_sequences", self.train_sequences), ("validation_sequences", self.validation_sequences)]
        {
            checks.at_least(key, value.unwrap_or(1), 1);
        }
    }

    fn resolve(&mut self, seed: u64) -> Result<Option<String>, (&'static str, String)> {
        self.data_seed.get_or_insert(seed);
        Ok(None)
    }

    fn build(&self) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(PlainText::open(self)?))
    }

    fn build_on(&self, file: &Path) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(PlainText::open_on(self, file)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::documented::{assert_documented, keys, values};

    #[test]
    fn settings_are_documented() {
        assert_documented(&[keys::<PlainTextConfig>()], &[values::<Division>()]);
    }
}
