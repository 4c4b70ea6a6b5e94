//! Cells from run directories.

use crate::Cell;
use crate::rows::{CellFile, cell_file, read};
use crate::sweep::Failure;
use anyhow::{Context, Result, bail};
use hankel_trainer::results::RunResult;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Levels of directories between what is given and a run: a machine, an experiment, a cell, a row of it.
const DEPTH: usize = 4;

/// The run directories among and below `given`, each once: a run itself, a sweep's directory, or one with several of them.
///
/// # Errors
/// When a directory cannot be read, or has no run in it.
pub(crate) fn run_directories(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for path in given {
        let before = found.len();
        descend(path, DEPTH, &mut found)?;
        if found.len() == before {
            bail!("{} is not a run directory, and has none in it", path.display());
        }
    }
    found.retain(|path| seen.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
    Ok(found)
}

fn descend(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    if ["result.json", "metrics.jsonl"].iter().any(|mark| path.join(mark).is_file()) {
        found.push(path.to_owned());
        return Ok(());
    }
    if depth == 0 || !path.is_dir() {
        return Ok(());
    }
    let unreadable = || format!("cannot read {}", path.display());
    let entries =
        fs::read_dir(path).with_context(unreadable)?.collect::<Result<Vec<_>, _>>().with_context(unreadable)?;
    let mut below: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).filter(|path| path.is_dir()).collect();
    below.sort();
    below.iter().try_for_each(|path| descend(path, depth - 1, found))
}

/// The cell of a run directory, with the run's `result`; `None` when no sweep made it, or it is neither finished nor diverged. Of a run of one
/// row it is what that adds to its cell ([`crate::rows::join`]).
///
/// # Errors
/// When a file of the sweep cannot be understood.
pub(crate) fn cell_of(run: &Path, result: Option<&RunResult>) -> Result<Option<Cell>> {
    let Some(CellFile { id, planned_rows, settings }) = cell_file(run)? else { return Ok(None) };
    let failure = read::<Failure>(&run.join("failed.json"))?;
    let lost = failure.filter(|failure| failure.diverged.is_some() && result.is_none()).map(|failure| failure.error);
    if result.is_none() && lost.is_none() {
        return Ok(None);
    }
    let mut cell = Cell { id, planned_rows, settings, result: result.cloned(), ..Cell::default() };
    let of_run = cell.result.iter_mut().flat_map(|result| result.diverged.drain(..));
    cell.diverged_rows = of_run.map(|lost| (lost.name, lost.error)).collect();
    // A row has a directory of its name.
    let whole = run.canonicalize().unwrap_or_else(|_| run.to_owned());
    let name = whole.file_name().and_then(OsStr::to_str).filter(|_| !cell.planned_rows.is_empty());
    match (name, lost) {
        (Some(name), Some(error)) => cell.diverged_rows = BTreeMap::from([(name.to_owned(), error)]),
        (_, lost) => cell.diverged = lost,
    }
    if let (Some(name), Some(result)) = (name, result) {
        cell.row_seconds.insert(name.to_owned(), result.wall_time_seconds);
    }
    Ok(Some(cell))
}
