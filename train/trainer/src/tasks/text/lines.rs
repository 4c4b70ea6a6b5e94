//! JSON lines: one that cannot be used is named, the others are used.

use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::Path;

/// Lines that are described by themselves; the others are counted.
const SHOWN: usize = 5;

/// What is wrong with lines of files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems {
    messages: Vec<String>,
    /// Whether places are those of items in an array, and not lines.
    of_items: bool,
}

impl Problems {
    /// Notes a problem at `place` of `path`: a line, or an item of an array (both from 1).
    pub fn add(&mut self, path: &Path, place: usize, what: &str) {
        self.messages.push(format!("{}: {what}", self.at(path, place)));
    }

    /// A place in words: `path:line`, or `path: item N` where the file is an array.
    pub fn at(&self, path: &Path, place: usize) -> String {
        let path = path.display();
        if self.of_items { format!("{path}: item {place}") } else { format!("{path}:{place}") }
    }

    /// From here on places are lines, or items of an array.
    pub(super) fn are_of_items(&mut self, are_items: bool) {
        self.of_items = are_items;
    }

    /// Notes a problem that has no line.
    pub fn note(&mut self, what: String) {
        self.messages.push(what);
    }

    /// Number of problems.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The first one.
    pub fn first(&self) -> Option<&str> {
        self.messages.first().map(String::as_str)
    }

    /// All of them.
    pub fn all(&self) -> &[String] {
        &self.messages
    }

    /// Tells the first few on standard error.
    pub fn warn(&self) {
        self.messages.iter().take(SHOWN).for_each(|message| tell!("warning: {message}; left out"));
        if let Some(more) = self.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            tell!("warning: {more} more were left out");
        }
    }
}

/// Calls `take` with the number (from 1) and the content of every line that is a JSON object; empty lines are nothing.
pub fn each_line(
    content: &[u8],
    path: &Path,
    problems: &mut Problems,
    mut take: impl FnMut(usize, &Value) -> Result<(), String>,
) {
    for (index, line) in content.split(|&byte| byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let value = match parse(line) {
            Ok(value) if value.is_object() => Ok(value),
            Ok(_) => Err("the line is JSON, but not an object".to_owned()),
            // Where in the file the line is, is told before.
            Err(error) => Err(format!(
                "the line is not valid JSON ({})",
                error.to_string().replace(" at line 1 column ", " at column ")
            )),
        };
        if let Err(problem) = value.and_then(|value| take(index + 1, &value)) {
            problems.add(path, index + 1, &problem);
        }
    }
}

/// A JSON value. Integers of more than 64 bits in the fields of an object are texts of their digits, which a double would change.
///
/// # Errors
/// When it is not valid.
pub(super) fn parse(json: &[u8]) -> serde_json::Result<Value> {
    let mut value: Value = serde_json::from_slice(json)?;
    let is_large = |value: &Value| value.is_f64() && value.as_f64().is_some_and(|x| x.abs() >= i64::MAX as f64);
    if let Value::Object(fields) = &mut value
        && fields.values().any(is_large)
    {
        let raw: BTreeMap<String, &RawValue> = serde_json::from_slice(json)?;
        for (key, field) in fields.iter_mut().filter(|(_, field)| is_large(field)) {
            let written = raw[key].get();
            if written.strip_prefix('-').unwrap_or(written).bytes().all(|byte| byte.is_ascii_digit()) {
                *field = written.into();
            }
        }
    }
    Ok(value)
}

/// The `id` of a record: a text, or a number as it stands.
pub fn id(record: &Value) -> Option<String> {
    match record.get("id")? {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

/// A text of an object.
///
/// # Errors
/// When it is missing or no text.
pub fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    match value.get(key) {
        None => Err(format!("has no `{key}`{}", others(value))),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(format!("`{key}` is {}, expected a text", kind(other))),
    }
}

/// A text of an object with something in it.
///
/// # Errors
/// When it is missing, no text, or blank.
pub fn filled<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    let found = text(value, key)?;
    if found.trim().is_empty() { Err(format!("`{key}` is empty")) } else { Ok(found) }
}

/// A list of an object.
///
/// # Errors
/// When it is missing or no list.
pub fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value], String> {
    match value.get(key) {
        None => Err(format!("has no `{key}`{}", others(value))),
        Some(Value::Array(items)) => Ok(items),
        Some(other) => Err(format!("`{key}` is {}, expected a list", kind(other))),
    }
}

/// A value as the text that a template writes: numbers, `true` and `false` as JSON has them.
pub fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

/// The texts of a list, or the one in its place.
///
/// # Errors
/// Those of [`texts`].
pub fn one_or_more(value: &Value, key: &str) -> Result<Vec<String>, String> {
    value.get(key).and_then(scalar).map_or_else(|| texts(value, key), |one| Ok(vec![one]))
}

/// The texts of a list; numbers, `true` and `false` as JSON has them.
///
/// # Errors
/// When it is missing, no list, or holds anything else.
pub fn texts(value: &Value, key: &str) -> Result<Vec<String>, String> {
    let one = |item: &Value| scalar(item).ok_or_else(|| format!("`{key}` holds {}", kind(item)));
    list(value, key)?.iter().map(one).collect()
}

/// The fields that are there, to be told where one is missing.
pub(super) fn others(value: &Value) -> String {
    among(value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()))
}

/// Names that are there, to be told where one is missing.
pub(super) fn among<'a>(names: impl Iterator<Item = &'a str>) -> String {
    /// Names that are told.
    const MOST: usize = 12;
    let mut names: Vec<String> = names.take(MOST + 1).map(|name| format!("`{name}`")).collect();
    if names.len() > MOST {
        "others".clone_into(&mut names[MOST]);
    }
    if names.is_empty() { "; it is empty".to_owned() } else { format!("; there are {}", names.join(", ")) }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_their_digits() {
        let line = br#"{"a": 12345678901234567890123, "b": -9223372036854775809, "c": 18446744073709551615, "d": 1e30, "e": 2.5}"#;
        let value = parse(line).unwrap();
        assert_eq!(value["a"], "12345678901234567890123");
        assert_eq!(value["b"], "-9223372036854775809");
        assert_eq!(
            (value["c"].as_u64(), value["d"].as_f64(), value["e"].as_f64()),
            (Some(u64::MAX), Some(1e30), Some(2.5))
        );
    }

    #[test]
    fn bad_lines_are_named_and_the_rest_is_read() {
        let content = "{\"a\": \"x\"}\n\nno json\n[1]\n{\"a\": 3}\n{}\n{\"a\": \" \"}\n{\"a\": \"y\"}";
        let (mut problems, mut found) = (Problems::default(), Vec::new());
        each_line(content.as_bytes(), Path::new("f.jsonl"), &mut problems, |_, value| {
            found.push(filled(value, "a")?.to_owned());
            Ok(())
        });
        assert_eq!(found, ["x", "y"]);
        assert_eq!(problems.len(), 5);
        assert_eq!(problems.messages[0], "f.jsonl:3: the line is not valid JSON (expected ident at column 2)");
        assert_eq!(problems.messages[1], "f.jsonl:4: the line is JSON, but not an object");
        assert_eq!(problems.messages[2], "f.jsonl:5: `a` is a number, expected a text");
        assert_eq!(problems.messages[3], "f.jsonl:6: has no `a`; it is empty");
        assert_eq!(problems.messages[4], "f.jsonl:7: `a` is empty");
    }
}
