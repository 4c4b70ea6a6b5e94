//! A cell that was run row by row, put together from its rows.

use crate::{Cell, CellId};
use hankel_trainer::results::{AdapterResult, RunResult};
use serde::{Deserialize, Serialize};

/// Contents of `cell.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CellFile {
    /// The cell.
    #[serde(flatten)]
    pub(crate) id: CellId,
    /// Of a run that is one row of it: the names of all its adapters, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) planned_rows: Vec<String>,
}

/// Adds to `cell` what `newer` has of the same one. A row that is in both is the newer one.
pub(crate) fn join(cell: &mut Cell, newer: &Cell) {
    let planned = if cell.planned_rows.is_empty() { newer.planned_rows.clone() } else { cell.planned_rows.clone() };
    cell.diverged = cell.diverged.take().or_else(|| newer.diverged.clone());
    cell.diverged_rows.retain(|name, _| rows_of(newer).all(|row| row.name != *name));
    for (name, error) in &newer.diverged_rows {
        cell.diverged_rows.insert(name.clone(), error.clone());
        if let Some(result) = &mut cell.result {
            result.rows.retain(|row| row.name != *name && row.derived_from() != Some(name));
        }
    }
    cell.result = match (cell.result.take(), &newer.result) {
        _ if cell.diverged.is_some() => None,
        (Some(own), Some(newer)) => Some(joined(own, newer, &planned)),
        (own, newer) => own.or_else(|| newer.clone()),
    };
    settle(cell);
}

/// Forgets which rows were planned once all of them are there.
pub(crate) fn settle(cell: &mut Cell) {
    let is_there = |name: &String| rows_of(cell).any(|row| row.name == *name) || cell.diverged_rows.contains_key(name);
    if cell.diverged.is_some() || cell.planned_rows.iter().all(is_there) {
        cell.planned_rows.clear();
    }
}

/// Whether no two rows of the same name differ in their figures, or in whether they have any.
pub(crate) fn agree(one: &Cell, other: &Cell) -> bool {
    let is_lost = |row: &AdapterResult, cell: &Cell| cell.diverged_rows.contains_key(&row.name);
    if rows_of(one).any(|row| is_lost(row, other)) || rows_of(other).any(|row| is_lost(row, one)) {
        return false;
    }
    let same = |row: &AdapterResult| {
        let twin = rows_of(other).find(|twin| twin.name == row.name);
        twin.is_none_or(|twin| twin.validation == row.validation && twin.test == row.test)
    };
    rows_of(one).all(same)
}

fn rows_of(cell: &Cell) -> impl Iterator<Item = &AdapterResult> {
    cell.result.iter().flat_map(|result| &result.rows)
}

fn joined(mut own: RunResult, newer: &RunResult, planned: &[String]) -> RunResult {
    own.rows.retain(|row| newer.rows.iter().all(|other| other.name != row.name));
    own.rows.extend(newer.rows.iter().cloned());
    // What was made of a row stays behind it.
    let base = |row: &AdapterResult| row.derived_from().unwrap_or(&row.name).to_owned();
    own.rows.sort_by_key(|row| planned.iter().position(|name| *name == base(row)).unwrap_or(planned.len()));
    own.wall_time_seconds += newer.wall_time_seconds;
    own.peak_memory_bytes = own.peak_memory_bytes.max(newer.peak_memory_bytes);
    own.peak_anonymous_bytes = own.peak_anonymous_bytes.max(newer.peak_anonymous_bytes);
    own.peak_device_bytes = own.peak_device_bytes.max(newer.peak_device_bytes);
    for file in &newer.data {
        if !own.data.contains(file) {
            own.data.push(file.clone());
        }
    }
    if let (Some(commits), Some(commit)) = (&mut own.environment.commit, &newer.environment.commit)
        && !commits.split(", ").any(|known| known == commit)
    {
        commits.push_str(", ");
        commits.push_str(commit);
    }
    own
}
