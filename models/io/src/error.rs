use std::io;
use std::path::PathBuf;

/// What can be wrong with a file, whatever is in it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        /// What was attempted: "read", "write" ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// An output that must not be there yet.
    #[error("{} already exists; remove it or choose another name", .0.display())]
    Exists(PathBuf),
    /// An output in a folder that is not there.
    #[error("cannot write {}: there is no folder {}; make it, or choose another place", path.display(), folder.display())]
    NoFolder {
        /// The output.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
    },
    /// Something other than a regular file, or than a folder.
    #[error("{} is {found}: expected {expected}", path.display())]
    Kind {
        /// Where it is.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A compressed file whose content is out of proportion.
    #[error("{} unpacks to more than {limit} bytes, {} times its size: unpack it yourself if it is meant so", path.display(), crate::input::RATIO)]
    Unpacked {
        /// The file.
        path: PathBuf,
        /// The most that is unpacked of it.
        limit: u64,
    },
    /// A name in a file that would lead out of its folder.
    #[error("{what} {name:?} cannot be used as {use_as}: {reason}")]
    Name {
        /// What is named, and where.
        what: String,
        /// The name.
        name: String,
        /// What it was to be.
        use_as: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Wraps what the system said with the action and path it belongs to.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |reason| Self::Io { action, path, reason }
    }

    /// Whether a file was to be read that is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { reason, .. } if reason.kind() == io::ErrorKind::NotFound)
    }
}
