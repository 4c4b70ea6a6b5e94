//! Everything that reads somebody else's bytes, as functions of those bytes: what `tests/fuzz` throws random input at, and
//! what the tests give its corpus to.
//!
//! A reader must neither panic, nor run out of memory or time, whatever it gets; some check more. Each says whether it took
//! the input. An input of two files has a NUL byte between them, which the first, JSON, cannot have.

mod data;
mod models;
mod runs;
mod systems;

pub use systems::honest_certificate;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A reader by its name, which is that of its fuzz target and of its folder in the corpus.
pub struct Reader {
    /// The name.
    pub name: &'static str,
    /// Reads; whether the input was taken.
    pub read: fn(&[u8]) -> bool,
}

/// All of them.
pub const READERS: [Reader; 17] = [
    Reader { name: "adapter", read: systems::adapter },
    Reader { name: "certificate", read: systems::certificate },
    Reader { name: "chat_template", read: models::chat_template },
    Reader { name: "checkpoint", read: runs::checkpoint },
    Reader { name: "configuration", read: runs::configuration },
    Reader { name: "events", read: runs::events },
    Reader { name: "gguf", read: models::gguf },
    Reader { name: "gzip", read: data::gzip },
    Reader { name: "midi", read: data::midi },
    Reader { name: "model_config", read: models::config },
    Reader { name: "npz", read: systems::npz },
    Reader { name: "records", read: data::records },
    Reader { name: "safetensors", read: models::safetensors },
    Reader { name: "shards", read: models::shards },
    Reader { name: "sweep", read: runs::sweep },
    Reader { name: "system", read: systems::safetensors },
    Reader { name: "tokenizer", read: models::tokenizer },
];

/// Reads `bytes` by the reader `name`.
///
/// # Panics
/// When there is no such reader, or it has a fault.
pub fn read(name: &str, bytes: &[u8]) -> bool {
    let reader = READERS.iter().find(|reader| reader.name == name);
    (reader.unwrap_or_else(|| panic!("there is no reader {name}")).read)(bytes)
}

/// Calls `read` with a folder that holds these files and nothing else.
fn with_files<T>(files: &[(&str, &[u8])], read: impl FnOnce(&Path) -> T) -> T {
    thread_local! {
        static FOLDER: RefCell<TempDir> = RefCell::new(tempfile::tempdir().expect("a temporary folder"));
    }
    FOLDER.with_borrow(|folder| {
        let paths: Vec<PathBuf> = files.iter().map(|(name, _)| folder.path().join(name)).collect();
        for (path, (_, content)) in paths.iter().zip(files) {
            std::fs::write(path, content).expect("room for an input");
        }
        let result = read(folder.path());
        for path in paths {
            std::fs::remove_file(path).expect("what was written is there");
        }
        result
    })
}

/// The two files of an input.
fn two(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}
