//! What is wrong with a configuration, and where it was written.

pub(crate) use hankel_models::settings::{alternatives, nearest};

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a key or value of a configuration was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file, from 1.
    Line(Arc<str>, usize),
    /// A `--set key=value` of the command line, as typed.
    Override(Arc<str>),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Line(file, line) => write!(f, "{file}:{line}"),
            Origin::Override(text) => write!(f, "--set {text}"),
        }
    }
}

/// A configuration that cannot be used: the place, the key and the reason in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", .origin.as_ref().map(|origin| format!("{origin}: ")).unwrap_or_default())]
pub struct ConfigError {
    /// Where it was written, when it was written anywhere (a missing key was not).
    pub origin: Option<Origin>,
    /// What is wrong and what to do.
    pub message: String,
    /// Whether it is that of files which the configuration names, and could be used with others.
    pub of_files: bool,
}

impl ConfigError {
    /// An error at `origin`.
    pub fn new(origin: Option<Origin>, message: impl Into<String>) -> Self {
        ConfigError { origin, message: message.into(), of_files: false }
    }

    /// With the name of the configuration's file where it was written nowhere.
    pub(crate) fn in_file(self, file: &Path) -> Self {
        if self.origin.is_some() {
            return self;
        }
        ConfigError { message: format!("{}: {}", file.display(), self.message), ..self }
    }
}
