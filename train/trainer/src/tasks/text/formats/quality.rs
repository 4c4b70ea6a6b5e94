//! QuALITY: a line is an article with its questions, `gold_label` counts options from 1.

use super::super::document::{Document, Question};
use super::super::lines::{filled, list, texts};
use super::{Reader, TextFormat};
use crate::results::metric;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `kind = "quality"`.
pub(in super::super) static FORMAT: TextFormat = TextFormat {
    name: "quality",
    summary: "QuALITY: articles with multiple-choice questions",
    prompt: Some("Article:\n{article}\n\nQuestion: {question}\n{options}\nAnswer:"),
    answer: " {answer}",
    prompt_fields: Some(&["article", "question", "options", "title"]),
    answer_fields: Some(&["answer", "answer_text"]),
    keys: &[],
    // With the released 1.3 `A` is hardly ever answered where the prompt has that word.
    repetition_penalty: 1.0,
    metrics: &[],
    figure: Some(metric::ACCURACY),
    has_choices: true,
    has_pairs: false,
    is_own: false,
    reader: Reader::Records(questions),
};

fn questions(record: &Value, place: &str) -> Result<Vec<Question>, String> {
    let article = filled(record, "article")?.to_owned();
    let title = record.get("title").and_then(Value::as_str).unwrap_or_default().to_owned();
    let id = record.get("article_id").and_then(Value::as_str).unwrap_or(place).to_owned();
    let document = Arc::new(Document { id, text: article });
    let one = |(index, question): (usize, &Value)| {
        let number = index + 1;
        let inside = |problem: String| format!("question {number}: {problem}");
        let text = filled(question, "question").map_err(inside)?;
        let options = texts(question, "options").map_err(inside)?;
        let gold =
            question.get("gold_label").and_then(Value::as_u64).ok_or_else(|| inside("has no `gold_label`".into()))?;
        let right = usize::try_from(gold).ok().and_then(|gold| options.get(gold.wrapping_sub(1)));
        let right = right
            .cloned()
            .ok_or_else(|| inside(format!("`gold_label` is {gold}, but there are {} options", options.len())))?;
        let labels: Vec<String> = ('A'..='Z').take(options.len()).map(String::from).collect();
        let written: Vec<String> =
            labels.iter().zip(&options).map(|(label, option)| format!("{label}: {option}")).collect();
        let label = labels.get(gold as usize - 1).ok_or_else(|| inside("has more than 26 options".into()))?;
        let fields = BTreeMap::from([
            ("question".to_owned(), text.to_owned()),
            ("options".to_owned(), written.join("\n")),
            ("title".to_owned(), title.clone()),
            ("answer".to_owned(), label.clone()),
            ("answer_text".to_owned(), right),
        ]);
        // An article can be on several lines, with other questions on each.
        let own = question.get("question_unique_id").and_then(Value::as_str).map(str::to_owned);
        Ok(Question {
            id: own.unwrap_or_else(|| format!("{}/{number}", document.id)),
            document: Arc::clone(&document),
            fields,
            references: vec![label.clone()],
            options: labels.iter().cloned().zip(options).collect(),
            ..Question::default()
        })
    };
    list(record, "questions")?.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_published() {
        let line = |id: &str| {
            format!(
                "{{\"article_id\": \"52845\", \"set_unique_id\": \"52845_{id}\", \"title\": \"T\", \"article\": \"Once.\", \
                 \"questions\": [{{\"question\": \"Who?\", \"question_unique_id\": \"52845_{id}_1\", \"options\": [\"a\", \
                 \"b\", \"c\", \"d\"], \"gold_label\": 3, \"writer_label\": 3, \"difficult\": 1}}]}}"
            )
        };
        let read = |id| questions(&serde_json::from_str(&line(id)).unwrap(), "train/1").unwrap().remove(0);
        let (one, other) = (read("A1"), read("B2"));
        assert_eq!((&one.id[..], &other.id[..]), ("52845_A1_1", "52845_B2_1"));
        assert_eq!((&one.document.id[..], &one.references[..]), ("52845", &["C".to_owned()][..]));
        assert_eq!(one.fields["options"], "A: a\nB: b\nC: c\nD: d");
    }
}
