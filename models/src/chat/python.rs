//! Where Jinja in Python differs from its sibling in Rust: how values are printed, the methods of texts, and what white space is.

use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, Output, State, Value};
use std::borrow::Cow;

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
        "removeprefix" | "removesuffix" => {
            let (part,): (&str,) = from_args(args)?;
            let rest = if method == "removeprefix" { text.strip_prefix(part) } else { text.strip_suffix(part) };
            return Ok(Value::from(rest.unwrap_or(text)));
        }
        "partition" | "rpartition" => {
            let separator = separator(args)?;
            let found = if method == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) };
            let parts = match found {
                Some((before, after)) => [before, separator, after],
                None if method == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            return Ok(Value::from_object(Tuple::from(parts.map(Value::from))));
        }
        "split" | "rsplit" if args.first().is_none_or(Value::is_none) => {
            let words = || text.split(is_space).filter(|word| !word.is_empty());
            pay(state, words().count() * SLOT)?;
            if args.len() < 2 {
                return Ok(words().map(Value::from).collect());
            }
        }
        "rsplit" => {
            let (_, most): (Value, Option<i64>) = from_args(args)?;
            let separator = separator(&args[..1])?;
            pay(state, text.matches(separator).count() * SLOT)?;
            let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
            let mut parts: Vec<&str> = text.rsplitn(most.saturating_add(1), separator).collect();
            parts.reverse();
            return Ok(parts.into_iter().map(Value::from).collect());
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

/// The one argument of a method that cuts a text, which Python refuses when it is empty.
fn separator(args: &[Value]) -> Result<&str, Error> {
    let (separator,): (&str,) = from_args(args)?;
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    Ok(separator)
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
pub(super) fn float(value: f64) -> String {
    let short = format!("{value:e}");
    let Some((digits, exponent)) = short.split_once('e') else { return short.to_lowercase() };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        _ => format!("{value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::chat::ChatTemplate;

    /// Those of Python and its Jinja.
    #[test]
    fn methods_and_tests_are_those_of_python() {
        let written = |body: &str| ChatTemplate::new(&format!("{{{{ {body} }}}}"), None, None)?.render(&[], false);
        for (body, expected) in [
            ("'a/b/c'.partition('/')", "('a', '/', 'b/c')"),
            ("'a/b/c'.rpartition('/')", "('a/b', '/', 'c')"),
            ("'abc'.partition('/')", "('abc', '', '')"),
            ("'abc'.rpartition('/')", "('', '', 'abc')"),
            ("'a.b'.partition('.')[2]", "b"),
            ("'a/b/c'.rsplit('/')", "['a', 'b', 'c']"),
            ("'a/b/c'.rsplit('/', 1)", "['a/b', 'c']"),
            ("'a/b/c'.rsplit('/', -1)", "['a', 'b', 'c']"),
            ("'a/b/c'.rsplit('/', 0)", "['a/b/c']"),
            ("' a  b '.rsplit()", "['a', 'b']"),
            ("'abab'.removeprefix('ab')", "ab"),
            ("'aba'.removesuffix('ba')", "a"),
            ("'aba'.removesuffix('x')", "aba"),
            ("[none is iterable, u is iterable, 1 is iterable, true is iterable]", "[False, True, False, False]"),
            ("['a' is iterable, {'a': 1} is iterable, range(3) is iterable]", "[True, True, True]"),
            ("[none is sequence, u is sequence, 1 is sequence]", "[False, True, False]"),
            ("['a' is sequence, [1] is sequence, {'a': 1} is sequence]", "[True, True, True]"),
        ] {
            assert_eq!(written(body).as_deref(), Ok(expected), "{body}");
        }
        assert!(written("'abc'.rsplit('')").unwrap_err().contains("empty separator"));
    }
}
