//! Names that come from files and become names of files.

use crate::{Error, Result};
use std::path::PathBuf;

/// The longest name that common file systems take, in bytes.
const LONGEST: usize = 255;

/// `name`, if it names one file or folder and nothing outside of the one it will lie in. `what` says in an error what was
/// named and where.
///
/// # Errors
/// When it is empty, too long, `.`, `..`, or holds a slash, a backslash or a NUL.
pub fn component<'a>(what: &str, name: &'a str) -> Result<&'a str> {
    match problem(name) {
        None => Ok(name),
        Some(reason) => Err(refused(what, name, "the name of a file", reason)),
    }
}

/// `name`, with slashes between its parts, as a path that stays within the folder that it is relative to.
///
/// # Errors
/// When one of its parts is none for [`component`].
pub fn relative(what: &str, name: &str) -> Result<PathBuf> {
    match name.split('/').find_map(problem) {
        None => Ok(name.split('/').collect()),
        Some(reason) => Err(refused(what, name, "a path within a folder", reason)),
    }
}

fn refused(what: &str, name: &str, use_as: &'static str, reason: &'static str) -> Error {
    Error::Name { what: what.to_owned(), name: name.to_owned(), use_as, reason }
}

fn problem(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("it is empty"),
        "." | ".." => Some("it leads elsewhere"),
        _ if name.contains(['/', '\\']) => Some("it holds a slash"),
        _ if name.contains('\0') => Some("it holds a NUL"),
        // `C:` leads elsewhere on Windows.
        _ if cfg!(windows) && name.contains(':') => Some("it holds a colon"),
        _ if name.len() > LONGEST => Some("it is longer than 255 bytes"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_folder() {
        for name in ["hrm", "hrm-epsilon-0.05", "...", "~", "a b", "caf\u{e9}", ".hidden"] {
            assert_eq!(component("stage", name).unwrap(), name);
        }
        let long = "x".repeat(256);
        for name in ["", ".", "..", "/etc/passwd", "../../escaped", "a/b", "a\\..\\b", "x\0y", &long] {
            let message = component("the stage in run/metrics.jsonl", name).unwrap_err().to_string();
            assert!(message.starts_with("the stage in run/metrics.jsonl "), "{message}");
        }
    }

    #[test]
    fn paths_stay_below_their_folder() {
        assert_eq!(relative("file", "2018/one.midi").unwrap(), PathBuf::from("2018").join("one.midi"));
        for name in
            ["", "/2018/one.midi", "../one.midi", "2018/../../one.midi", "2018//one.midi", "./one.midi", "2018/"]
        {
            assert!(relative("file", name).is_err(), "{name}");
        }
    }
}
