//! Files of records: JSON lines, a JSON array of objects, or a table with a header (CSV, TSV).
//!
//! The name tells a table (`.csv`, `.tsv`), the content the others. A byte order mark is skipped.

use super::lines::{Problems, each_line};
use crate::results::DataFile;
use crate::tasks::{TaskError, file};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Calls `take` with the number (from 1: the line, or the place in an array) and the content of every record of a file.
///
/// # Errors
/// When the file cannot be read or is empty, or a table has no header that can be read.
pub(super) fn each_record(
    key: &'static str,
    path: &Path,
    problems: &mut Problems,
    mut take: impl FnMut(usize, &Value) -> Result<(), String>,
) -> Result<DataFile, TaskError> {
    let (content, data) = file::read(key, path)?;
    let content = file::without_mark(&content);
    let begins = content.trim_ascii_start().first();
    match separator(path).filter(|_| begins != Some(&b'{')) {
        Some(separator) => table(content, separator, (key, path), problems, &mut take)?,
        None if begins == Some(&b'[') => array(content, path, problems, &mut take),
        None => each_line(content, path, problems, take),
    }
    Ok(data)
}

/// What separates the cells of a table, by the name of its file.
fn separator(path: &Path) -> Option<u8> {
    let name = PathBuf::from(path.file_name()?.to_string_lossy().to_lowercase());
    let is_packed = name.extension().is_some_and(|extension| extension == "gz");
    let name = if is_packed { name.with_extension("") } else { name };
    match name.extension()?.to_str()? {
        "csv" => Some(b','),
        "tsv" | "tab" => Some(b'\t'),
        _ => None,
    }
}

fn array(
    content: &[u8],
    path: &Path,
    problems: &mut Problems,
    take: &mut dyn FnMut(usize, &Value) -> Result<(), String>,
) {
    let items = match serde_json::from_slice::<Vec<Value>>(content) {
        Ok(items) => items,
        // Lists below each other, none of which is a record: each line is told.
        Err(error) if error.line() > 1 && error.to_string().contains("trailing") => {
            return each_line(content, path, problems, take);
        }
        Err(error) => return problems.note(format!("{}: the array is not valid JSON ({error})", path.display())),
    };
    for (index, item) in items.iter().enumerate() {
        let taken = if item.is_object() { take(index + 1, item) } else { Err("is not an object".to_owned()) };
        if let Err(problem) = taken {
            problems.note(format!("{}: item {}: {problem}", path.display(), index + 1));
        }
    }
}

fn table(
    content: &[u8],
    separator: u8,
    (key, path): (&'static str, &Path),
    problems: &mut Problems,
    take: &mut dyn FnMut(usize, &Value) -> Result<(), String>,
) -> Result<(), TaskError> {
    let unreadable =
        |error: csv::Error| TaskError::Unreadable { key, path: path.to_owned(), reason: error.to_string() };
    let mut reader = csv::ReaderBuilder::new().delimiter(separator).from_reader(content);
    let header = reader.headers().map_err(unreadable)?.clone();
    let names: Vec<&str> = header.iter().map(str::trim).collect();
    if let Some(twice) = (1..names.len()).find(|&i| !names[i].is_empty() && names[..i].contains(&names[i])) {
        let reason = format!("two of its columns are called `{}`: which is meant cannot be told", names[twice]);
        return Err(TaskError::Unreadable { key, path: path.to_owned(), reason });
    }
    let open = open_quote(content, separator);
    let mut rows = reader.records().peekable();
    while let Some(row) = rows.next() {
        if let Some(line) = open.filter(|_| rows.peek().is_none()) {
            problems.add(path, line, "the quote that opens here is never closed: everything after it is one row");
            break;
        }
        let (line, problem) = match row {
            Ok(row) => {
                let entries = header.iter().zip(row.iter());
                let record = entries.map(|(name, cell)| (name.trim().to_owned(), Value::from(cell))).collect();
                let line = row.position().map_or(0, |place| place.line() as usize);
                (line, take(line, &Value::Object(record)).err())
            }
            Err(error) => (error.position().map_or(0, |place| place.line() as usize), Some(error.to_string())),
        };
        if let Some(problem) = problem {
            problems.add(path, line, &problem);
        }
    }
    Ok(())
}

/// The line of a quote that begins a cell and that none ends. Within a cell two stand for one.
fn open_quote(content: &[u8], separator: u8) -> Option<usize> {
    let (mut line, mut open, mut begins) = (1, None, true);
    let mut bytes = content.iter().peekable();
    while let Some(&byte) = bytes.next() {
        match open {
            Some(_) if byte == b'"' && bytes.next_if_eq(&&b'"').is_none() => open = None,
            None if byte == b'"' && begins => open = Some(line),
            _ => {}
        }
        line += usize::from(byte == b'\n');
        begins = open.is_none() && [separator, b'\n', b'\r'].contains(&byte);
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields `a` of the records of a file, and what is wrong with it.
    fn read(name: &str, content: &[u8]) -> (Vec<String>, Vec<String>) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(name);
        std::fs::write(&path, content).unwrap();
        let (mut found, mut problems) = (Vec::new(), Problems::default());
        each_record("task.path", &path, &mut problems, |_, record| {
            found.push(super::super::lines::text(record, "a")?.to_owned());
            Ok(())
        })
        .unwrap();
        let directory = format!("{}/", place.path().display());
        (found, problems.all().iter().map(|problem| problem.replace(&directory, "")).collect())
    }

    #[test]
    fn the_same_records_in_every_form() {
        let expected = (vec!["x, \"y\"\nz".to_owned(), "ü".to_owned()], Vec::<String>::new());
        let line = r#"{"a": "x, \"y\"\nz", "b": 1}"#;
        for (name, content) in [
            ("f.jsonl", format!("{line}\n{{\"a\": \"ü\"}}\n")),
            ("f.json", format!("\n [{line},\n{{\"a\": \"ü\"}}]\n")),
            ("f.csv", "a,b\n\"x, \"\"y\"\"\nz\",1\nü,2\n".to_owned()),
            ("f.tsv", "b\ta\r\n1\t\"x, \"\"y\"\"\nz\"\r\n2\tü\r\n".to_owned()),
            // The content wins where it is clear.
            ("lines.csv", format!("{line}\n{{\"a\": \"ü\"}}")),
        ] {
            assert_eq!(read(name, content.as_bytes()), expected, "{name}");
            assert_eq!(
                read(name, &["\u{feff}".as_bytes(), content.as_bytes()].concat()),
                expected,
                "{name} with a mark"
            );
        }
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (name, content, problem) in [
            (
                "f.csv",
                "a,b\n1,\"2\"\"\n\"\n3,\"4\n5,6\n7,8\n",
                "f.csv:4: the quote that opens here is never closed: everything after it is one row",
            ),
            ("f.json", "[{\"a\": \"x\"}, 3]", "f.json: item 2: is not an object"),
            ("f.json", "[{\"b\": 1, \"c\": 2}]", "f.json: item 1: has no `a`; there are `b`, `c`"),
            (
                "f.json",
                "[{\"a\": \"x\"}",
                "f.json: the array is not valid JSON (EOF while parsing a list at line 1 column 11)",
            ),
            ("f.jsonl", "[1]\n[2]", "f.jsonl:1: the line is JSON, but not an object"),
            ("f.csv", "b,c\n1,2\n", "f.csv:2: has no `a`; there are `b`, `c`"),
            (
                "f.csv",
                "a,b\n1,2,3\n",
                "f.csv:2: CSV error: record 1 (line: 2, byte: 4): found record with 3 fields, but the previous record has 2 fields",
            ),
        ] {
            assert_eq!(read(name, content.as_bytes()).1[0], problem);
        }
        // Columns without a name, as spreadsheets leave them, are nothing.
        assert_eq!(read("f.csv", b"a,,\nx,1,2\n").0, ["x"]);
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f.csv");
        std::fs::write(&path, "a,b, a\n1,2,3\n").unwrap();
        let twice = each_record("task.path", &path, &mut Problems::default(), |_, _| Ok(())).unwrap_err().to_string();
        assert!(twice.contains("two of its columns are called `a`"), "{twice}");
    }
}
