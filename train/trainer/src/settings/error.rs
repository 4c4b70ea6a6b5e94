//! What is wrong with a configuration, and where it was written.

use std::fmt;
use std::sync::Arc;

/// Where a key or value of a configuration was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file, from 1.
    Line(Arc<str>, usize),
    /// A `--set key=value` of the command line, as typed.
    Override(Arc<str>),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Line(file, line) => write!(f, "{file}:{line}"),
            Origin::Override(text) => write!(f, "--set {text}"),
        }
    }
}

/// A configuration that cannot be used: the place, the key and the reason in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", .origin.as_ref().map(|origin| format!("{origin}: ")).unwrap_or_default())]
pub struct ConfigError {
    /// Where it was written, when it was written anywhere (a missing key was not).
    pub origin: Option<Origin>,
    /// What is wrong and what to do.
    pub message: String,
    /// Whether it is that of files which the configuration names, and could be used with others.
    pub of_files: bool,
}

impl ConfigError {
    /// An error at `origin`.
    pub fn new(origin: Option<Origin>, message: impl Into<String>) -> Self {
        ConfigError { origin, message: message.into(), of_files: false }
    }
}

/// The candidate closest to `word`, if one is close enough to be what was meant.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
pub(crate) fn alternatives(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [only] => format!("`{only}`"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|word| format!("`{word}`")).collect();
            format!("{} or `{last}`", first.join(", "))
        }
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
    }

    #[test]
    fn lists_of_alternatives() {
        assert_eq!(alternatives(&["a", "b", "c"]), "`a`, `b` or `c`");
        assert_eq!(alternatives(&["a"]), "`a`");
    }
}
