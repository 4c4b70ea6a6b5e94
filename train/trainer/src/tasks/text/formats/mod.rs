//! Data sets: one file each, with what it differs in from the others and the reader of its files, as published.
//!
//! Adding one is such a file and a line in [`FORMATS`].

pub(super) mod dpo;
pub(super) mod jsonl;
pub(super) mod longbench;
pub(super) mod narrativeqa;
pub(super) mod qmsum;
pub(super) mod quality;

use super::config::TextConfig;
use super::document::Question;
use super::lines::Problems;
use super::records::each_record;
use crate::metrics::TextMetric;
use crate::results::DataFile;
use crate::settings::Paths;
use crate::tasks::TaskError;
use clap::builder::PossibleValue;
use serde_json::Value;
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

pub(super) use dpo::{SYSTEM, with_chosen};
pub(super) use jsonl::{CONVERSATIONS, has_calls, has_no_weight, is_answer, is_blank, is_nothing, joined};
pub(crate) use longbench::LONGBENCH_SCORE;
pub(super) use longbench::{Measure, check_dataset, instructions, measure};

/// The formats that can be read.
static FORMATS: [&TextFormat; 6] =
    [&quality::FORMAT, &qmsum::FORMAT, &narrativeqa::FORMAT, &longbench::FORMAT, &jsonl::FORMAT, &dpo::FORMAT];

/// A data set's format.
pub struct TextFormat {
    /// `task.kind`.
    pub name: &'static str,
    /// The data set in a line.
    summary: &'static str,
    /// The default prompt; `None` when every line names a data set, which decides prompt, length of the answer and metric.
    pub(super) prompt: Option<&'static str>,
    /// The default answer.
    pub(super) answer: &'static str,
    /// What a prompt may name, the document first; `None` when each line has fields of its own.
    pub(super) prompt_fields: Option<&'static [&'static str]>,
    /// What an answer may name.
    pub(super) answer_fields: Option<&'static [&'static str]>,
    /// The keys of `[task]` that are not for every format.
    keys: &'static [&'static str],
    /// The default repetition penalty: the released one for QMSum and NarrativeQA, 1 for the others.
    pub(super) repetition_penalty: f64,
    /// Metrics of generated answers.
    pub metrics: &'static [TextMetric],
    /// A figure of generated answers besides, by which adapters are compared in place of the first metric.
    pub figure: Option<&'static str>,
    /// Whether an answer is the label of one of several options.
    pub(super) has_choices: bool,
    /// Whether records are pairs of answers.
    pub(super) has_pairs: bool,
    /// Whether records are one's own, with whatever fields or messages they have.
    pub(super) is_own: bool,
    /// What reads its files.
    reader: Reader,
}

/// The questions in files, and the files.
type Found = Result<(Vec<Question>, Vec<DataFile>), TaskError>;

/// What reads the files of a format.
enum Reader {
    /// The questions of a record, given its place.
    Records(fn(&Value, &str) -> Result<Vec<Question>, String>),
    /// As [`TextFormat::read`].
    Files(fn(&'static str, &Paths, &TextConfig, &mut Problems) -> Found),
}

impl TextFormat {
    /// Values of `task.kind`.
    pub(super) const NAMES: [&'static str; FORMATS.len()] = {
        let mut names = [""; FORMATS.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = FORMATS[i].name;
            i += 1;
        }
        names
    };

    /// The format of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.into_iter().find(|format| format.name == name)
    }

    /// The questions in the files of `paths`, which the key or option `key` names.
    ///
    /// # Errors
    /// When a file cannot be read or is empty.
    pub(super) fn read(&self, key: &'static str, paths: &Paths, config: &TextConfig, problems: &mut Problems) -> Found {
        match self.reader {
            Reader::Records(reader) => from_records(key, paths, problems, reader),
            Reader::Files(read) => read(key, paths, config, problems),
        }
    }

    /// Whether a key of `[task]` that is not for every format is for this one.
    pub(super) fn takes(&self, key: &str) -> bool {
        self.keys.contains(&key)
    }

    /// Whether every line names its data set.
    pub fn names_data_sets(&self) -> bool {
        self.prompt.is_none()
    }
}

impl fmt::Debug for TextFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for TextFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Default for &'static TextFormat {
    fn default() -> Self {
        &jsonl::FORMAT
    }
}

impl clap::ValueEnum for &'static TextFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &FORMATS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name).help(self.summary))
    }
}

/// The question of one record of one's own data.
///
/// # Errors
/// Says what is missing.
pub(super) fn record(record: &Value, place: &str) -> Result<Question, String> {
    jsonl::questions(record, place).map(|mut questions| questions.swap_remove(0))
}

/// The questions in files of which `reader` reads each record.
fn from_records(
    key: &'static str,
    paths: &Paths,
    problems: &mut Problems,
    reader: fn(&Value, &str) -> Result<Vec<Question>, String>,
) -> Found {
    let (mut questions, mut files) = (Vec::new(), Vec::new());
    for (path, stem) in paths.0.iter().zip(stems(&paths.0)) {
        files.push(each_record(key, path, problems, |line, value| {
            let origin = || format!("{}:{line}", path.display());
            let found = reader(value, &format!("{stem}/{line}"))?;
            questions.extend(found.into_iter().map(|question| Question { origin: origin(), ..question }));
            Ok(())
        })?);
    }
    Ok((questions, files))
}

/// The names of files up to the first dot, for the ids of their lines: with as many folders before them as it takes to
/// tell the files apart, and the whole path where that does not.
fn stems(paths: &[PathBuf]) -> Vec<String> {
    let stem = |path: &Path, folders: usize| {
        let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
        let (name, before) = parts.split_last().map_or(("", &[][..]), |(name, before)| (&**name, before));
        let before = before[before.len().saturating_sub(folders)..].iter().map(|part| &**part);
        before.chain(name.split('.').next()).collect::<Vec<_>>().join("/")
    };
    let most = paths.iter().map(|path| path.components().count()).max().unwrap_or(0);
    (0..=most)
        .map(|folders| paths.iter().map(|path| stem(path, folders)).collect::<Vec<_>>())
        .find(|stems| stems.iter().collect::<HashSet<_>>().len() == stems.len())
        .unwrap_or_else(|| paths.iter().map(|path| path.display().to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_name_are_told_apart_by_their_folders() {
        let of = |paths: &[&str]| stems(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(of(&["data/a.jsonl.gz", "b.jsonl"]), ["a", "b"]);
        assert_eq!(of(&["x/a/train.jsonl", "x/b/train.jsonl", "c.jsonl"]), ["a/train", "b/train", "c"]);
        assert_eq!(of(&["a/train.jsonl", "a/train.jsonl.gz"]), ["a/train.jsonl", "a/train.jsonl.gz"]);
        assert!(of(&[]).is_empty());
    }
}
