//! The files of each data set, as published.

mod dpo;
mod jsonl;
mod longbench;
mod narrativeqa;
mod qmsum;
mod quality;

use super::config::TextConfig;
use super::document::Question;
use super::format::TextFormat;
use super::lines::Problems;
use super::records::each_record;
use crate::results::DataFile;
use crate::settings::Paths;
use crate::tasks::TaskError;
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

pub(super) use dpo::{SYSTEM, with_chosen};
pub(super) use jsonl::{CONVERSATIONS, has_calls, has_no_weight, is_answer, is_blank, is_nothing, joined};
pub(super) use longbench::{Measure, check_dataset, instructions, measure};

/// The question of one record of one's own data.
///
/// # Errors
/// Says what is missing.
pub(super) fn record(record: &Value, place: &str) -> Result<Question, String> {
    jsonl::questions(record, place).map(|mut questions| questions.swap_remove(0))
}

/// The questions in the files of `paths`.
///
/// # Errors
/// When a file cannot be read or is empty.
pub(super) fn read(
    key: &'static str,
    paths: &Paths,
    config: &TextConfig,
    problems: &mut Problems,
) -> Result<(Vec<Question>, Vec<DataFile>), TaskError> {
    let mut questions = Vec::new();
    if config.format == TextFormat::NarrativeQa {
        let files = narrativeqa::read(key, paths, config, problems, &mut questions)?;
        return Ok((questions, files));
    }
    let reader: fn(&Value, &str) -> Result<Vec<Question>, String> = match config.format {
        TextFormat::Quality => quality::questions,
        TextFormat::QmSum => qmsum::questions,
        TextFormat::LongBench => longbench::questions,
        TextFormat::Dpo => dpo::questions,
        TextFormat::Jsonl | TextFormat::NarrativeQa => jsonl::questions,
    };
    let mut files = Vec::new();
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
