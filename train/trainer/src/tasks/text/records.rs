//! Files of records: JSON lines, a JSON array of objects, or a table with a header (CSV, TSV).
//!
//! The name tells a table (`.csv`, `.tsv`), the content the others. A byte order mark is skipped.

use super::lines::{Problems, each_line, parse};
use crate::format::counted;
use crate::results::DataFile;
use crate::tasks::{TaskError, file};
use serde_json::Value;
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};

/// Calls `take` with the number (from 1: the line, or the place in an array) and the content of every record of a file.
///
/// # Errors
/// When the file cannot be read or is empty, or a table has no header that can be read.
pub(in crate::tasks) fn each_record(
    key: &'static str,
    path: &Path,
    problems: &mut Problems,
    mut take: impl FnMut(usize, &Value) -> Result<(), String>,
) -> Result<DataFile, TaskError> {
    let (content, data) = file::read(key, path)?;
    problems.are_of_items(false);
    if [&[0xff, 0xfe], &[0xfe, 0xff]].iter().any(|mark| content.starts_with(*mark)) {
        let reason = "it is UTF-16: store it as UTF-8".to_owned();
        return Err(TaskError::Unreadable { key, path: path.to_owned(), reason });
    }
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
    let items = match serde_json::from_slice::<Vec<&RawValue>>(content) {
        Ok(items) => items,
        // Lists below each other, none of which is a record: each line is told.
        Err(error) if error.line() > 1 && error.to_string().contains("trailing characters") => {
            return each_line(content, path, problems, take);
        }
        Err(error) => return problems.note(format!("{}: the array is not valid JSON ({error})", path.display())),
    };
    problems.are_of_items(true);
    for (index, item) in items.iter().enumerate() {
        let taken = match parse(item.get().as_bytes()) {
            Ok(item) if item.is_object() => take(index + 1, &item),
            Ok(_) => Err("is not an object".to_owned()),
            Err(error) => Err(format!("is not valid JSON ({error})")),
        };
        if let Err(problem) = taken {
            problems.add(path, index + 1, &problem);
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
    let Quotes { open, broken } = quotes(content, separator);
    if let Some(line) = broken {
        tell!(
            "warning: {}:{line}: text stands behind the quote that closes a cell: if the cells are not quoted, everything between two cells \
             that begin with a quote is one row",
            path.display()
        );
    }
    let mut lines = Lines { content, at: 0, line: 1 };
    let mut rows = reader.records().peekable();
    while let Some(row) = rows.next() {
        if let Some(line) = open.filter(|_| rows.peek().is_none()) {
            problems.add(path, line, "the quote that opens here is never closed: everything after it is one row");
            break;
        }
        let (line, problem) = match row {
            Ok(row) => {
                let entries = header.iter().zip(row.iter());
                let record = entries.map(|(name, cell)| (name.trim().to_owned(), held(name.trim(), cell))).collect();
                let line = lines.of(row.position());
                (line, take(line, &Value::Object(record)).err())
            }
            Err(error) => {
                let what = match error.kind() {
                    csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                        let other = header.get(0).filter(|_| header.len() == 1).and_then(|cell| cell.find([';', '\t']));
                        let hint =
                            if other.is_some() { ": cells are parted by commas in .csv, by tabs in .tsv" } else { "" };
                        format!("it has {}, the header {expected_len}{hint}", counted(*len as usize, "cell"))
                    }
                    csv::ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
                    _ => error.to_string(),
                };
                (lines.of(error.position()), Some(what))
            }
        };
        if let Some(problem) = problem {
            problems.add(path, line, &problem);
        }
    }
    Ok(())
}

/// What a cell holds: a list of messages, or of the pairs of a `history`, where it is the JSON of one; otherwise its text.
fn held(name: &str, cell: &str) -> Value {
    let has = |item: &Value, keys: [&str; 2]| keys.iter().all(|key| item.get(key).is_some());
    let is_part = |item: &Value| match name {
        "history" => item.is_array(),
        _ => has(item, ["role", "content"]) || has(item, ["from", "value"]),
    };
    let items = if cell.starts_with('[') { serde_json::from_str(cell).unwrap_or_default() } else { Vec::new() };
    if !items.is_empty() && items.iter().all(is_part) { Value::Array(items) } else { cell.into() }
}

/// Counts the lines of a table, which end with a line feed, a carriage return, or both. (The reader counts line feeds, and takes one
/// that a row ends with for the beginning of the next.)
struct Lines<'a> {
    content: &'a [u8],
    at: usize,
    line: usize,
}

impl Lines<'_> {
    /// The line, from 1, on which a row begins; positions have to come in their order. Empty lines before it are no part of it.
    fn of(&mut self, position: Option<&csv::Position>) -> usize {
        let begins = position.map_or(0, |position| position.byte() as usize);
        while let Some(&byte) = self.content.get(self.at).filter(|byte| self.at < begins || b"\r\n".contains(byte)) {
            self.at += 1;
            self.line += usize::from(ends_line(byte, self.content.get(self.at)));
        }
        self.line
    }
}

/// Whether a line ends with this byte, before the next one.
fn ends_line(byte: u8, next: Option<&u8>) -> bool {
    byte == b'\n' || (byte == b'\r' && next != Some(&b'\n'))
}

/// What is wrong with the quotes of a table.
#[derive(Default)]
struct Quotes {
    /// The line of one that begins a cell and that none ends.
    open: Option<usize>,
    /// The first line on which a cell goes on behind the quote that ends it.
    broken: Option<usize>,
}

/// Within a cell two quotes stand for one.
fn quotes(content: &[u8], separator: u8) -> Quotes {
    let (mut line, mut begins, mut found) = (1, true, Quotes::default());
    let mut bytes = content.iter().peekable();
    while let Some(&byte) = bytes.next() {
        match found.open {
            Some(_) if byte == b'"' && bytes.next_if_eq(&&b'"').is_none() => {
                found.open = None;
                let ends = |next: &&u8| [separator, b'\n', b'\r'].contains(*next);
                if !bytes.peek().is_none_or(ends) {
                    found.broken.get_or_insert(line);
                }
            }
            None if byte == b'"' && begins => found.open = Some(line),
            _ => {}
        }
        line += usize::from(ends_line(byte, bytes.peek().copied()));
        begins = found.open.is_none() && [separator, b'\n', b'\r'].contains(&byte);
    }
    found
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
        // Places of one file are not called as those of the file before.
        let before = place.path().join("before.json");
        std::fs::write(&before, "[{}]").unwrap();
        each_record("task.path", &before, &mut problems, |_, _| Ok(())).unwrap();
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
    fn cells_may_hold_lists_of_messages() {
        let messages = "[{\"role\": \"user\", \"content\": \"Hi\"}]";
        for (name, cell, is_list) in [
            ("prompt", messages, true),
            ("conversations", "[{\"from\": \"human\", \"value\": \"Hi\"}]", true),
            ("history", "[[\"a\", \"b\"]]", true),
            ("prompt", "[[\"a\", \"b\"]]", false),
            ("completion", "[{\"role\": \"admin\", \"name\": \"Tom\"}]", false),
            ("completion", "[]", false),
            ("completion", "[1, 2]", false),
            ("completion", &messages[1..], false),
        ] {
            assert_eq!(held(name, cell).is_array(), is_list, "{name} {cell}");
            assert!(is_list || held(name, cell) == cell, "{name} {cell}");
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
                "[{\"a\": \"x\"},\n{\"a\": \"\\ud83d\"}]",
                "f.json: item 2: is not valid JSON (unexpected end of hex escape at line 1 column 14)",
            ),
            (
                "f.json",
                "[{\"a\": \"x\"}",
                "f.json: the array is not valid JSON (EOF while parsing a list at line 1 column 11)",
            ),
            ("f.jsonl", "[1]\n[2]", "f.jsonl:1: the line is JSON, but not an object"),
            ("f.csv", "b,c\n1,2\n", "f.csv:2: has no `a`; there are `b`, `c`"),
            ("f.csv", "a,b\n1,2,3\n", "f.csv:2: it has 3 cells, the header 2"),
            (
                "f.csv",
                "a;b\n1;2,3\n",
                "f.csv:2: it has 2 cells, the header 1: cells are parted by commas in .csv, by tabs in .tsv",
            ),
        ] {
            assert_eq!(read(name, content.as_bytes()).1[0], problem);
        }
        // Whatever lines end with, rows have those of their own.
        let table = "a,b\n1,x\n\n\n2,\"y\nz\"\n3\n4,v,w\n5,\"open\n6,6\n";
        for end in ["\n", "\r\n", "\r"] {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("f.csv");
            std::fs::write(&path, table.replace('\n', end)).unwrap();
            let (mut places, mut problems) = (Vec::new(), Problems::default());
            each_record("task.path", &path, &mut problems, |place, _| {
                places.push(place);
                Ok(())
            })
            .unwrap();
            assert_eq!(places, [2, 5], "{end:?}");
            let told: Vec<&str> =
                problems.all().iter().filter_map(|problem| problem.split_once("f.csv")).map(|(_, what)| what).collect();
            let quote = ":9: the quote that opens here is never closed: everything after it is one row";
            assert_eq!(told, [":7: it has 1 cell, the header 2", ":8: it has 3 cells, the header 2", quote], "{end:?}");
        }
        let broken = |table: &str| quotes(table.as_bytes(), b'\t').broken;
        assert_eq!(broken("a\tb\n\"Well\" he said\tx\n"), Some(2));
        assert_eq!(broken("a\tb\nx\t\"Well\ny\tz\n\"Oh\tx\n"), Some(4));
        assert_eq!(broken("a\tb\n\"x \"\"y\"\"\nz\"\t\"v\"\r\nit's \"so\"\t1"), None);
        // Columns without a name, as spreadsheets leave them, are nothing.
        assert_eq!(read("f.csv", b"a,,\nx,1,2\n").0, ["x"]);
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f.csv");
        std::fs::write(&path, "a,b, a\n1,2,3\n").unwrap();
        let twice = each_record("task.path", &path, &mut Problems::default(), |_, _| Ok(())).unwrap_err().to_string();
        assert!(twice.contains("two of its columns are called `a`"), "{twice}");
    }
}
