//! Numbers as people read them.

use crate::results::metric;

/// `33,028`.
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 document`, `2 documents`.
pub fn counted(count: usize, what: &str) -> String {
    format!("{} {what}{}", thousands(count as u64), if count == 1 { "" } else { "s" })
}

/// Words in lines of at most `width` characters where they permit it, those after the first two spaces in.
pub fn wrapped<'a>(words: impl IntoIterator<Item = &'a str>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => line.extend([" ", word]),
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// `0.8 s`, `2 min 05 s`, `3 h 20 min`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "–".to_owned();
    }
    if seconds < 59.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    if whole < 3600 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else {
        let minutes = whole.saturating_add(30) / 60;
        format!("{} h {:02} min", minutes / 60, minutes % 60)
    }
}

/// `1.50 GiB`.
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for (unit, decimals) in [("B", 0), ("KiB", 1), ("MiB", 1), ("GiB", 2), ("TiB", 2)] {
        if value < 1024.0 || unit == "TiB" {
            return format!("{value:.decimals$} {unit}");
        }
        value /= 1024.0;
    }
    unreachable!("the last unit returns")
}

/// A figure of a metric, with four decimals.
pub fn score(value: f64) -> String {
    if value.is_finite() { format!("{value:.4}").replace('-', "−") } else { "–".to_owned() }
}

/// A difference, with its sign.
pub fn difference(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let text = score(value);
    if text.starts_with('−') || text == "0.0000" { text } else { format!("+{text}") }
}

/// Four significant digits, with a power of ten where the number would be long.
pub fn significant(value: f64) -> String {
    let magnitude = value.abs();
    let text = if magnitude == 0.0 {
        "0".to_owned()
    } else if (1e-3..1e4).contains(&magnitude) {
        let decimals = (3 - magnitude.log10().floor() as i32).max(0) as usize;
        format!("{value:.decimals$}")
    } else if magnitude.is_finite() {
        format!("{value:.3e}")
    } else {
        "–".to_owned()
    };
    text.replace('-', "−")
}

/// Text with a capital at its beginning.
pub fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// The name of a metric in words.
pub fn metric_name(name: &str) -> String {
    match name {
        metric::LABEL_SMOOTHED_BITS => "bits per character, label-smoothed".to_owned(),
        metric::LABEL_SMOOTHED_LOSS => "loss, label-smoothed".to_owned(),
        _ => name.replace('_', " "),
    }
}

/// The name of a metric with its unit, for an axis.
pub fn metric_label(name: &str) -> String {
    let unit = if name.contains("loss") { " (nats)" } else { "" };
    format!("{}{unit}", metric_name(name))
}

/// Orders in a few words: one number if all layers have it, else one number each, or for many layers the range.
pub fn orders(orders: &[usize]) -> String {
    match orders {
        [] => String::new(),
        [first, rest @ ..] if rest.iter().all(|o| o == first) => first.to_string(),
        _ if orders.len() <= 8 => orders.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        _ => {
            let (least, most) = orders.iter().fold((usize::MAX, 0), |(a, b), &n| (a.min(n), b.max(n)));
            format!("{least} to {most}")
        }
    }
}

/// A name that is safe in a file name on every system.
pub fn file_stem(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '-' };
    let mapped: String = name.chars().map(safe).take(60).collect();
    let parts: Vec<&str> = mapped.split('-').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "unnamed".to_owned() } else { parts.join("-") }
}

/// Two digits for each byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [(0.84, "0.8 s"), (59.94, "59.9 s"), (59.96, "1 min 00 s"), (125.2, "2 min 05 s")];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(duration(3600.0), "1 h 00 min");
        assert_eq!(duration(86_390.0), "24 h 00 min");
        assert_eq!(duration(f64::NAN), "–");
        assert!(duration(1e308).ends_with(" min"));
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("one two three σσσ four".split(' '), 9), ["one two", "  three", "  σσσ", "  four"]);
        assert_eq!(wrapped(["a", "long word"], 6), ["a", "  long word"]);
    }

    #[test]
    fn counts_and_sizes() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(8_390_688), "8,390,688");
        assert_eq!([0, 1, 2000].map(|count| counted(count, "window")), ["0 windows", "1 window", "2,000 windows"]);
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(6 << 30), "6.00 GiB");
    }

    #[test]
    fn differences_have_a_sign() {
        assert_eq!(difference(0.05), "+0.0500");
        assert_eq!(difference(-0.05), "−0.0500");
        assert_eq!(difference(0.0), "0.0000");
    }

    #[test]
    fn significant_digits() {
        let cases = [(2.9, "2.900"), (0.116_94, "0.1169"), (1234.5, "1234"), (1.5e-5, "1.500e−5"), (-0.5, "−0.5000")];
        for (value, text) in cases {
            assert_eq!(significant(value), text);
        }
        assert_eq!(significant(0.0), "0");
        assert_eq!(significant(f64::NAN), "–");
    }

    #[test]
    fn orders_are_shortened_when_equal() {
        assert_eq!(orders(&[6, 6, 6]), "6");
        assert_eq!(orders(&[12, 11, 9]), "12, 11, 9");
        assert_eq!(orders(&[]), "");
        assert_eq!(orders(&[5, 4, 4, 4, 9, 4, 4, 4, 6]), "4 to 9");
    }

    #[test]
    fn capitals() {
        let cases = [("accuracy", "Accuracy"), ("émoi", "Émoi"), ("", ""), ("σ", "Σ")];
        for (text, capital) in cases {
            assert_eq!(capitalised(text), capital);
        }
    }

    #[test]
    fn file_names_are_tame() {
        assert_eq!(file_stem("../../etc/<HRM> d=32"), "etc-hrm-d-32");
        assert_eq!(file_stem("///"), "unnamed");
    }
}
