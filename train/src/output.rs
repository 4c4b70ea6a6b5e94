//! The standard output.

use anyhow::{Context, Result};
use std::io::{self, ErrorKind, Write};

/// Writes at once; false when nobody reads any more (`train ... | head`), which is no error.
///
/// # Errors
/// When it cannot be written to.
pub fn put(bytes: &[u8]) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true).context("cannot write to the standard output"),
    }
}

/// Writes a text and the end of its line.
///
/// # Errors
/// As [`put`].
pub fn line(text: &str) -> Result<()> {
    put(format!("{text}\n").as_bytes()).map(|_| ())
}
