//! What is written to the terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// `text` with control characters and marks that turn the direction of a line written out (`\u{1b}`), but for tabs and line
/// breaks: names in files neither move the cursor nor hide what stands beside them.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unseen) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_unseen(character) { out.extend(character.escape_unicode()) } else { out.push(character) }
    }
    Cow::Owned(out)
}

fn is_unseen(character: char) -> bool {
    let turns =
        matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || character.is_control() && !matches!(character, '\n' | '\t')
}

/// Writes data, such as a text that a model generates, to the standard output at once: as it is, or [`escaped`] when that is
/// a terminal. False when nobody reads any more (`train generate | head`), which is not an error.
///
/// # Errors
/// When it cannot be written to.
pub fn data(bytes: &[u8]) -> io::Result<bool> {
    if io::stdout().is_terminal() {
        return put(escaped(&String::from_utf8_lossy(bytes)).as_bytes());
    }
    put(bytes)
}

fn put(bytes: &[u8]) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        other => other
            .map(|()| true)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot write to the standard output: {error}"))),
    }
}

/// Writes a text, [`escaped`], to the standard output; nobody reading it is not an error.
///
/// # Errors
/// When it cannot be written to.
pub fn print(text: &str) -> io::Result<()> {
    put(escaped(text).as_bytes()).map(|_| ())
}

/// As [`print()`], with the end of the line.
///
/// # Errors
/// As [`print()`].
pub fn line(text: &str) -> io::Result<()> {
    print(&format!("{text}\n"))
}

/// Writes JSON and the end of its line: what [`escaped`] would write out is there in the notation of JSON.
///
/// # Errors
/// As [`print()`].
pub fn json(text: &str) -> io::Result<()> {
    put(format!("{}\n", escaped_json(text)).as_bytes()).map(|_| ())
}

/// Such characters are in strings only, and none of them needs more than four digits.
fn escaped_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unseen(character) {
            let _ = write!(out, "\\u{:04x}", u32::from(character));
        } else {
            out.push(character);
        }
    }
    out
}

/// Writes a line, [`escaped`], to the standard error, which may be closed or full: there is nobody to tell then.
pub fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{}", escaped(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(escaped("a\tb\nc \u{e9} \u{3b5}"), "a\tb\nc \u{e9} \u{3b5}");
        assert_eq!(escaped("\u{1b}]0;x\u{7}\u{9b}31m\r"), r"\u{1b}]0;x\u{7}\u{9b}31m\u{d}");
        assert_eq!(escaped_json("\"\u{9b}\u{202e}\""), r#""\u009b\u202e""#);
        assert_eq!(escaped("x\u{202e}y\u{7f}"), r"x\u{202e}y\u{7f}");
    }
}
