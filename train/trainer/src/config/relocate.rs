//! The files that a configuration names: where they are looked for, and what is said of those that are nowhere.

use crate::settings::ConfigError;
use crate::settings::tree::{Entry, Node, Value};
use std::path::{Path, PathBuf};

/// Keys whose values are files or directories.
pub(super) const KEYS: [&str; 6] = ["path", "validation_path", "test_path", "documents", "tokenizer", "model"];
/// What has names of its own inside: those of variables of a chat template.
const OTHERS: &str = "chat_template_kwargs";
/// Those of a task's data, which are not read before the run begins.
const DATA: [&str; 4] = ["path", "validation_path", "test_path", "documents"];

/// Where `path` of the configuration `file` is: in the working directory, or else beside the configuration.
pub(super) fn find(path: &Path, file: &Path) -> PathBuf {
    let beside = || file.parent().map(|folder| folder.join(path)).filter(|found| found.exists());
    let found = if path.exists() || path.as_os_str().is_empty() { None } else { beside() };
    found.unwrap_or_else(|| path.to_owned())
}

/// Puts what `find` gives in the place of every file that is named in `node`.
pub(super) fn relocate(node: &mut Node, find: &dyn Fn(&Path) -> PathBuf) {
    match &mut node.value {
        Value::Table(table) => table.0.iter_mut().for_each(|entry| {
            if KEYS.contains(&entry.key.as_str()) {
                rename(&mut entry.node, find);
            } else if entry.key != OTHERS {
                relocate(&mut entry.node, find);
            }
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| relocate(item, find)),
        _ => {}
    }
}

/// A configuration without the files that it names.
pub fn without_places(table: toml::Table) -> toml::Table {
    let inside = |(key, value): (String, toml::Value)| match value {
        _ if KEYS.contains(&key.as_str()) => None,
        value if key == OTHERS => Some((key, value)),
        value => Some((key, without_places_in(value))),
    };
    table.into_iter().filter_map(inside).collect()
}

fn without_places_in(value: toml::Value) -> toml::Value {
    match value {
        toml::Value::Table(table) => without_places(table).into(),
        toml::Value::Array(items) => items.into_iter().map(without_places_in).collect::<Vec<_>>().into(),
        other => other,
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

/// The first data file that the configuration `root`, in `file`, names and that is nowhere.
pub(super) fn missing(root: &Node, file: &Path) -> Option<ConfigError> {
    let Value::Table(sections) = &root.value else { return None };
    ["task", "pretrain", "forgetting"].iter().find_map(|key| in_section(sections.get(key)?, key, file))
}

fn in_section(node: &Node, at: &str, file: &Path) -> Option<ConfigError> {
    let Value::Table(table) = &node.value else { return None };
    table.0.iter().filter(|entry| entry.key != OTHERS).find_map(|Entry { key, node, .. }| {
        let inside = format!("{at}.{key}");
        if DATA.contains(&key.as_str()) { nowhere(node, &inside, file) } else { in_section(node, &inside, file) }
    })
}

fn nowhere(node: &Node, key: &str, file: &Path) -> Option<ConfigError> {
    let path = match &node.value {
        Value::String(text) => Path::new(text),
        Value::Array(items) => return items.iter().find_map(|item| nowhere(item, key, file)),
        _ => return None,
    };
    if find(path, file).exists() {
        return None;
    }
    let here = std::env::current_dir().unwrap_or_default();
    let place = here.join(path);
    let beside = file.parent().map(|folder| here.join(folder).join(path)).filter(|beside| *beside != place);
    let beside = beside.map_or_else(String::new, |beside| format!(" and no {}", beside.display()));
    let message = format!(
        "`{key}` names {}, but there is no {}{beside}: name one that is there (docs/data.md says where to get data sets)",
        path.display(),
        place.display()
    );
    Some(ConfigError { of_files: true, ..ConfigError::new(Some(node.origin.clone()), message) })
}
