//! The numbers of a chart as comma-separated values.

use std::fmt::Write as _;

/// A field, in quotes where it needs them.
pub(crate) fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// A number with all its digits; nothing when it is not finite.
pub(crate) fn number(value: f64) -> String {
    if value.is_finite() { format!("{value}") } else { String::new() }
}

/// Adds a line.
pub(crate) fn line(out: &mut String, fields: &[&str]) {
    for (i, text) in fields.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        write!(out, "{comma}{}", field(text)).expect("writing to a string");
    }
    out.push('\n');
}

/// The name of a column: the axis's label, or a stand-in.
pub(crate) fn column<'a>(label: &'a str, otherwise: &'a str) -> &'a str {
    if label.is_empty() { otherwise } else { label }
}
