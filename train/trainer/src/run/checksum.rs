//! Checksums of files, which tell that one was damaged.

use std::io::{BufRead, BufReader};
use std::path::Path;

/// Bytes that are in memory at a time.
const PART: usize = 1 << 20;

/// The CRC-32C of a file.
///
/// # Errors
/// When it cannot be read.
pub(super) fn crc32c_of(path: &Path) -> hankel_io::Result<u32> {
    let mut file = BufReader::with_capacity(PART, hankel_io::input::open(path)?);
    let mut sum = 0;
    loop {
        let part = file.fill_buf().map_err(hankel_io::Error::io("read", path))?;
        if part.is_empty() {
            return Ok(sum);
        }
        sum = crc32c::crc32c_append(sum, part);
        let read = part.len();
        file.consume(read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_parts_has_the_sum_of_the_whole() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let bytes: Vec<u8> = (0..3 * PART + 5).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(crc32c_of(&path).unwrap(), crc32c::crc32c(&bytes));
    }
}
