//! QMSum: a line is a meeting with general and specific queries.

use super::super::document::{Document, Question};
use super::super::lines::{filled, list, text};
use super::{Reader, TextFormat};
use crate::metrics::TextMetric;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `kind = "qmsum"`.
pub(in super::super) static FORMAT: TextFormat = TextFormat {
    name: "qmsum",
    summary: "QMSum: meetings with queries",
    prompt: Some("Meeting transcript:\n{query}\n\n{transcript}\n\nSummary:"),
    answer: " {answer}",
    prompt_fields: Some(&["transcript", "query", "kind"]),
    answer_fields: Some(&["answer"]),
    keys: &[],
    repetition_penalty: 1.3,
    metrics: &[
        TextMetric::Rouge1,
        TextMetric::Rouge2,
        TextMetric::RougeL,
        TextMetric::LongBenchRougeL,
        TextMetric::ReleasedRouge1Recall,
        TextMetric::ReleasedRouge2Recall,
    ],
    figure: None,
    has_choices: false,
    has_pairs: false,
    is_own: false,
    reader: Reader::Records(questions),
};

fn questions(record: &Value, place: &str) -> Result<Vec<Question>, String> {
    let turn = |turn: &Value| Ok(format!("{}: {}", text(turn, "speaker")?, text(turn, "content")?));
    let turns: Vec<String> = list(record, "meeting_transcripts")?.iter().map(turn).collect::<Result<_, String>>()?;
    if turns.is_empty() {
        return Err("`meeting_transcripts` is empty".to_owned());
    }
    let document = Arc::new(Document { id: place.to_owned(), text: turns.join("\n") });
    let mut all = Vec::new();
    for (kind, key) in [("general", "general_query_list"), ("specific", "specific_query_list")] {
        for (index, query) in list(record, key)?.iter().enumerate() {
            let inside = |problem: String| format!("`{key}` {}: {problem}", index + 1);
            let (asked, answer) = (filled(query, "query").map_err(inside)?, filled(query, "answer").map_err(inside)?);
            all.push(Question {
                id: format!("{place}/{kind}/{}", index + 1),
                document: Arc::clone(&document),
                fields: BTreeMap::from([
                    ("query".to_owned(), asked.to_owned()),
                    ("kind".to_owned(), kind.to_owned()),
                    ("answer".to_owned(), answer.to_owned()),
                ]),
                references: vec![answer.to_owned()],
                ..Question::default()
            });
        }
    }
    Ok(all)
}
