//! The files of MAESTRO: a table of pieces with their splits, and a MIDI file for each.

use super::events::{encode, quantize};
use super::midi;
use crate::results::{DataFile, Split};
use crate::tasks::{TaskError, file};
use hankel_io::name;
use rayon::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};

const KEY: &str = "task.path";
/// Columns that name the MIDI file, the first one that is there: a part of the data, and the whole as published.
const FILE_COLUMNS: [&str; 2] = ["file", "midi_filename"];
const SPLIT_COLUMN: &str = "split";

/// The pieces of each split as tokens.
pub(super) struct Archive {
    /// The table.
    pub table: PathBuf,
    /// Training, validation, test.
    pub pieces: [Vec<Vec<u16>>; 3],
    /// The table, and all MIDI files as one entry.
    pub files: Vec<DataFile>,
}

/// A line of the table.
struct Entry {
    line: usize,
    split: Split,
    file: String,
}

impl Archive {
    /// Reads the pieces of `splits` that a table lists: `path` is it, or the directory in which it lies.
    ///
    /// # Errors
    /// When there is no such table, or a file is missing or damaged.
    pub(super) fn open(path: &Path, splits: &[Split]) -> Result<Self, TaskError> {
        let (table, entries, of_table) = find(path)?;
        let root = table.parent().unwrap_or(Path::new(""));
        let entries: Vec<Entry> = entries.into_iter().filter(|entry| splits.contains(&entry.split)).collect();
        let read = |entry: &Entry| {
            let explain = |reason: String| {
                let (line, table) = (entry.line, table.display());
                TaskError::Unusable(format!("{reason}; line {line} of {table} names this file"))
            };
            let name = name::relative("the piece", &entry.file).map_err(|error| explain(error.to_string()))?;
            let path = root.join(name);
            let (bytes, file) = file::read(KEY, &path).map_err(|error| explain(error.to_string()))?;
            let played = midi::read(&bytes)
                .map_err(|reason| explain(format!("`{KEY}`: {} cannot be used: it is {reason}", path.display())))?;
            Ok((encode(&quantize(&played)), file))
        };
        let all: Vec<Result<_, TaskError>> = entries.par_iter().map(read).collect();
        let mut pieces: [Vec<Vec<u16>>; 3] = Default::default();
        let (mut bytes, mut digests) = (0, Vec::new());
        for (entry, piece) in entries.iter().zip(all) {
            let (tokens, file) = piece?;
            bytes += file.bytes;
            digests.push(format!("{}  {}\n", file.sha256, entry.file));
            pieces[place(entry.split)].push(tokens);
        }
        let midi_files = DataFile {
            path: format!("{} ({} MIDI files that it names)", table.display(), entries.len()),
            bytes,
            sha256: file::digest(digests.concat().as_bytes()),
        };
        Ok(Archive { table, pieces, files: vec![of_table, midi_files] })
    }

    /// The pieces of a split.
    pub(super) fn of(&self, split: Split) -> &[Vec<u16>] {
        &self.pieces[place(split)]
    }
}

fn place(split: Split) -> usize {
    match split {
        Split::Train => 0,
        Split::Validation => 1,
        Split::Test => 2,
    }
}

/// The table at `path` or in that directory, with its lines.
fn find(path: &Path) -> Result<(PathBuf, Vec<Entry>, DataFile), TaskError> {
    if !path.is_dir() {
        let (entries, file) = entries(path)?;
        return Ok((path.to_owned(), entries, file));
    }
    let unreadable =
        |error: std::io::Error| TaskError::Unreadable { key: KEY, path: path.to_owned(), reason: error.to_string() };
    let mut tables = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let found = entry.map_err(unreadable)?.path();
        if found.extension().is_some_and(|extension| extension == "csv") {
            tables.push(found);
        }
    }
    tables.sort();
    if tables.len() > 1 {
        // A table of all pieces may lie beside that of those which are there.
        let is_there = |table: &PathBuf| {
            entries(table).is_ok_and(|(entries, _)| {
                entries
                    .first()
                    .is_some_and(|first| name::relative("", &first.file).is_ok_and(|name| path.join(name).is_file()))
            })
        };
        let complete: Vec<PathBuf> = tables.iter().filter(|table| is_there(table)).cloned().collect();
        if !complete.is_empty() {
            tables = complete;
        }
    }
    match &tables[..] {
        [table] => {
            let (entries, file) = entries(table)?;
            Ok((table.clone(), entries, file))
        }
        [] => Err(TaskError::Unusable(format!(
            "`{KEY}`: {} has no table of pieces: name the directory of MAESTRO in which maestro-v3.0.0.csv lies, or that file",
            path.display()
        ))),
        several => {
            let names: Vec<String> = several.iter().map(|table| table.display().to_string()).collect();
            let names = names.join(", ");
            Err(TaskError::Unusable(format!("`{KEY}`: {} has several tables: name one of {names}", path.display())))
        }
    }
}

/// The lines of a table.
fn entries(table: &Path) -> Result<(Vec<Entry>, DataFile), TaskError> {
    let (bytes, file) = file::read(KEY, table)?;
    let unusable = |what: String| TaskError::Unusable(format!("`{KEY}`: {}{what}", table.display()));
    let mut reader = csv::Reader::from_reader(&bytes[..]);
    let headers = reader.headers().map_err(|error| unusable(format!(" is not a table: {error}")))?.clone();
    let column = |name: &str| headers.iter().position(|header| header == name);
    let (Some(split), Some(name)) = (column(SPLIT_COLUMN), FILE_COLUMNS.into_iter().find_map(column)) else {
        let columns = FILE_COLUMNS.join("` or `");
        return Err(unusable(format!(
            " has no columns `{SPLIT_COLUMN}` and `{columns}`: it is not a table of MAESTRO"
        )));
    };
    let mut entries = Vec::new();
    let (mut line, mut counted) = (1, 0);
    for record in reader.records() {
        let record = record.map_err(|error| unusable(format!(" is damaged: {error}")))?;
        // The reader's own count lags behind where lines end with a carriage return, too.
        let rest = &bytes[counted..];
        let begin = record.position().map_or(0, |position| (position.byte() as usize).saturating_sub(counted));
        let begin = begin + rest[begin..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        line += rest[..begin].split(|&byte| byte == b'\n').count() - 1;
        counted += begin;
        let split = match &record[split] {
            "train" => Split::Train,
            "validation" => Split::Validation,
            "test" => Split::Test,
            other => {
                let message = format!(":{line}: {other:?} is not a split: expected train, validation or test");
                return Err(unusable(message));
            }
        };
        entries.push(Entry { line, split, file: record[name].to_owned() });
    }
    Ok((entries, file))
}
