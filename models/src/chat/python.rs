//! Where Jinja in Python differs from its sibling in Rust: how values are printed, and what white space is.

use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Error, ErrorKind, Output, State, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::borrow::Cow;
use std::io;

/// White space of Python's `str`: four separators of ASCII more than that of Unicode.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// The filter `trim`.
pub(super) fn trim(state: &State, value: &Value, chars: Option<&str>) -> Result<String, Error> {
    Ok(strip("strip", &text(state, value)?, chars).to_owned())
}

fn strip<'a>(method: &str, text: &'a str, chars: Option<&str>) -> &'a str {
    let strips = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    match method {
        "lstrip" => text.trim_start_matches(strips),
        "rstrip" => text.trim_end_matches(strips),
        _ => text.trim_matches(strips),
    }
}

/// Pays for `bytes` of data before they are made.
fn pay(state: &State, bytes: usize) -> Result<(), Error> {
    state.consume_fuel(bytes as u64 / 64 + 1)
}

/// Methods of Python's types. Those that can make much of little pay for it before they do.
pub(super) fn method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    const SLOT: usize = size_of::<Value>();
    let Some(text) = value.as_str() else {
        return minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args);
    };
    match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            return Ok(Value::from(strip(method, text, chars)));
        }
        "split" if args.first().is_none_or(Value::is_none) => {
            let words = || text.split(is_space).filter(|word| !word.is_empty());
            pay(state, words().count() * SLOT)?;
            if args.len() < 2 {
                return Ok(words().map(Value::from).collect());
            }
        }
        "split" => {
            let separator = args.first().and_then(Value::as_str).unwrap_or_default();
            pay(state, text.matches(separator).count() * SLOT)?;
        }
        "splitlines" => pay(state, text.matches(char::is_control).count() * SLOT)?,
        "replace" => {
            let (from, to, _): (&str, &str, Option<i64>) = from_args(args)?;
            pay(state, text.matches(from).count().saturating_mul(to.len()))?;
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            pay(state, items.len().unwrap_or(0).saturating_mul(text.len()))?;
            let long: usize = items.try_iter()?.map(|item| item.as_str().map_or(SLOT, str::len)).sum();
            pay(state, long)?;
        }
        "format" => {
            let fields = check_format(text)?;
            let mut longest = 0;
            for arg in args {
                longest += represent(state, arg, 0)?.len();
            }
            pay(state, fields.saturating_mul(longest))?;
        }
        _ => {}
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}

/// The number of fields of a format, none of them wide.
fn check_format(text: &str) -> Result<usize, Error> {
    const WIDEST: usize = 3;
    let (mut depth, mut digits, mut fields) = (0_usize, 0, 0);
    for c in text.chars() {
        match c {
            '{' => (depth, fields) = (depth + 1, fields + 1),
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        digits = if depth > 0 && c.is_ascii_digit() { digits + 1 } else { 0 };
        if digits > WIDEST {
            return Err(Error::new(ErrorKind::InvalidOperation, "format: a field wider than 999"));
        }
    }
    Ok(fields)
}

/// A value as Python's `str` writes it.
fn text<'a>(state: &State, value: &'a Value) -> Result<Cow<'a, str>, Error> {
    Ok(match (value.as_str(), value.kind()) {
        (Some(text), _) => text.into(),
        (_, ValueKind::Undefined) => "".into(),
        _ => represent(state, value, 0)?.into(),
    })
}

/// Writes a value as Python's `str` does.
pub(super) fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Bool | ValueKind::None | ValueKind::Number | ValueKind::Seq | ValueKind::Map => {
            let text = represent(state, value, 0)?;
            Ok(out.write_str(&text)?)
        }
        _ => minijinja::escape_formatter(out, state, value),
    }
}

/// A value as Python's `repr` writes it.
fn represent(state: &State, value: &Value, depth: usize) -> Result<String, Error> {
    const DEEPEST: usize = 100;
    if depth > DEEPEST {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deeply to be printed"));
    }
    let list = |items: Vec<String>, [open, close]: [&str; 2]| format!("{open}{}{close}", items.join(", "));
    let text = match value.kind() {
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.to_owned(),
        ValueKind::None => "None".to_owned(),
        ValueKind::Undefined => "Undefined".to_owned(),
        ValueKind::String => quote(value.as_str().unwrap_or_default()),
        ValueKind::Number if !value.is_integer() => float(f64::try_from(value.clone())?),
        ValueKind::Seq => {
            let items: Vec<_> =
                value.try_iter()?.map(|item| represent(state, &item, depth + 1)).collect::<Result<_, _>>()?;
            match (value.is_tuple(), items.len()) {
                (true, 1) => format!("({},)", items[0]),
                (true, _) => list(items, ["(", ")"]),
                (false, _) => list(items, ["[", "]"]),
            }
        }
        ValueKind::Map => {
            let mut items = Vec::new();
            for key in value.try_iter()? {
                let item = represent(state, &value.get_item(&key)?, depth + 1)?;
                items.push(format!("{}: {item}", represent(state, &key, depth + 1)?));
            }
            list(items, ["{", "}"])
        }
        _ => value.to_string(),
    };
    state.consume_fuel(1 + text.len() as u64 / 64)?;
    Ok(text)
}

/// A string in quotes, single ones unless only they occur in it.
fn quote(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_control() => out.extend(format!("\\x{:02x}", c as u32).chars()),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

/// The test `iterable`: what has an iterator in Python, where None has none and what is undefined an empty one.
pub(super) fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.kind() == ValueKind::Iterable
}

/// The test `sequence`: what has a length and items by a key in Python.
pub(super) fn is_sequence(value: &Value) -> bool {
    use ValueKind::{Bytes, Map, Seq, String, Undefined};
    matches!(value.kind(), Undefined | String | Bytes | Seq | Map)
}

/// A number as `repr` writes it (infinities and NaN as `inf` and `nan`): with an exponent of two digits or more below 1e-4 and from 1e16 on.
fn float(value: f64) -> String {
    let short = format!("{value:e}");
    let Some((digits, exponent)) = short.split_once('e') else { return short.to_lowercase() };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        _ => format!("{value:?}"),
    }
}

/// The filter `tojson`: as `json.dumps` writes it, without the escapes for HTML.
#[allow(clippy::needless_pass_by_value, reason = "a filter gets its named arguments by value")]
pub(super) fn to_json(state: &State, value: &Value, indent: Option<usize>, kwargs: Kwargs) -> Result<String, Error> {
    /// Wider than anybody's.
    const WIDEST: usize = 64;
    /// Bytes that cost one unit of fuel.
    const BYTES: u64 = 4;
    let most = state.fuel_levels().map_or(u64::MAX, |(_, left)| left.saturating_mul(BYTES)) as usize;
    let indent = match indent {
        Some(indent) => Some(indent),
        None => kwargs.get::<Option<usize>>("indent")?,
    };
    // Of the other arguments of Python's filter only the one that is the default here means anything.
    let _ = kwargs.get::<Option<bool>>("ensure_ascii")?;
    kwargs.assert_all_used()?;
    if let Some(indent) = indent.filter(|&indent| indent > WIDEST) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("tojson: an indent of {indent}; at most {WIDEST}"),
        ));
    }
    let text = written(value, Dumps { indent, depth: 0, is_filled: false }, most);
    let text = text.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    state.consume_fuel(text.len() as u64 / BYTES)?;
    Ok(text)
}

fn written(value: &Value, formatter: Dumps, most: usize) -> serde_json::Result<String> {
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

/// As `json.dumps` writes: on one line, with a space after commas and colons, or on lines of their own, with an indent.
struct Dumps {
    indent: Option<usize>,
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
            writer.write_all(if self.indent.is_some() { b"," } else { b", " })?;
        }
        self.line(writer)
    }

    fn line<W: ?Sized + io::Write>(&self, writer: &mut W) -> io::Result<()> {
        let Some(indent) = self.indent else { return Ok(()) };
        writer.write_all(b"\n")?;
        writer.write_all(" ".repeat(indent * self.depth).as_bytes())
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
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.is_filled = true;
        Ok(())
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(float(value).as_bytes())
    }
}
