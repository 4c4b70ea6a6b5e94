//! Reading forward through bytes that may end anywhere.

/// What is wrong, and where.
#[derive(Debug)]
pub(super) struct Fault {
    offset: usize,
    reason: String,
}

impl Fault {
    pub(super) fn new(offset: usize, reason: String) -> Self {
        Fault { offset, reason }
    }

    /// The same, said of a part of the file.
    pub(super) fn within(self, part: &str) -> Self {
        Fault { offset: self.offset, reason: format!("{part}: {}", self.reason) }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.reason)
    }
}

/// A position in a file. Nothing is allocated by a length that the file claims.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Cursor { bytes, at }
    }

    pub(super) fn offset(&self) -> usize {
        self.at
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `count` bytes, which are `what`.
    pub(super) fn take(&mut self, count: u64, what: &str) -> Result<&'a [u8], Fault> {
        let left = self.left();
        let count = usize::try_from(count).ok().filter(|&count| count <= left).ok_or_else(|| {
            Fault::new(
                self.at,
                format!("{what} takes {count} bytes, and the file ends after {left}: it is cut off or damaged"),
            )
        })?;
        self.at += count;
        Ok(&self.bytes[self.at - count..self.at])
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.take(4, what)?.try_into().expect("4 bytes")))
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.take(8, what)?.try_into().expect("8 bytes")))
    }

    /// A number of `things` that follow, each of at least `smallest` bytes.
    pub(super) fn count(&mut self, things: &str, smallest: usize) -> Result<usize, Fault> {
        let at = self.at;
        let count = self.u64(&format!("the number of {things}"))?;
        let left = self.left();
        usize::try_from(count).ok().filter(|&count| count <= left / smallest).ok_or_else(|| {
            Fault::new(at, format!("{count} {things} are announced, more than fit the {left} bytes that follow"))
        })
    }

    /// A length and as many bytes of UTF-8.
    pub(super) fn string(&mut self, what: &str) -> Result<&'a str, Fault> {
        let length = self.u64("the length of a string")?;
        let at = self.at;
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes).map_err(|_| Fault::new(at, format!("{what} is not UTF-8")))
    }
}
