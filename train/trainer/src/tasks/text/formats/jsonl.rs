//! One's own data: a line has a prompt and a completion, or whatever fields the templates name, or the messages of a
//! conversation.

use super::super::document::{Document, Question};
use super::super::lines::{list, text, texts};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn questions(record: &Value, place: &str) -> Result<Vec<Question>, String> {
    let id = record.get("id").and_then(Value::as_str).unwrap_or(place).to_owned();
    let question = if record.get("messages").is_some() { conversation(record)? } else { fields(record)? };
    let document = Arc::new(Document { id: id.clone(), ..Document::default() });
    Ok(vec![Question { id, document, ..question }])
}

/// Every text and number of the line is a field.
fn fields(record: &Value) -> Result<Question, String> {
    let value = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let entries = record.as_object().into_iter().flatten();
    let fields: BTreeMap<String, String> =
        entries.filter_map(|(key, entry)| Some((key.clone(), value(entry)?))).collect();
    let references = if record.get("references").is_some() { texts(record, "references")? } else { Vec::new() };
    Ok(Question { fields, references, ..Question::default() })
}

fn conversation(record: &Value) -> Result<Question, String> {
    let mut turns = Vec::new();
    for (index, message) in list(record, "messages")?.iter().enumerate() {
        let inside = |problem: String| format!("message {}: {problem}", index + 1);
        let (role, content) = (text(message, "role").map_err(inside)?, text(message, "content").map_err(inside)?);
        if !["system", "user", "assistant"].contains(&role) {
            return Err(inside(format!("`role` is {role:?}, expected system, user or assistant")));
        }
        turns.push((role.to_owned(), content.to_owned()));
    }
    match turns.last() {
        Some((role, content)) if role == "assistant" && !content.trim().is_empty() => {
            let references = vec![content.clone()];
            Ok(Question { references, turns, ..Question::default() })
        }
        _ => Err("`messages` must end with what the assistant says".to_owned()),
    }
}
