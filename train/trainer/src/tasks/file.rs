//! Reading data files.

use super::TaskError;
use crate::format::hexadecimal;
use crate::results::DataFile;
use hankel_io::input;
use sha2::{Digest, Sha256};
use std::path::Path;

/// The content of a file named by `key`, gzip unpacked, and what identifies the file.
///
/// # Errors
/// When it cannot be read or unpacked, or is empty.
pub(super) fn read(key: &'static str, path: &Path) -> Result<(Vec<u8>, DataFile), TaskError> {
    let unreadable = |reason: String| TaskError::Unreadable { key, path: path.to_owned(), reason };
    let stored = input::read(path).map_err(|error| match error {
        hankel_io::Error::Io { reason, .. } => unreadable(reason.to_string()),
        hankel_io::Error::Kind { found, .. } => unreadable(format!("it is {found}")),
        other => unreadable(other.to_string()),
    })?;
    let file = DataFile { path: path.display().to_string(), bytes: stored.len() as u64, sha256: digest(&stored) };
    let content = input::unzipped(path, stored).map_err(|error| match error {
        hankel_io::Error::Io { action: "unpack", reason, .. } => {
            unreadable(format!("not a complete gzip file ({reason})"))
        }
        hankel_io::Error::Io { reason, .. } => unreadable(reason.to_string()),
        other => unreadable(other.to_string()),
    })?;
    if content.is_empty() {
        return Err(TaskError::Empty { key, path: path.to_owned() });
    }
    Ok((content, file))
}

/// A text without the byte order mark that some editors put before it.
pub(super) fn without_mark(content: &[u8]) -> &[u8] {
    content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content)
}

/// SHA-256 as 64 hexadecimal digits.
pub(super) fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests() {
        assert_eq!(digest(b"abc")[..16], *"ba7816bf8f01cfea");
    }
}
