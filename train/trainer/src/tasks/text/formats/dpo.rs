//! Pairs of answers, `prompt`, `chosen` and `rejected`: texts, or lists of messages. Without a `prompt`, `chosen` and `rejected` are whole
//! conversations, which begin the same.

use super::super::document::{Document, Question};
use super::super::lines::{filled, id, list, others};
use super::jsonl::{message, says, tools};
use super::{Reader, TextFormat};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// `kind = "dpo"`.
pub(in super::super) static FORMAT: TextFormat = TextFormat {
    name: "dpo",
    summary: "Pairs of answers, one preferred, for direct preference optimization",
    prompt: Some("{prompt}"),
    answer: "{chosen}",
    prompt_fields: Some(&["prompt", SYSTEM]),
    answer_fields: Some(&["chosen"]),
    keys: &["roles", "chat_template_kwargs", "beta"],
    repetition_penalty: 1.0,
    metrics: &[],
    figure: None,
    has_choices: false,
    has_pairs: true,
    is_own: true,
    reader: Reader::Records(questions),
};

fn questions(record: &Value, place: &str) -> Result<Vec<Question>, String> {
    let id = id(record).unwrap_or_else(|| place.to_owned());
    let document = Arc::new(Document { id: id.clone(), ..Document::default() });
    let question = match record.get("chosen") {
        Some(Value::Array(_)) => conversations(record)?,
        _ => texts(record)?,
    };
    Ok(vec![Question { id, document, ..question }])
}

/// A pair as a record of one's own: its prompt with the chosen answer.
///
/// # Errors
/// When it is no pair.
pub(in super::super) fn with_chosen(pair: &Value) -> Result<Value, String> {
    let question = if pair["chosen"].is_array() { conversations(pair)? } else { texts(pair)? };
    let mut record = pair.clone();
    if let Some(fields) = record.as_object_mut() {
        ["prompt", "chosen", "rejected"].iter().for_each(|key| drop(fields.remove(*key)));
    }
    if question.messages.is_empty() {
        record["prompt"] = question.fields["prompt"].as_str().into();
        record["completion"] = question.fields["chosen"].as_str().into();
    } else {
        record["messages"] = question.messages.into();
    }
    Ok(record)
}

fn texts(record: &Value) -> Result<Question, String> {
    let mut fields = BTreeMap::new();
    if record.get("prompt").is_none() {
        let there = others(record);
        return Err(format!("has no `prompt`, which two texts need (two lists of messages may begin with it){there}"));
    }
    for key in ["prompt", "chosen", "rejected"] {
        fields.insert(key.to_owned(), filled(record, key)?.to_owned());
    }
    if fields["chosen"] == fields["rejected"] {
        return Err(SAME.to_owned());
    }
    let system = record.get("system").and_then(Value::as_str).filter(|system| !system.trim().is_empty());
    fields.extend(system.map(|system| (SYSTEM.to_owned(), system.to_owned())));
    Ok(Question { references: vec![fields["chosen"].clone()], fields, ..Question::default() })
}

/// What a prompt of texts may name beside `prompt`.
pub(in super::super) const SYSTEM: &str = "system";

const SAME: &str = "`chosen` and `rejected` are the same";

fn conversations(record: &Value) -> Result<Question, String> {
    let [mut chosen, mut rejected] = [messages(record, "chosen")?, messages(record, "rejected")?];
    if chosen == rejected {
        return Err(SAME.to_owned());
    }
    let prompt = match record.get("prompt") {
        Some(Value::Array(_)) => {
            let prompt = messages(record, "prompt")?;
            for answer in [&mut chosen, &mut rejected] {
                if answer.starts_with(&prompt) {
                    answer.drain(..prompt.len());
                }
            }
            prompt
        }
        // Beside whole conversations a text repeats what they begin with.
        Some(Value::String(text)) if chosen[0]["role"] == "assistant" => vec![json!({"role": "user", "content": text})],
        _ => {
            let same = chosen.iter().zip(&rejected).take_while(|(x, y)| x == y).count();
            rejected.drain(..same);
            chosen.drain(..same).collect()
        }
    };
    let prompt = match record.get("system").and_then(Value::as_str).filter(|system| !system.trim().is_empty()) {
        Some(system) if prompt.first().is_some_and(|first| first["role"] != "system") => {
            [vec![json!({"role": "system", "content": system})], prompt].concat()
        }
        Some(system) if prompt.first().is_some_and(|first| first["content"] != system) => {
            return Err("has a `system` and another system message in its conversation: keep one of them".to_owned());
        }
        _ => prompt,
    };
    if prompt.is_empty() {
        return Err("has no `prompt`, and `chosen` and `rejected` do not begin the same".to_owned());
    }
    for (key, answer) in [("chosen", &chosen), ("rejected", &rejected)] {
        if !answer.last().is_some_and(says) {
            return Err(format!("`{key}` must end with what the assistant says"));
        }
    }
    let [messages, rejected] = [chosen, rejected].map(|answer| [&prompt[..], &answer].concat());
    let (shared, tools) = (prompt.len(), tools(record)?);
    Ok(Question { messages, tools, rejected, shared, ..Question::default() })
}

fn messages(record: &Value, key: &str) -> Result<Vec<Value>, String> {
    let one = |(index, value)| message(value).map_err(|problem| format!("`{key}`, message {}: {problem}", index + 1));
    let all: Vec<Value> = list(record, key)?.iter().enumerate().map(one).collect::<Result<_, _>>()?;
    if all.is_empty() { Err(format!("`{key}` is empty")) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(record: &Value) -> Result<Question, String> {
        questions(record, "f/1").map(|mut questions| questions.swap_remove(0))
    }

    fn said(role: &str, content: &str) -> Value {
        json!({"role": role, "content": content})
    }

    #[test]
    fn what_the_system_says_begins_both_conversations() {
        let (user, good, bad) = (said("user", "Hi"), said("assistant", "Hello."), said("assistant", "Go away."));
        let record = json!({"system": "Be kind.", "prompt": [user], "chosen": [good], "rejected": [bad]});
        let question = read(&record).unwrap();
        let system = said("system", "Be kind.");
        assert_eq!((question.messages, question.shared), (vec![system.clone(), user.clone(), good.clone()], 2));
        assert_eq!(question.rejected, [system, user.clone(), bad.clone()]);
        let other = json!({"system": "Be kind.", "prompt": [said("system", "Be brief."), user], "chosen": [good], "rejected": [bad]});
        let problem = "has a `system` and another system message in its conversation: keep one of them";
        assert_eq!(read(&other).unwrap_err(), problem);
    }

    #[test]
    fn a_prompt_that_the_answers_repeat_is_said_once() {
        let (user, good, bad) = (said("user", "Hi"), said("assistant", "Hello."), said("assistant", "Go away."));
        let record = json!({"prompt": [user], "chosen": [user, good], "rejected": [user, bad]});
        let question = read(&record).unwrap();
        assert_eq!((question.messages, question.shared), (vec![user.clone(), good], 1));
        assert_eq!(question.rejected, [user, bad]);
    }

    #[test]
    fn texts_and_conversations() {
        let plain = read(&json!({"prompt": "Hi", "chosen": " Hello.", "rejected": " Go away."})).unwrap();
        assert_eq!((&plain.fields["chosen"][..], &plain.references[0][..]), (" Hello.", " Hello."));
        let (user, good, bad) = (said("user", "Hi"), said("assistant", "Hello."), said("assistant", "Go away."));
        for record in [
            json!({"prompt": [user], "chosen": [good], "rejected": [bad]}),
            json!({"chosen": [user, good], "rejected": [user, bad]}),
            json!({"prompt": "Hi", "chosen": [user, good], "rejected": [user, bad]}),
            json!({"prompt": "Hi", "chosen": [good], "rejected": [bad]}),
            json!({"prompt": "Hi", "chosen": [{"from": "gpt", "value": "Hello."}], "rejected": [bad]}),
        ] {
            let question = read(&record).unwrap();
            assert_eq!((question.shared, &question.messages), (1, &vec![user.clone(), good.clone()]));
            assert_eq!(question.rejected, [user.clone(), bad.clone()]);
        }
    }

    #[test]
    fn answers_may_be_calls() {
        let call = |name: &str| json!({"role": "assistant", "content": null, "tool_calls": [{"name": name}]});
        let (user, good, bad) = (said("user", "Hi"), call("greet"), call("leave"));
        let question = read(&json!({"prompt": [user], "chosen": [good], "rejected": [bad]})).unwrap();
        assert_eq!((question.messages, question.rejected), (vec![user.clone(), good], vec![user, bad]));
    }

    #[test]
    fn what_cannot_be_used() {
        let (user, good) = (said("user", "Hi"), said("assistant", "Hello."));
        for (record, problem) in [
            (json!({"prompt": "Hi", "chosen": "x"}), "has no `rejected`; there are `prompt`, `chosen`"),
            (json!({"prompt": "Hi", "chosen": " ", "rejected": "x"}), "`chosen` is empty"),
            (json!({"prompt": "Hi", "chosen": "x", "rejected": "x"}), SAME),
            (json!({"prompt": [user], "chosen": [good], "rejected": "x"}), "`rejected` is a text, expected a list"),
            (
                json!({"chosen": [good], "rejected": [user, good]}),
                "has no `prompt`, and `chosen` and `rejected` do not begin the same",
            ),
            (
                json!({"prompt": [user], "chosen": [good], "rejected": [user]}),
                "`rejected` must end with what the assistant says",
            ),
            (json!({"prompt": [user], "chosen": [], "rejected": [good]}), "`chosen` is empty"),
            (json!({"prompt": [3], "chosen": [good], "rejected": [user]}), "`prompt`, message 1: is not an object"),
        ] {
            assert_eq!(read(&record).unwrap_err(), problem);
        }
    }
}
