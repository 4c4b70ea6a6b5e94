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

/// Adds to `cell` what `newer` has of the same one. A row that is in both is the newer one. The cell has diverged if one of its rows has.
pub(crate) fn join(cell: &mut Cell, newer: &Cell) {
    let planned = if cell.planned_rows.is_empty() { newer.planned_rows.clone() } else { cell.planned_rows.clone() };
    cell.diverged = cell.diverged.take().or_else(|| newer.diverged.clone());
    cell.result = match (cell.result.take(), &newer.result) {
        _ if cell.diverged.is_some() => None,
        (Some(own), Some(newer)) => Some(joined(own, newer, &planned)),
        (own, newer) => own.or_else(|| newer.clone()),
    };
    let is_there = |name: &String| rows_of(cell).any(|row| row.name == *name);
    let whole = cell.diverged.is_some() || planned.iter().all(is_there) || cell.planned_rows.is_empty();
    cell.planned_rows = if whole { Vec::new() } else { planned };
}

/// Whether no two rows of the same name differ in their figures.
pub(crate) fn agree(one: &Cell, other: &Cell) -> bool {
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
