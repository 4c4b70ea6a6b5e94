//! The files that a run's configuration names, found from wherever the run is looked at.

use crate::settings::tree::{Node, Value};
use std::path::{Path, PathBuf};

/// Keys whose values are files or directories.
const KEYS: [&str; 6] = ["path", "validation_path", "test_path", "documents", "tokenizer", "model"];

/// Puts what `find` gives in the place of every file that is named in `node`.
pub(super) fn relocate(node: &mut Node, find: &dyn Fn(&Path) -> PathBuf) {
    match &mut node.value {
        Value::Table(table) => table.0.iter_mut().for_each(|entry| {
            if KEYS.contains(&entry.key.as_str()) {
                rename(&mut entry.node, find);
            } else {
                relocate(&mut entry.node, find);
            }
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| relocate(item, find)),
        _ => {}
    }
}

fn rename(node: &mut Node, find: &dyn Fn(&Path) -> PathBuf) {
    match &mut node.value {
        // What is not text is refused where it is read.
        Value::String(text) => *text = find(Path::new(text)).to_string_lossy().into_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, find)),
        _ => {}
    }
}
