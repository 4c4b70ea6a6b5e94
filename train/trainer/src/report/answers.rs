//! Generated answers beside their references, a few of each run.

use super::Section;
use super::html::{Text, paragraph, subheading};
use super::run::Run;
use crate::results::Split;
use crate::tasks::text::Prediction;
use hankel_io::input;
use hankel_io::name::component;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Questions that are shown.
const SHOWN: usize = 3;
/// Longest line of a file of answers that is read, in bytes.
const LONGEST: u64 = 1 << 20;
/// Characters of an answer that are shown.
const CUT: usize = 600;

/// The first answers of a row.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// The row.
    pub row: String,
    /// The part of the data.
    pub split: String,
    /// The answers.
    pub first: Vec<Prediction>,
}

/// The first answers that a run left of every row in `rows`, on test if it has them, else on validation.
pub(super) fn read<'a>(run: &Path, rows: impl Iterator<Item = &'a str>) -> Vec<Answers> {
    let of = |row: &str, split: Split| {
        let name = component("row", &format!("{row}-{}.jsonl", split.name())).ok()?.to_owned();
        let mut lines = BufReader::new(input::open(&run.join("predictions").join(name)).ok()?);
        let next = || {
            let mut line = String::new();
            (&mut lines).take(LONGEST).read_line(&mut line).ok()?;
            serde_json::from_str(&line).ok()
        };
        let first: Vec<Prediction> = std::iter::from_fn(next).take(SHOWN).collect();
        (!first.is_empty()).then(|| Answers { row: row.to_owned(), split: split.name().to_owned(), first })
    };
    rows.filter_map(|row| of(row, Split::Test).or_else(|| of(row, Split::Validation))).collect()
}

/// The first questions of every run, with what each row answered.
pub(super) fn section(runs: &[Run]) -> Section {
    let mut html = String::new();
    for run in runs.iter().filter(|run| !run.answers.is_empty()) {
        if runs.len() > 1 {
            html += &subheading(&run.name);
        }
        let first = &run.answers[0];
        html += &paragraph(format!("The first {} questions of the {} part.", first.first.len(), first.split));
        for question in &first.first {
            let references = question.references.join(" | ");
            let _ = write!(html, "<h3>{}</h3>\n<dl class=\"answers\">\n", Text(&question.id));
            let mut item = |name: &str, text: &str| {
                let cut: String = text.chars().take(CUT).collect();
                let more = if cut.len() < text.len() { " ..." } else { "" };
                let _ = writeln!(html, "<dt>{}</dt><dd>{}{more}</dd>", Text(name), Text(cut));
            };
            item("reference", &references);
            for answers in &run.answers {
                let own = answers.first.iter().find(|own| own.id == question.id && answers.split == first.split);
                if let Some(own) = own {
                    item(&answers.row, &own.prediction);
                }
            }
            html += "</dl>\n";
        }
    }
    Section { title: "Answers".into(), html, ..Section::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn answers_stand_beside_their_references() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("predictions")).unwrap();
        let line = |id: usize, text: &str| {
            format!("{{\"id\":\"q{id}\",\"prediction\":{text:?},\"references\":[\"right <b>\",\"also\"]}}\n")
        };
        let file = |name: &str, text: &str| {
            let lines: String = (0..5).map(|id| line(id, text)).collect();
            fs::write(place.path().join("predictions").join(name), lines).unwrap();
        };
        file("none-validation.jsonl", "I do not know");
        file("hrm-validation.jsonl", &"long ".repeat(500));
        let answers = read(place.path(), ["none", "hrm", "../x", "lora"].into_iter());
        assert_eq!(
            answers.iter().map(|answers| (answers.row.as_str(), answers.first.len())).collect::<Vec<_>>(),
            [("none", 3), ("hrm", 3)]
        );
        let html = section(&[Run { answers, ..Run::default() }]).html;
        assert_eq!(html.matches("<dt>reference</dt><dd>right &lt;b&gt; | also</dd>").count(), SHOWN);
        assert_eq!(html.matches("<dt>none</dt><dd>I do not know</dd>").count(), SHOWN);
        assert!(html.contains("long  ...</dd>") && !html.contains("q3") && html.contains("validation part"), "{html}");
    }
}
