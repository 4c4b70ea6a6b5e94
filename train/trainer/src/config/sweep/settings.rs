//! Fingerprints of what cells have in common: those of a sweep that were run with the same settings have the same.
//!
//! They are of what is written in the file, its scale and `--set`, without the keys that axes set. Defaults are not written out: many
//! follow from keys that an axis may set.

use super::{Axis, Choice};
use crate::config::read::TOP_LEVEL;
use crate::config::relocate;
use crate::format::hexadecimal;
use crate::settings::tree::{Entry, Node, Table, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// Keys that say what a run is called and where it computes.
const OF_THE_RUN: [&str; 3] = ["name", "device", "gpu_memory"];
/// Keys that say what is logged, stored and held at once. No figure follows from them.
const WITHOUT_EFFECT: [&str; 6] =
    ["log_every", "read_every", "checkpoint_every", "keep_checkpoints", "micro_batch_size", "eval_batch_size"];

/// The fingerprints of the configuration `root` of the cell that has made a `choice` on each of the `axes`; `named` are these by their
/// short names, with labels.
pub(super) fn fingerprints(
    root: &Node,
    axes: &[Axis],
    named: &[(String, String)],
    choice: &[&Choice],
) -> BTreeMap<String, String> {
    let mut root = root.clone();
    for path in axes.iter().flat_map(|axis| &axis.keys) {
        remove(&mut root, &path.split('.').map(str::trim).collect::<Vec<_>>());
    }
    let empty = Table::default();
    let table = if let Value::Table(table) = &root.value { table } else { &empty };
    let mut all = BTreeMap::new();
    for key in TOP_LEVEL.iter().copied().filter(|key| !OF_THE_RUN.contains(key)) {
        match (key, table.get(key).map(|node| &node.value)) {
            ("adapter", Some(Value::Array(adapters))) => {
                let named = adapters.iter().enumerate().map(|(index, adapter)| (adapter.label(index), adapter));
                all.extend(
                    named.map(|(name, adapter)| (format!("adapter.{name}"), hash(&written(key, &adapter.value)))),
                );
            }
            ("adapter", _) => {}
            // One that is not there is as one without keys.
            (_, value) => {
                let text = value.map_or_else(|| "{}".to_owned(), |value| written(key, value));
                all.insert(key.to_owned(), hash(&text));
            }
        }
    }
    for ((axis, (name, label)), value) in axes.iter().zip(named).zip(choice) {
        // Other values are their labels.
        if value.settings.iter().any(|(path, _)| *path != axis.name) {
            all.insert(format!("{name}={label}"), hash(&of_choice(&value.settings)));
        }
    }
    all
}

/// What a value of an axis sets, in one way.
fn of_choice(settings: &[(String, Node)]) -> String {
    let line = |(path, node): &(String, Node)| {
        let key = path.rsplit('.').next().unwrap_or_default();
        format!("{path}={}", written(key, &node.value))
    };
    let mut lines: Vec<String> = settings.iter().map(line).collect();
    lines.sort();
    lines.join("\n")
}

/// The value of `key` in one way, whatever the order of its keys.
fn written(key: &str, value: &Value) -> String {
    match value {
        // The same file is in another directory elsewhere.
        Value::String(text) if relocate::KEYS.contains(&key) => {
            format!("\"{}\"", Path::new(text).file_name().unwrap_or_default().display())
        }
        Value::String(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        // 1.0 is written as 1.
        Value::Float(number) => number.to_string(),
        Value::Boolean(value) => value.to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| written(key, &item.value)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Table(table) => {
            let entries = table.0.iter().filter(|entry| !WITHOUT_EFFECT.contains(&entry.key.as_str()));
            let line = |Entry { key, node, .. }: &Entry| (key.clone(), written(key, &node.value));
            let mut lines: Vec<(String, String)> = entries.map(line).filter(|(_, value)| value != "{}").collect();
            lines.sort();
            let lines: Vec<String> = lines.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("{{{}}}", lines.join(","))
        }
    }
}

fn hash(text: &str) -> String {
    hexadecimal(&Sha256::digest(text.as_bytes())[..8])
}

/// Takes the key at `path` out, if it is there.
fn remove(node: &mut Node, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    match &mut node.value {
        Value::Table(table) if rest.is_empty() => {
            table.remove(first);
        }
        Value::Table(table) => {
            if let Some(entry) = table.0.iter_mut().find(|entry| entry.key == *first) {
                remove(&mut entry.node, rest);
            }
        }
        Value::Array(items) => {
            let named = items.iter().enumerate().position(|(index, item)| item.label(index) == *first);
            let place = named.or_else(|| first.parse().ok());
            if let Some(item) = place.and_then(|index: usize| items.get_mut(index)) {
                remove(item, rest);
            }
        }
        _ => {}
    }
}
