use std::path::PathBuf;
use thiserror::Error;

/// What can be wrong with files of weights; every message says which file and which entry.
#[derive(Debug, Error)]
pub enum WeightsError {
    /// The operating system refused.
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        /// What was attempted: "read", "write" ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// A file that is not what its name says.
    #[error("{} is not a readable {kind}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it should be.
        kind: &'static str,
        /// What the parser found.
        reason: String,
    },
    /// A file of the right kind with the wrong content.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A file that cannot be read or written, whatever is in it.
    #[error(transparent)]
    File(#[from] hankel_io::Error),
}

/// Result of this module.
pub type Result<T> = std::result::Result<T, WeightsError>;

impl WeightsError {
    /// Wraps an I/O error with the action and path it belongs to.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |reason| Self::Io { action, path, reason }
    }

    /// A file of the right kind with the wrong content.
    pub fn content(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::Content { path: path.into(), reason: reason.into() }
    }
}
