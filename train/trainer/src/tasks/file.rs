//! Reading data files.

use super::TaskError;
use crate::results::DataFile;
use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;

/// The content of a file named by `key`, gzip unpacked, and what identifies the file.
///
/// # Errors
/// When it cannot be read or unpacked, or is empty.
pub fn read(key: &'static str, path: &Path) -> Result<(Vec<u8>, DataFile), TaskError> {
    let unreadable = |reason: String| TaskError::Unreadable { key, path: path.to_owned(), reason };
    if path.is_dir() {
        return Err(unreadable("it is a directory".to_owned()));
    }
    let stored = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    let file = DataFile { path: path.display().to_string(), bytes: stored.len() as u64, sha256: digest(&stored) };
    let content = if stored.starts_with(&[0x1f, 0x8b]) {
        let mut content = Vec::new();
        let unpacked = MultiGzDecoder::new(stored.as_slice()).read_to_end(&mut content);
        unpacked.map_err(|error| unreadable(format!("not a complete gzip file ({error})")))?;
        content
    } else {
        stored
    };
    if content.is_empty() {
        return Err(TaskError::Empty { key, path: path.to_owned() });
    }
    Ok((content, file))
}

/// SHA-256 as 64 hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    Sha256::digest(bytes).iter().flat_map(|&byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests() {
        assert_eq!(digest(b"abc")[..16], *"ba7816bf8f01cfea");
    }
}
