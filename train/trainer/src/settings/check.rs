//! Checks of values that have the right type but cannot work, reported by key.

use std::fmt::Display;

/// What is wrong with the value of a key.
pub(crate) struct Problem {
    /// Dotted path of the key.
    pub key: String,
    /// What is wrong, to be read behind the key.
    pub message: String,
    /// Whether the value could be right, but the files that it names cannot be used.
    pub of_files: bool,
}

/// Collects the problems of a section, in the order in which they are found.
pub(crate) struct Checks<'a> {
    section: String,
    problems: &'a mut Vec<Problem>,
}

impl<'a> Checks<'a> {
    /// Checks of the section with this dotted path (empty for the top level).
    pub(crate) fn new(section: impl Into<String>, problems: &'a mut Vec<Problem>) -> Self {
        Checks { section: section.into(), problems }
    }

    /// The checks of a section inside this one.
    pub(crate) fn inside(&mut self, section: &str) -> Checks<'_> {
        Checks { section: self.path(section), problems: self.problems }
    }

    fn path(&self, key: &str) -> String {
        match (self.section.as_str(), key) {
            ("", key) => key.to_owned(),
            (section, "") => section.to_owned(),
            (section, key) => format!("{section}.{key}"),
        }
    }

    /// Reports `message` for `key` unless `condition` holds.
    pub(crate) fn require(&mut self, key: &str, condition: bool, message: impl FnOnce() -> String) {
        if !condition {
            self.problems.push(Problem { key: self.path(key), message: message(), of_files: false });
        }
    }

    /// Reports that the files which `key` names cannot be used.
    pub(crate) fn unusable_files(&mut self, key: &str, message: String) {
        self.problems.push(Problem { key: self.path(key), message, of_files: true });
    }

    /// `value >= least`.
    pub(crate) fn at_least<T: PartialOrd + Display + Copy>(&mut self, key: &str, value: T, least: T) {
        self.require(key, value >= least, || format!("must be at least {least}, found {value}"));
    }

    /// `value <= most`.
    pub(crate) fn at_most<T: PartialOrd + Display + Copy>(&mut self, key: &str, value: T, most: T) {
        self.require(key, value <= most, || format!("must be at most {most}, found {value}"));
    }

    /// Finite and above 0.
    pub(crate) fn positive(&mut self, key: &str, value: f64) {
        self.finite_and(key, value, value > 0.0, "above 0");
    }

    /// Finite and at least 0.
    pub(crate) fn not_negative(&mut self, key: &str, value: f64) {
        self.finite_and(key, value, value >= 0.0, "at least 0");
    }

    fn finite_and(&mut self, key: &str, value: f64, condition: bool, bound: &str) {
        let bound = if value.is_finite() { bound } else { "finite" };
        self.require(key, value.is_finite() && condition, || format!("must be {bound}, found {value:?}"));
    }

    /// In [0, 1), such as a dropout rate or a decay.
    pub(crate) fn fraction(&mut self, key: &str, value: f64) {
        self.require(key, (0.0..1.0).contains(&value), || format!("must be at least 0 and below 1, found {value:?}"));
    }
}
