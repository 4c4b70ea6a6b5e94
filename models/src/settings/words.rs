//! Words that messages about settings share.

use serde::de::{Expected, Unexpected};

/// The candidate closest to `word`, if one is close enough to be what was meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = &*word.to_lowercase();
    let close = |candidate: &str| {
        let similarity =
            strsim::normalized_damerau_levenshtein(word, candidate).max(strsim::jaro_winkler(word, candidate) - 0.2);
        // `learning_rate` for `lr`, `steps` for `warmup_steps`: one spelled inside the other.
        let inside = candidate.len() > 3 && word.len() > 3 && (word.contains(candidate) || candidate.contains(word));
        if inside { similarity.max(0.6) } else { similarity }
    };
    candidates
        .into_iter()
        .map(|candidate| (close(candidate), candidate))
        .filter(|(similarity, _)| *similarity >= 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// "`a`, `b` or `c`".
pub fn alternatives(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [only] => format!("`{only}`"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|word| format!("`{word}`")).collect();
            format!("{} or `{last}`", first.join(", "))
        }
    }
}

/// "must be a number, found the string "x"".
pub fn wrong_type(unexpected: &Unexpected<'_>, expected: &dyn Expected) -> String {
    format!("must be {}, found {}", plain(expected), found(unexpected))
}

/// "must be `a` or `b`, found "c"; did you mean `b`?".
pub fn wrong_variant(variant: &str, expected: &[&str]) -> String {
    let hint = nearest(variant, expected.iter().copied());
    let hint = hint.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    format!("must be {}, found {variant:?}{hint}", alternatives(expected))
}

fn plain(expected: &dyn Expected) -> String {
    let expected = expected.to_string();
    match expected.as_str() {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "path string" => "a path (a string)".to_owned(),
        "a sequence" => "an array".to_owned(),
        other if other.starts_with("struct ") => "a table".to_owned(),
        other => other.to_owned(),
    }
}

fn found(unexpected: &Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Unsigned(number) => format!("the number {number}"),
        Unexpected::Signed(number) => format!("the number {number}"),
        Unexpected::Float(number) => format!("the number {number:?}"),
        Unexpected::Str(text) => format!("the string {text:?}"),
        Unexpected::Seq => "an array".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        Unexpected::Unit | Unexpected::Option => "null".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key() {
        let keys = ["steps", "warmup_steps", "batch_size", "lr", "weight_decay"];
        assert_eq!(nearest("step", keys), Some("steps"));
        assert_eq!(nearest("batchsize", keys), Some("batch_size"));
        assert_eq!(nearest("weigth_decay", keys), Some("weight_decay"));
        assert_eq!(nearest("xyzzy", keys), None);
        assert_eq!(nearest("LoRA", ["hrm", "lora"]), Some("lora"));
    }

    #[test]
    fn lists_of_alternatives() {
        assert_eq!(alternatives(&["a", "b", "c"]), "`a`, `b` or `c`");
        assert_eq!(alternatives(&["a"]), "`a`");
    }
}
