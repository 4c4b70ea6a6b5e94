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

pub(super) use dpo::with_chosen;
pub(super) use jsonl::{CONVERSATIONS, has_calls, is_answer, is_blank, is_nothing, joined};
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
    for path in &paths.0 {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let stem = name.split('.').next().unwrap_or_default().to_owned();
        files.push(each_record(key, path, problems, |line, value| {
            let origin = || format!("{}:{line}", path.display());
            let found = reader(value, &format!("{stem}/{line}"))?;
            questions.extend(found.into_iter().map(|question| Question { origin: origin(), ..question }));
            Ok(())
        })?);
    }
    Ok((questions, files))
}
