//! The files of `docs/results`: one per experiment and scale, a cell a line.

use crate::rows::{join, settle};
use crate::settings::Seen;
use crate::{Cell, CellId, SEED};
use hankel_io::{Existing, Outputs, name};
use hankel_trainer::results::{RunResult, SCHEMA};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Significant digits of Hankel singular values in these files.
const DIGITS: usize = 4;

/// A file of results that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read or written, or the name of an experiment cannot be that of a file.
    #[error(transparent)]
    File(#[from] hankel_io::Error),
    /// A line of it is not a cell.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong.
        reason: serde_json::Error,
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
    /// Two cells that would be in it were run with different settings.
    #[error(
        "{}: {one} and {other} were run with different settings in `{part}`, and means over them would say nothing: leave one out, or write \
         to another directory",
        path.display()
    )]
    Settings {
        /// The file.
        path: PathBuf,
        /// A cell.
        one: String,
        /// The other.
        other: String,
        /// The part of their configurations that differs.
        part: String,
    },
}

/// Writes `DIR/EXPERIMENT-SCALE.jsonl` for each experiment among `cells`, and gives their paths. Cells that such a file has
/// already are replaced by those of the same grid point, and stay otherwise; of a cell that was run row by row, its rows.
///
/// # Errors
/// When a file cannot be written, one that is there cannot be read, an experiment has no name for a file, or its cells were run with different
/// settings: then none is written.
pub fn write_results(cells: &[Cell], directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut files: BTreeMap<String, Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        files.entry(cell.id.directory()).or_default().push(cell);
    }
    let (mut outputs, mut written) = (Outputs::new(), Vec::new());
    outputs.create_folder(directory)?;
    for (name, new) in files {
        let path = directory.join(name::component("the experiment and scale", &format!("{name}.jsonl"))?);
        let mut cells = if path.exists() { read_file(&path)? } else { Vec::new() };
        cells.retain(|cell| new.iter().all(|other| other.id != cell.id || !other.planned_rows.is_empty()));
        check_settings(cells.iter().chain(new.iter().copied()), &path)?;
        for &cell in &new {
            let cell = Cell { result: cell.result.as_ref().map(slim), ..cell.clone() };
            match cells.iter_mut().find(|known| known.id == cell.id) {
                Some(known) => join(known, &cell),
                None => cells.push(cell),
            }
        }
        cells.iter_mut().for_each(settle);
        cells.sort_by_key(|cell| cell.id.order());
        let lines = cells.iter().map(|cell| serde_json::to_string(cell).expect("a result is JSON") + "\n");
        outputs.file(&path, lines.collect::<String>().as_bytes(), Existing::Replace)?;
        written.push(path);
    }
    outputs.commit()?;
    Ok(written)
}

/// Refuses cells of one file that were run with different settings, as far as these are on record.
fn check_settings<'a>(cells: impl Iterator<Item = &'a Cell>, path: &Path) -> Result<(), FileError> {
    let name = |id: &CellId| match id.describe(&[]) {
        axes if axes.is_empty() => "one cell".to_owned(),
        axes => axes,
    };
    let mut seen = Seen::default();
    for cell in cells {
        if let Some((part, one)) = seen.difference(&cell.id, &cell.settings) {
            return Err(FileError::Settings { path: path.to_owned(), one, other: name(&cell.id), part });
        }
        seen.add(&cell.id, &cell.settings, &name(&cell.id));
    }
    Ok(())
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

/// Reads all `*.jsonl` of a directory, in the order of their names. Cells of which rows are not there yet are left out: nothing follows from them.
///
/// # Errors
/// When a file cannot be read, or a line is not a cell.
pub fn read_results(directory: &Path) -> Result<Vec<Cell>, FileError> {
    Ok(read_all(directory)?.into_iter().filter(|cell| cell.planned_rows.is_empty()).collect())
}

/// The cells in the files of a directory that [`read_results`] leaves out, since rows of them are not there yet.
///
/// # Errors
/// As there.
pub fn incomplete_results(directory: &Path) -> Result<Vec<Cell>, FileError> {
    Ok(read_all(directory)?.into_iter().filter(|cell| !cell.planned_rows.is_empty()).collect())
}

fn read_all(directory: &Path) -> Result<Vec<Cell>, FileError> {
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut paths: Vec<PathBuf> =
        entries.map_err(hankel_io::Error::io("read", directory))?.iter().map(fs::DirEntry::path).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    let files = paths.iter().map(|path| read_file(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(files.into_iter().flatten().collect())
}

fn read_file(path: &Path) -> Result<Vec<Cell>, FileError> {
    let text = hankel_io::input::read_to_string(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(index, line)| read_line(line, path, index + 1)).collect()
}

fn read_line(text: &str, path: &Path, line: usize) -> Result<Cell, FileError> {
    let path = path.to_owned();
    let cell: Cell = match serde_json::from_str(text) {
        Ok(cell) => cell,
        Err(reason) => return Err(FileError::Line { path, line, reason }),
    };
    match cell.result.as_ref().map_or(SCHEMA, |result| result.schema) {
        found if found > SCHEMA => Err(FileError::Schema { path, line, found }),
        _ => Ok(cell),
    }
}

/// The seeds that `cells` have, each once.
pub(super) fn seeds(cells: &[&Cell]) -> usize {
    let mut seeds: Vec<&str> = cells.iter().filter_map(|cell| cell.id.axis(SEED)).collect();
    seeds.sort_unstable();
    seeds.dedup();
    seeds.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CellId;
    use crate::testing::result;

    fn cell(seed: u32, seconds: f64) -> Cell {
        let axes = vec![("seed".to_owned(), seed.to_string())];
        let result = RunResult { wall_time_seconds: seconds, ..result() };
        let id = CellId { experiment: "e".into(), scale: Some("small".into()), axes };
        Cell { id, result: Some(result), ..Cell::default() }
    }

    #[test]
    fn an_experiment_that_leads_elsewhere_is_refused_and_nothing_written() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("deep/results");
        for name in ["../../escaped", "/tmp/escaped", "a/b", "x\0y"] {
            let named = |scale: Option<&str>, experiment: &str| {
                let id = CellId { experiment: experiment.into(), scale: scale.map(str::to_owned), axes: Vec::new() };
                Cell { id, ..cell(0, 1.0) }
            };
            for bad in [named(None, name), named(Some(name), "e")] {
                assert!(matches!(write_results(&[cell(0, 1.0), bad], &directory), Err(FileError::File(_))), "{name}");
                assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
            }
        }
    }

    #[test]
    fn new_cells_join_those_that_are_there() {
        let directory = tempfile::tempdir().unwrap();
        write_results(&[cell(1, 1.0), cell(0, 2.0)], directory.path()).unwrap();
        write_results(&[cell(2, 3.0), cell(1, 4.0)], directory.path()).unwrap();
        let cells = read_results(directory.path()).unwrap();
        let seconds: Vec<f64> = cells.iter().map(|cell| cell.result.as_ref().unwrap().wall_time_seconds).collect();
        assert_eq!(seconds, [2.0, 4.0, 3.0]);
        let file = directory.path().join("e-small.jsonl");
        fs::write(&file, "{}\n").unwrap();
        let before = fs::read(&file).unwrap();
        assert!(write_results(&[cell(3, 1.0)], directory.path()).is_err(), "what cannot be read is not replaced");
        assert_eq!(fs::read(&file).unwrap(), before);
        assert!(matches!(read_results(&directory.path().join("none")), Err(FileError::File(_))));
    }

    /// One row of three.
    fn row(seed: u32, name: &str, seconds: f64) -> Cell {
        let mut cell = cell(seed, seconds);
        cell.result.as_mut().unwrap().rows.retain(|row| row.name == name || row.derived_from() == Some(name));
        cell.planned_rows = ["none", "hrm", "lora"].map(str::to_owned).into();
        cell.row_seconds = BTreeMap::from([(name.to_owned(), seconds)]);
        cell
    }

    #[test]
    fn writing_an_incomplete_cell_again_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            write_results(&[row(0, name, 2.0)], directory.path()).unwrap();
            fs::read_to_string(directory.path().join("e-small.jsonl")).unwrap()
        };
        write("hrm");
        let before = write("lora");
        assert_eq!(write("lora"), before);
        assert_eq!(write("hrm"), before);
        assert!(read_results(directory.path()).unwrap().is_empty());
        let incomplete = incomplete_results(directory.path()).unwrap();
        assert_eq!(incomplete[0].result.as_ref().unwrap().wall_time_seconds, 4.0);
        write("none");
        let cells = read_results(directory.path()).unwrap();
        let result = cells[0].result.as_ref().unwrap();
        let names: Vec<&str> = result.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!((names, result.wall_time_seconds), (vec!["none", "hrm", "hrm-truncated", "lora"], 6.0));
        assert!(cells[0].row_seconds.is_empty() && incomplete_results(directory.path()).unwrap().is_empty());
    }

    #[test]
    fn cells_of_different_settings_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let with = |seed: u32, rate: &str| {
            let settings = BTreeMap::from([("train".to_owned(), rate.to_owned())]);
            Cell { settings, ..cell(seed, 1.0) }
        };
        // Those of earlier versions are with all.
        write_results(&[cell(0, 1.0), with(1, "a")], directory.path()).unwrap();
        let message = write_results(&[with(2, "b")], directory.path()).unwrap_err().to_string();
        assert!(message.contains("seed 1 and seed 2 were run with different settings in `train`"), "{message}");
        assert_eq!(read_results(directory.path()).unwrap().len(), 2);
        // All anew.
        write_results(&[with(1, "b"), with(2, "b")], directory.path()).unwrap();
        assert_eq!(read_results(directory.path()).unwrap().len(), 3);
    }
}
