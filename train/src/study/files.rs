//! The files of `docs/results`: one per experiment and scale, a cell a line.

use super::{Cell, SEED};
use crate::results::{RunResult, SCHEMA};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Significant digits of Hankel singular values in these files.
const DIGITS: usize = 4;

/// A file of results that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read or written.
    #[error("cannot use {}: {source}", path.display())]
    Access {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line of it is not a cell.
    #[error("{}, line {line}: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// It was written by a newer version.
    #[error("{}, line {line} has layout {found}, this version reads layouts up to {SCHEMA}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The layout it states.
        found: u32,
    },
}

fn access(path: &Path) -> impl FnOnce(std::io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError::Access { path, source }
}

/// Writes `DIR/EXPERIMENT-SCALE.jsonl` for each experiment among `cells`, in place of what was there, and gives their paths.
///
/// # Errors
/// When a file cannot be written.
pub fn write_results(cells: &[Cell], directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut files: BTreeMap<String, Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        files.entry(cell.place.directory()).or_default().push(cell);
    }
    fs::create_dir_all(directory).map_err(access(directory))?;
    let mut written = Vec::new();
    for (name, mut cells) in files {
        cells.sort_by_key(|cell| cell.place.order());
        let mut text = String::new();
        for cell in cells {
            let slim = Cell { result: cell.result.as_ref().map(slim), ..cell.clone() };
            text += &serde_json::to_string(&slim).expect("a result is JSON");
            text.push('\n');
        }
        let path = directory.join(format!("{name}.jsonl"));
        fs::write(&path, text).map_err(access(&path))?;
        written.push(path);
    }
    Ok(written)
}

/// What is kept of a result: no spectra twice, and no more digits of them than a figure shows.
fn slim(result: &RunResult) -> RunResult {
    let mut result = result.clone();
    for row in &mut result.rows {
        let truncated = row.truncated_from.is_some();
        for layer in &mut row.layers {
            if truncated {
                layer.hankel_singular_values.clear();
            }
            for value in &mut layer.hankel_singular_values {
                *value = format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(*value);
            }
        }
    }
    result.environment.cpu_features.clear();
    result
}

/// Reads all `*.jsonl` of a directory, in the order of their names; none when the directory is not there.
///
/// # Errors
/// When a file cannot be read, or a line is not a cell.
pub fn read_results(directory: &Path) -> Result<Vec<Cell>, FileError> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let mut paths: Vec<PathBuf> = entries.map_err(access(directory))?.iter().map(fs::DirEntry::path).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    let mut cells = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(access(&path))?;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let (line_number, at) = (number + 1, path.clone());
            let cell: Cell = serde_json::from_str(line).map_err(|source| FileError::Line {
                path: at.clone(),
                line: line_number,
                source,
            })?;
            let found = cell.result.as_ref().map_or(SCHEMA, |result| result.schema);
            if found > SCHEMA {
                return Err(FileError::Schema { path: at, line: line_number, found });
            }
            cells.push(cell);
        }
    }
    Ok(cells)
}

/// The seeds that `cells` have, each once.
pub(super) fn seeds(cells: &[&Cell]) -> usize {
    let mut seeds: Vec<&str> = cells.iter().filter_map(|cell| cell.place.axis(SEED)).collect();
    seeds.sort_unstable();
    seeds.dedup();
    seeds.len()
}
