//! A cell that was run row by row, put together from its rows.

use crate::{CELL_FILE, Cell, CellId};
use anyhow::{Context, Result};
use hankel_trainer::results::{AdapterResult, DataFile, RunResult, Scores};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Contents of `cell.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CellFile {
    /// The cell.
    #[serde(flatten)]
    pub(crate) id: CellId,
    /// Of a run that is one row of it: the names of all its adapters, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) planned_rows: Vec<String>,
    /// Fingerprints of what it is run with; none of one that was begun before there were any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) settings: BTreeMap<String, String>,
}

/// What a sweep says of the cell in a run directory, if it made it.
///
/// # Errors
/// When it cannot be understood.
pub(crate) fn cell_file(run: &Path) -> Result<Option<CellFile>> {
    read(&run.join(CELL_FILE))
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = hankel_io::input::read_to_string(path)?;
    serde_json::from_str(&text).with_context(|| format!("{} is not what a sweep writes", path.display())).map(Some)
}

/// Adds to `cell` what `newer` has of the same one, and the rows that were planned when that was run. A row that is in both is the newer one.
/// Whoever has joined all settles.
pub(crate) fn join(cell: &mut Cell, newer: &Cell) {
    let (seconds, row_seconds) = seconds(cell, newer);
    cell.planned_rows = united(&cell.planned_rows, &newer.planned_rows);
    for (part, fingerprint) in &newer.settings {
        cell.settings.entry(part.clone()).or_insert_with(|| fingerprint.clone());
    }
    // Of rows that were run by themselves more is known.
    let has_rows = |cell: &Cell| cell.result.is_some() || !cell.diverged_rows.is_empty();
    let is_lost = !has_rows(cell) && !has_rows(newer);
    cell.diverged = cell.diverged.take().or_else(|| newer.diverged.clone()).filter(|_| is_lost);
    cell.diverged_rows.retain(|name, _| rows_of(newer).all(|row| row.name != *name));
    for (name, error) in &newer.diverged_rows {
        cell.diverged_rows.insert(name.clone(), error.clone());
        if let Some(result) = &mut cell.result {
            result.rows.retain(|row| row.name != *name && row.derived_from() != Some(name));
        }
    }
    cell.result = match (cell.result.take(), &newer.result) {
        _ if cell.diverged.is_some() => None,
        (Some(own), Some(newer)) => Some(joined(own, newer, &cell.planned_rows)),
        (own, newer) => own.or_else(|| newer.clone()),
    };
    if let Some(result) = &mut cell.result {
        result.wall_time_seconds = seconds;
    }
    cell.row_seconds = row_seconds;
}

/// Forgets which rows were planned once all of them are there.
pub(crate) fn settle(cell: &mut Cell) {
    if cell.diverged.is_some() || cell.planned_rows.iter().all(|name| is_there(cell, name)) {
        cell.planned_rows.clear();
        cell.row_seconds.clear();
    }
}

/// Names of its rows, those included that came to nothing.
pub(crate) fn names(cell: &Cell) -> BTreeSet<&str> {
    rows_of(cell).map(|row| row.name.as_str()).chain(cell.diverged_rows.keys().map(String::as_str)).collect()
}

/// Whether no two rows of the same name differ in their figures, or in whether they have any.
pub(crate) fn agree(one: &Cell, other: &Cell) -> bool {
    let is_lost = |row: &AdapterResult, cell: &Cell| cell.diverged_rows.contains_key(&row.name);
    if rows_of(one).any(|row| is_lost(row, other)) || rows_of(other).any(|row| is_lost(row, one)) {
        return false;
    }
    let same = |row: &AdapterResult| {
        let twin = rows_of(other).find(|twin| twin.name == row.name);
        twin.is_none_or(|twin| {
            let tests = match (&twin.test, &row.test) {
                (Some(one), Some(other)) => same_bits(one, other),
                (one, other) => one.is_none() && other.is_none(),
            };
            tests && same_bits(&twin.validation, &row.validation)
        })
    };
    rows_of(one).all(same)
}

/// Whether `other` has all rows that `one` has, those included that came to nothing.
pub(crate) fn is_within(one: &Cell, other: &Cell) -> bool {
    let mut names = rows_of(one).map(|row| &row.name).chain(one.diverged_rows.keys());
    names.all(|name| is_there(other, name))
}

fn rows_of(cell: &Cell) -> impl Iterator<Item = &AdapterResult> {
    cell.result.iter().flat_map(|result| &result.rows)
}

/// Whether a row has figures, or came to nothing.
fn is_there(cell: &Cell, name: &str) -> bool {
    rows_of(cell).any(|row| row.name == name) || cell.diverged_rows.contains_key(name)
}

/// Whether two evaluations came to the same, to the last bit. A figure that is no number is the same as another.
fn same_bits(one: &Scores, other: &Scores) -> bool {
    let bits = |value: f64| if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
    let figures = |scores: &Scores| -> Vec<(String, u64)> {
        scores.metrics.iter().map(|(name, value)| (name.clone(), bits(*value))).collect()
    };
    (one.tokens, one.sequences) == (other.tokens, other.sequences) && figures(one) == figures(other)
}

/// The rows of two plans. The longer one has the order.
fn united(one: &[String], other: &[String]) -> Vec<String> {
    let (long, short) = if other.len() > one.len() { (other, one) } else { (one, other) };
    let more = short.iter().filter(|name| !long.contains(name));
    long.iter().chain(more).cloned().collect()
}

/// The seconds of two parts of a cell together, and of each row where they are known: a row counts once, however often it is joined.
fn seconds(cell: &Cell, newer: &Cell) -> (f64, BTreeMap<String, f64>) {
    let beside = |rows: &Cell, others: &Cell| -> f64 {
        rows.row_seconds.iter().filter(|(name, _)| !is_there(others, name)).map(|(_, seconds)| seconds).sum()
    };
    // Of a run of all rows, and of what was joined by earlier versions, there is the sum alone.
    let sum = |cell: &Cell| cell.result.as_ref().filter(|_| cell.row_seconds.is_empty()).map(|r| r.wall_time_seconds);
    match (sum(cell), sum(newer)) {
        (Some(sum), _) => (sum + beside(newer, cell), BTreeMap::new()),
        (None, Some(sum)) => (sum + beside(cell, newer), BTreeMap::new()),
        (None, None) => {
            let mut all = cell.row_seconds.clone();
            all.extend(newer.row_seconds.iter().map(|(name, seconds)| (name.clone(), *seconds)));
            (all.values().sum(), all)
        }
    }
}

fn joined(mut own: RunResult, newer: &RunResult, planned: &[String]) -> RunResult {
    own.rows.retain(|row| newer.rows.iter().all(|other| other.name != row.name));
    own.rows.extend(newer.rows.iter().cloned());
    // What was made of a row stays behind it.
    let base = |row: &AdapterResult| row.derived_from().unwrap_or(&row.name).to_owned();
    own.rows.sort_by_key(|row| planned.iter().position(|name| *name == base(row)).unwrap_or(planned.len()));
    own.peak_memory_bytes = own.peak_memory_bytes.max(newer.peak_memory_bytes);
    own.peak_anonymous_bytes = own.peak_anonymous_bytes.max(newer.peak_anonymous_bytes);
    own.peak_device_bytes = own.peak_device_bytes.max(newer.peak_device_bytes);
    for (own, newer) in [(&mut own.data, &newer.data), (&mut own.model_files, &newer.model_files)] {
        let more: Vec<DataFile> = newer.iter().filter(|file| !own.contains(file)).cloned().collect();
        own.extend(more);
    }
    let (here, there) = (&mut own.environment, &newer.environment);
    add_to_list(&mut here.cpu, &there.cpu);
    add_to_list(&mut here.device, &there.device);
    if let (Some(commits), Some(commit)) = (&mut here.commit, &there.commit) {
        add_to_list(commits, commit);
    }
    own
}

/// Rows of a cell may come from several machines and commits: it has the list of them.
fn add_to_list(list: &mut String, more: &str) {
    for item in more.split(", ").filter(|item| !item.is_empty()) {
        if !list.split(", ").any(|known| known == item) {
            if !list.is_empty() {
                list.push_str(", ");
            }
            list.push_str(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::result;

    /// What a run of one row leaves.
    fn row(name: &str, planned: &[&str], seconds: f64) -> Cell {
        let mut result = result();
        result.rows.retain(|row| row.name == name || row.derived_from() == Some(name));
        result.wall_time_seconds = seconds;
        Cell {
            planned_rows: planned.iter().map(|name| (*name).to_owned()).collect(),
            row_seconds: BTreeMap::from([(name.to_owned(), seconds)]),
            result: Some(result),
            ..Cell::default()
        }
    }

    fn names(cell: &Cell) -> Vec<&str> {
        rows_of(cell).map(|row| row.name.as_str()).collect()
    }

    #[test]
    fn a_row_that_was_planned_later_is_of_the_cell() {
        let old = ["hrm", "lora"];
        let new = ["none", "hrm", "lora"];
        for later in [&["none", "hrm", "lora"], &["lora", "none", "hrm"], &["hrm", "lora", "none"]] {
            let planned = |name: &str| if name == "none" { &new[..] } else { &old[..] };
            let rows = later.map(|name| row(name, planned(name), 1.0));
            let mut cell = rows[0].clone();
            join(&mut cell, &rows[1]);
            join(&mut cell, &rows[2]);
            settle(&mut cell);
            assert_eq!(names(&cell), ["none", "hrm", "hrm-truncated", "lora"], "{later:?}");
            assert!(cell.planned_rows.is_empty() && cell.result.unwrap().wall_time_seconds == 3.0);
        }
        // As long as it is not there, the cell lacks it.
        let mut cell = row("hrm", &old, 1.0);
        join(&mut cell, &row("lora", &new, 1.0));
        settle(&mut cell);
        assert_eq!(cell.planned_rows, new);
    }

    #[test]
    fn a_cell_names_every_machine_and_commit_of_its_rows() {
        let planned = ["hrm", "lora", "none"];
        let mut cell = Cell::default();
        let runs = [("hrm", "", "cpu", "1a"), ("lora", "Xeon", "gpu (H100)", "2b"), ("none", "Xeon", "cpu", "1a, 3c")];
        for (name, cpu, device, commit) in runs {
            let mut other = row(name, &planned, 1.0);
            let e = &mut other.result.as_mut().unwrap().environment;
            (e.cpu, e.device, e.commit) = (cpu.into(), device.into(), Some(commit.into()));
            join(&mut cell, &other);
        }
        let e = cell.result.unwrap().environment;
        assert_eq!((&*e.cpu, &*e.device, e.commit.as_deref()), ("Xeon", "cpu, gpu (H100)", Some("1a, 2b, 3c")));
    }

    #[test]
    fn a_row_counts_its_seconds_once() {
        let total = |cell: &Cell| cell.result.as_ref().unwrap().wall_time_seconds;
        let planned = ["none", "hrm", "lora"];
        let mut cell = row("hrm", &planned, 2.0);
        for _ in 0..3 {
            join(&mut cell, &row("hrm", &planned, 2.0));
            join(&mut cell, &row("lora", &planned, 3.0));
        }
        assert_eq!(total(&cell), 5.0);
        // A file of an earlier version has the sum alone.
        cell.row_seconds.clear();
        for _ in 0..2 {
            join(&mut cell, &row("lora", &planned, 3.0));
            join(&mut cell, &row("none", &planned, 1.0));
        }
        assert_eq!(total(&cell), 6.0);
        // A run of all rows beside them.
        let whole = Cell { result: Some(RunResult { wall_time_seconds: 4.0, ..result() }), ..Cell::default() };
        let mut cell = row("hrm", &planned, 2.0);
        join(&mut cell, &whole);
        assert_eq!(total(&cell), 4.0);
    }

    #[test]
    fn figures_that_are_no_numbers_are_the_same() {
        let with = |loss: f64| {
            let mut cell = row("lora", &["lora"], 1.0);
            let scores = &mut cell.result.as_mut().unwrap().rows[0].validation;
            scores.metrics.insert("loss".to_owned(), loss);
            cell
        };
        assert!(agree(&with(f64::NAN), &with(f64::NAN)) && agree(&with(0.5), &with(0.5)));
        assert!(!agree(&with(f64::NAN), &with(0.5)) && !agree(&with(0.5), &with(0.500_000_1)));
    }
}
