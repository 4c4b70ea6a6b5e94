//! LongBench: a line is a context with an input and its answers; the data set decides prompt, length and metric.
//!
//! Prompts, lengths and metrics are those of `THUDM/LongBench`, `LongBench/config` (MIT), for the data sets in English; the
//! Chinese ones need word segmentation to be scored and the two on code another similarity.

use super::super::document::{Document, Question};
use super::super::lines::{filled, text, texts};
use super::{Reader, TextFormat};
use crate::metrics::{TextMetric, longbench};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of LongBench's own metric.
pub(crate) const LONGBENCH_SCORE: &str = "longbench_score";

/// `kind = "longbench"`.
pub(in super::super) static FORMAT: TextFormat = TextFormat {
    name: "longbench",
    summary: "LongBench: contexts with inputs, prompt and metric by data set",
    prompt: None,
    answer: " {answer}",
    prompt_fields: Some(&["context", "input", "dataset"]),
    answer_fields: Some(&["answer"]),
    keys: &[],
    repetition_penalty: 1.0,
    metrics: &[],
    figure: Some(LONGBENCH_SCORE),
    has_choices: false,
    has_pairs: false,
    is_own: false,
    reader: Reader::Records(questions),
};

/// How answers of a data set are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// A metric of texts.
    Text(TextMetric),
    /// Whether the right class, among all, is named.
    Classification,
    /// Share of the named paragraphs that are the right one.
    Retrieval,
    /// Share of the named numbers that are the right one.
    Count,
}

struct Dataset {
    name: &'static str,
    prompt: &'static str,
    max_new_tokens: usize,
    measure: Measure,
}

const F1: Measure = Measure::Text(TextMetric::TokenF1);
const ROUGE: Measure = Measure::Text(TextMetric::LongBenchRougeL);

macro_rules! dataset {
    ($name:literal, $tokens:literal, $measure:expr) => {
        Dataset {
            name: $name,
            prompt: include_str!(concat!("longbench_prompts/", $name, ".txt")),
            max_new_tokens: $tokens,
            measure: $measure,
        }
    };
}

const DATASETS: &[Dataset] = &[
    dataset!("narrativeqa", 128, F1),
    dataset!("qasper", 128, F1),
    dataset!("multifieldqa_en", 64, F1),
    dataset!("hotpotqa", 32, F1),
    dataset!("2wikimqa", 32, F1),
    dataset!("musique", 32, F1),
    dataset!("gov_report", 512, ROUGE),
    dataset!("qmsum", 512, ROUGE),
    dataset!("multi_news", 512, ROUGE),
    dataset!("trec", 64, Measure::Classification),
    dataset!("triviaqa", 32, F1),
    dataset!("samsum", 128, ROUGE),
    dataset!("passage_retrieval_en", 32, Measure::Retrieval),
    dataset!("passage_count", 32, Measure::Count),
];

fn find(name: &str) -> Option<&'static Dataset> {
    DATASETS.iter().find(|dataset| dataset.name == name)
}

/// The prompt of a data set, and how many tokens its answers take at most.
pub(crate) fn instructions(dataset: &str) -> Option<(&'static str, usize)> {
    find(dataset).map(|dataset| (dataset.prompt, dataset.max_new_tokens))
}

/// How answers of a data set are scored, and the part of a prediction that counts.
pub(crate) fn measure<'a>(dataset: &str, prediction: &'a str) -> Option<(Measure, &'a str)> {
    let found = find(dataset)?;
    let first_line = matches!(found.name, "trec" | "triviaqa" | "samsum");
    let text = prediction.trim_start_matches('\n');
    Some((found.measure, if first_line { text.split('\n').next().unwrap_or_default() } else { prediction }))
}

/// Whether the answers of a line can be scored by the metric of its data set.
///
/// # Errors
/// When there is no such data set, or its metric needs classes and the line has none.
pub(crate) fn check_dataset(name: &str, classes: &[String]) -> Result<(), String> {
    let Some(dataset) = find(name) else {
        let known: Vec<&str> = DATASETS.iter().map(|dataset| dataset.name).collect();
        return Err(format!("`dataset` is {name:?}; there are {}", known.join(", ")));
    };
    if dataset.measure == Measure::Classification && classes.is_empty() {
        return Err(format!("has no `all_classes`, among which answers of {name:?} are scored"));
    }
    Ok(())
}

impl Measure {
    /// The score of a prediction, between 0 and 1: the best over the references.
    pub(crate) fn score(self, prediction: &str, references: &[String], classes: &[String]) -> f64 {
        let against = |reference: &String| match self {
            Measure::Text(metric) => metric.score(prediction, &[reference]),
            Measure::Classification => longbench::classification(prediction, reference, classes),
            Measure::Retrieval => longbench::retrieval(prediction, reference),
            Measure::Count => longbench::count(prediction, reference),
        };
        references.iter().map(against).fold(0.0, f64::max)
    }
}

fn questions(record: &Value, place: &str) -> Result<Vec<Question>, String> {
    let name = filled(record, "dataset")?;
    let classes = match record.get("all_classes") {
        None | Some(Value::Null) => Vec::new(),
        Some(_) => texts(record, "all_classes")?,
    };
    check_dataset(name, &classes)?;
    let references = texts(record, "answers")?;
    let answer = references.first().filter(|answer| !answer.trim().is_empty()).ok_or("`answers` is empty")?.clone();
    let id = record.get("_id").and_then(Value::as_str).unwrap_or(place).to_owned();
    Ok(vec![Question {
        document: Arc::new(Document { id: id.clone(), text: filled(record, "context")?.to_owned() }),
        fields: BTreeMap::from([
            // Some data sets have no input.
            ("input".to_owned(), text(record, "input").unwrap_or_default().to_owned()),
            ("dataset".to_owned(), name.to_owned()),
            ("answer".to_owned(), answer),
        ]),
        references,
        classes,
        dataset: Some(name.to_owned()),
        id,
        ..Question::default()
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_that_cannot_be_scored() {
        let record = |dataset: &str, classes: Value| {
            let answers = json!(["Food"]);
            json!({"dataset": dataset, "context": "x", "answers": answers, "all_classes": classes})
        };
        for (record, problem) in [
            (record("trec", json!(null)), "has no `all_classes`, among which answers of \"trec\" are scored"),
            (record("trec", json!([])), "has no `all_classes`, among which answers of \"trec\" are scored"),
            (record("lsht", json!(["Food"])), "`dataset` is \"lsht\"; there are narrativeqa, qasper,"),
        ] {
            let found = questions(&record, "f/1").unwrap_err();
            assert!(found.starts_with(problem), "{found}");
        }
        assert_eq!(questions(&record("trec", json!(["Food", "Animal"])), "f/1").unwrap()[0].classes.len(), 2);
        assert!(questions(&record("qasper", json!(null)), "f/1").is_ok());
    }
}
