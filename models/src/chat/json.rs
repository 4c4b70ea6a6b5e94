//! The filter `tojson`: as `json.dumps` writes a value, without the escapes for HTML, with the arguments of the filter of `transformers`.

use super::python::float;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use serde::Serialize;
use serde_json::Value as Json;
use serde_json::ser::{Formatter, Serializer};
use std::io;

/// Bytes that an indent or a separator may have: more than anybody's.
const WIDEST: usize = 64;

/// The filter.
#[allow(clippy::needless_pass_by_value, reason = "a filter gets its arguments by value")]
pub(super) fn to_json(state: &State, value: &Value, given: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    /// Bytes that cost one unit of fuel.
    const BYTES: u64 = 4;
    let most = state.fuel_levels().map_or(u64::MAX, |(_, left)| left.saturating_mul(BYTES)) as usize;
    let argument = |place: usize, name: &str| match given.get(place) {
        Some(value) => Ok(value.clone()),
        None => kwargs.get::<Option<Value>>(name).map(Option::unwrap_or_default),
    };
    let is_ascii = argument(0, "ensure_ascii")?.is_true();
    let indent = unit(&argument(1, "indent")?)?;
    let separators = pair(&argument(2, "separators")?, indent.is_some())?;
    let is_sorted = argument(3, "sort_keys")?.is_true();
    kwargs.assert_all_used()?;
    let dumps = Dumps { indent, separators, is_ascii, depth: 0, is_filled: false };
    let text = if is_sorted {
        sorted(value).and_then(|value| written(&value, dumps, most))
    } else {
        written(value, dumps, most)
    };
    let text = text.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    state.consume_fuel(text.len() as u64 / BYTES)?;
    Ok(text)
}

/// What a line is indented by for each level: so many spaces, or a text.
fn unit(indent: &Value) -> Result<Option<String>, Error> {
    let unit = match indent.kind() {
        ValueKind::Undefined | ValueKind::None => return Ok(None),
        ValueKind::String => indent.as_str().unwrap_or_default().to_owned(),
        _ => " ".repeat(usize::try_from(i64::try_from(indent.clone())?.max(0)).unwrap_or(usize::MAX).min(WIDEST + 1)),
    };
    if unit.len() > WIDEST {
        return Err(refused(&format!("an indent of {indent}; at most {WIDEST}")));
    }
    Ok(Some(unit))
}

/// The separators of items and of keys from their values.
fn pair(separators: &Value, is_indented: bool) -> Result<[String; 2], Error> {
    if separators.is_undefined() || separators.is_none() {
        return Ok([if is_indented { "," } else { ", " }.to_owned(), ": ".to_owned()]);
    }
    let items: Vec<Value> = separators.try_iter()?.collect();
    let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
    match texts.as_deref() {
        Some([item, key]) if item.len().max(key.len()) <= WIDEST => Ok([(*item).to_owned(), (*key).to_owned()]),
        _ => Err(refused(&format!("separators {separators}; they are two texts of at most {WIDEST} bytes"))),
    }
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {what}"))
}

/// The value with the keys of all its objects in order.
fn sorted(value: &Value) -> serde_json::Result<Json> {
    let mut value = serde_json::to_value(value)?;
    value.sort_all_objects();
    Ok(value)
}

fn written(value: &impl Serialize, formatter: Dumps, most: usize) -> serde_json::Result<String> {
    let mut out = Bounded { bytes: Vec::new(), most };
    value.serialize(&mut Serializer::with_formatter(&mut out, formatter))?;
    Ok(String::from_utf8(out.bytes).expect("JSON is UTF-8"))
}

/// Bytes, no more than `most` of them.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, new: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + new.len() > self.most {
            return Err(io::Error::other("it takes too many steps or too much memory"));
        }
        self.bytes.extend_from_slice(new);
        Ok(new.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As `json.dumps` writes: on one line, or every item on a line of its own with an indent.
struct Dumps {
    /// Of one level.
    indent: Option<String>,
    /// Between items, and between a key and its value.
    separators: [String; 2],
    /// Whether other characters are escaped.
    is_ascii: bool,
    depth: usize,
    is_filled: bool,
}

impl Dumps {
    fn open<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.is_filled = false;
        writer.write_all(bracket)
    }

    fn close<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.is_filled {
            self.line(writer)?;
        }
        writer.write_all(bracket)
    }

    fn begin<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(self.separators[0].as_bytes())?;
        }
        self.line(writer)
    }

    fn line<W: ?Sized + io::Write>(&self, writer: &mut W) -> io::Result<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        writer.write_all(b"\n")?;
        writer.write_all(indent.repeat(self.depth).as_bytes())
    }
}

impl Formatter for Dumps {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin(writer, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.is_filled = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.separators[1].as_bytes())
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.is_filled = true;
        Ok(())
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        if !self.is_ascii {
            return writer.write_all(fragment.as_bytes());
        }
        let mut units = [0; 2];
        for c in fragment.chars() {
            match c {
                '\0'..='\x7e' => write!(writer, "{c}")?,
                c => c.encode_utf16(&mut units).iter().try_for_each(|unit| write!(writer, "\\u{unit:04x}"))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::chat::ChatTemplate;

    /// Those of `json.dumps`.
    #[test]
    fn arguments_are_those_of_transformers() {
        let written = |arguments: &str| {
            let template = ChatTemplate::new(&format!("{{{{ v|tojson{arguments} }}}}"), None, None).unwrap();
            let value = serde_json::json!({"b": [1, {"z": null, "a": 1.5}], "a": "é😀\u{7f}\n", "e": []});
            template.with("v", value).render(&[], false)
        };
        for (arguments, expected) in [
            ("", "{\"b\": [1, {\"z\": null, \"a\": 1.5}], \"a\": \"é😀\u{7f}\\n\", \"e\": []}"),
            ("(true)", r#"{"b": [1, {"z": null, "a": 1.5}], "a": "\u00e9\ud83d\ude00\u007f\n", "e": []}"#),
            ("(separators=(',', ':'))", "{\"b\":[1,{\"z\":null,\"a\":1.5}],\"a\":\"é😀\u{7f}\\n\",\"e\":[]}"),
            (
                "(indent=2, separators=(' , ', ' = '))",
                "{\n  \"b\" = [\n    1 , \n    {\n      \"z\" = null , \n      \"a\" = 1.5\n    }\n  ] , \n  \"a\" = \"é😀\u{7f}\\n\" , \n  \"e\" = []\n}",
            ),
            (
                "(ensure_ascii=false, sort_keys=True, indent=none)",
                "{\"a\": \"é😀\u{7f}\\n\", \"b\": [1, {\"a\": 1.5, \"z\": null}], \"e\": []}",
            ),
            (
                "(false, 1, none, true)",
                "{\n \"a\": \"é😀\u{7f}\\n\",\n \"b\": [\n  1,\n  {\n   \"a\": 1.5,\n   \"z\": null\n  }\n ],\n \"e\": []\n}",
            ),
            (
                "(indent='\\t', sort_keys=true)",
                "{\n\t\"a\": \"é😀\u{7f}\\n\",\n\t\"b\": [\n\t\t1,\n\t\t{\n\t\t\t\"a\": 1.5,\n\t\t\t\"z\": null\n\t\t}\n\t],\n\t\"e\": []\n}",
            ),
            (
                "(indent=-3)",
                "{\n\"b\": [\n1,\n{\n\"z\": null,\n\"a\": 1.5\n}\n],\n\"a\": \"é😀\u{7f}\\n\",\n\"e\": []\n}",
            ),
        ] {
            assert_eq!(written(arguments).as_deref(), Ok(expected), "{arguments}");
        }
        for (arguments, problem) in [
            ("(indent=65)", "tojson: an indent of 65; at most 64"),
            ("(separators=(',',))", "they are two texts"),
            ("(width=3)", "width"),
        ] {
            let message = written(arguments).unwrap_err();
            assert!(message.contains(problem), "{arguments}: {message}");
        }
    }
}
