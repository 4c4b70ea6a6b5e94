//! One's own data. A record is
//!
//! - the messages of a conversation: `messages` (`role`, `content`), or `conversations` (`from`, `value`: ShareGPT), or its two parts, `prompt`
//!   and `completion` (TRL);
//! - an instruction: `instruction`, `input` (may be empty or missing), `output` (Alpaca);
//! - a `prompt` and a `completion`, or whatever fields the templates name.

use super::super::document::{Document, Question};
use super::super::lines::{id, list, one_or_more, others, scalar, text};
use super::{Reader, TextFormat};
use crate::metrics::TextMetric;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// `kind = "jsonl"`.
pub(in super::super) static FORMAT: TextFormat = TextFormat {
    name: "jsonl",
    summary: "One's own prompts and completions, or conversations",
    prompt: Some("{prompt}"),
    answer: "{completion}",
    prompt_fields: None,
    answer_fields: None,
    keys: &["document", "roles", "chat_template_kwargs"],
    repetition_penalty: 1.0,
    metrics: &[TextMetric::ExactMatch, TextMetric::TokenF1, TextMetric::RougeL],
    figure: None,
    has_choices: false,
    has_pairs: false,
    is_own: true,
    reader: Reader::Records(questions),
};

pub(super) fn questions(record: &Value, place: &str) -> Result<Vec<Question>, String> {
    let id = id(record).unwrap_or_else(|| place.to_owned());
    let joined = joined(record)?;
    // What the assistant says in a prompt is read, what completes it is learned.
    let messages = |record: &Value, key: &str| record[key].as_array().map_or(0, Vec::len);
    let completing = joined.as_ref().map(|joined| messages(joined, "messages") - messages(record, "prompt"));
    if completing == Some(0) {
        return Err("`completion` is empty".to_owned());
    }
    let record = joined.as_ref().unwrap_or(record);
    let question = match CONVERSATIONS.into_iter().find(|key| is_there(record, key)) {
        Some(key) => conversation(record, key)?,
        None => fields(record)?,
    };
    let document = Arc::new(Document { id: id.clone(), ..Document::default() });
    let shared = completing.map_or(0, |completing| question.messages.len() - completing);
    Ok(vec![Question { id, document, shared, ..question }])
}

/// Keys of whole conversations.
pub(in super::super) const CONVERSATIONS: [&str; 2] = ["messages", "conversations"];

fn is_there(record: &Value, key: &str) -> bool {
    !record.get(key).is_none_or(is_nothing)
}

/// The record with its `prompt` and `completion`, where they are lists of messages, joined to `messages`.
///
/// # Errors
/// When the prompt is a list and the completion is not.
pub(in super::super) fn joined(record: &Value) -> Result<Option<Value>, String> {
    let Some(prompt) = record.get("prompt").and_then(Value::as_array) else { return Ok(None) };
    if CONVERSATIONS.into_iter().any(|key| is_there(record, key)) || !is_there(record, "completion") {
        return Ok(None);
    }
    let completion = list(record, "completion")?;
    // What a completion repeats of its prompt is not said twice.
    let completion = completion.strip_prefix(&prompt[..]).unwrap_or(completion);
    let mut joined = record.clone();
    joined["messages"] = prompt.iter().chain(completion).cloned().collect();
    if let Some(fields) = joined.as_object_mut() {
        fields.remove("prompt");
        fields.remove("completion");
    }
    Ok(Some(joined))
}

/// Every text, number, `true` and `false` of the record is a field.
fn fields(record: &Value) -> Result<Question, String> {
    let entries = record.as_object().into_iter().flatten();
    let mut fields: BTreeMap<String, String> =
        entries.filter_map(|(key, entry)| Some((key.clone(), scalar(entry)?))).collect();
    let is_list = |value: &Value| value.as_array().is_some_and(|items| items.iter().all(Value::is_object));
    if fields.is_empty() && record.as_object().is_some_and(|record| record.values().any(is_list)) {
        let is_whole = ["data", "train", "records", "examples", "rows"].iter().any(|key| record.get(key).is_some());
        let advice = if is_whole { ". A list of records has to be the whole file" } else { "" };
        return Err(format!(
            "has no conversation, which is read from `messages` or `conversations`{}{advice}",
            others(record)
        ));
    }
    let messages = instruction(&mut fields, &history(record)?);
    Ok(Question { fields, references: references(record)?, messages, ..Question::default() })
}

/// Acceptable answers that a record lists, or the one that it has; tables hold a list as a text.
fn references(record: &Value) -> Result<Vec<String>, String> {
    match record.get("references") {
        Some(Value::String(one)) if is_there(record, "references") => {
            let listed = serde_json::from_str::<Vec<Value>>(one).ok();
            let listed = listed.and_then(|listed| listed.iter().map(scalar).collect());
            Ok(listed.unwrap_or_else(|| vec![one.clone()]))
        }
        _ if is_there(record, "references") => one_or_more(record, "references"),
        _ => Ok(Vec::new()),
    }
}

/// What was said before an instruction, pairs of texts (LLaMA-Factory). A field of this name that holds no such pair is one's own.
fn history(record: &Value) -> Result<Vec<[String; 2]>, String> {
    let entries = record.get("history").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_pair =
        |entry: &Value| entry.as_array().is_some_and(|pair| pair.len() == 2 && pair.iter().any(Value::is_string));
    if !entries.iter().any(is_pair) {
        return Ok(Vec::new());
    }
    let pair = |(index, entry): (usize, &Value)| {
        let texts = match entry.as_array().map_or(&[][..], Vec::as_slice) {
            [asked, said] => scalar(asked).zip(scalar(said)),
            _ => None,
        };
        let unusable = || format!("`history`: entry {} is {entry}, expected two texts", index + 1);
        texts.map(|(asked, said)| [asked, said]).ok_or_else(unusable)
    };
    entries.iter().enumerate().map(pair).collect()
}

/// Alpaca's fields as a prompt in its published words with the completion, and as a conversation; `history` goes before.
///
/// Source: <https://github.com/tatsu-lab/stanford_alpaca>.
fn instruction(fields: &mut BTreeMap<String, String>, history: &[[String; 2]]) -> Vec<Value> {
    let [Some(instruction), Some(output)] = ["instruction", "output"].map(|key| fields.get(key).cloned()) else {
        return Vec::new();
    };
    if fields.contains_key("prompt") || fields.contains_key("completion") {
        return Vec::new();
    }
    let input = fields.get("input").map_or("", String::as_str);
    let is_alone = input.trim().is_empty();
    let (context, part) = if is_alone {
        ("", String::new())
    } else {
        (", paired with an input that provides further context", format!("### Input:\n{input}\n\n"))
    };
    let system = fields.get("system").filter(|system| !system.trim().is_empty()).cloned();
    let begin = system.clone().unwrap_or_else(|| {
        format!(
            "Below is an instruction that describes a task{context}. Write a response that appropriately completes the \
             request."
        )
    });
    let before = |[asked, said]: &[String; 2]| format!("### Instruction:\n{asked}\n\n### Response:\n{said}\n\n");
    let before: String = history.iter().map(before).collect();
    let prompt = format!("{begin}\n\n{before}### Instruction:\n{instruction}\n\n{part}### Response:");
    let asked = if is_alone { instruction } else { format!("{instruction}\n\n{input}") };
    let system = system.map(|system| json!({"role": "system", "content": system}));
    let turns = |[asked, said]: &[String; 2]| {
        [json!({"role": "user", "content": asked}), json!({"role": "assistant", "content": said})]
    };
    let last = turns(&[asked, output.clone()]);
    let messages = system.into_iter().chain(history.iter().flat_map(turns)).chain(last).collect();
    fields.extend([("prompt".to_owned(), prompt), ("completion".to_owned(), output)]);
    messages
}

fn conversation(record: &Value, key: &str) -> Result<Question, String> {
    // Tables hold a list as a text.
    let parsed = record[key].as_str().and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
    let given = match &parsed {
        Some(given) => given,
        None => list(record, key)?,
    };
    let mut messages = Vec::new();
    for (index, message) in given.iter().enumerate() {
        messages.push(self::message(message).map_err(|problem| format!("message {}: {problem}", index + 1))?);
    }
    // ShareGPT may have it beside the conversation.
    if let Some(system) = record.get("system").and_then(Value::as_str).filter(|system| !system.trim().is_empty()) {
        match messages.first().filter(|first| first["role"] == "system") {
            None => messages.insert(0, json!({"role": "system", "content": system})),
            Some(first) if first["content"] == system => {}
            Some(_) => return Err(format!("has a `system` and another system message in `{key}`: keep one of them")),
        }
    }
    let last = messages.last();
    if !last.is_some_and(says) {
        let found = match last.map(|last| last["role"].as_str().unwrap_or_default()) {
            None => "it is empty".to_owned(),
            Some("assistant") => "its last message is blank".to_owned(),
            Some(other @ ("user" | "system" | "tool")) => format!("its last message is from {other:?}"),
            Some(other) => format!(
                "its last message is from {other:?}, and the role of an answer is \"assistant\" (or \"gpt\", as ShareGPT has it)"
            ),
        };
        return Err(format!("`{key}` must end with what the assistant says; {found}"));
    }
    if messages.last().is_some_and(has_no_weight) {
        return Err(format!("`{key}` ends with an answer whose `weight` is 0: end it with one that is learnt"));
    }
    Ok(Question { references: references(record)?, messages, tools: tools(record)?, ..Question::default() })
}

/// Whether a message is an answer that can be learned: words of the assistant, or calls of tools.
pub(super) fn says(message: &Value) -> bool {
    let has_words = message["content"].as_str().is_some_and(|words| !words.trim().is_empty());
    message["role"] == "assistant" && (has_words || has_calls(message))
}

/// Whether a message is an answer that is not to be learnt, by its `weight`.
pub(in super::super) fn has_no_weight(message: &Value) -> bool {
    message["role"] == "assistant" && (message["weight"].as_f64() == Some(0.0) || message["weight"] == false)
}

/// Whether a message calls tools.
pub(in super::super) fn has_calls(message: &Value) -> bool {
    message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty())
}

/// Whether a value is null or a blank text.
pub(in super::super) fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty())
}

/// The list of tools beside a conversation, which some data sets hold as a text.
pub(super) fn tools(record: &Value) -> Result<Option<Value>, String> {
    let tools = match record.get("tools") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or(Value::Null),
        Some(tools) => tools.clone(),
    };
    match tools {
        Value::Array(tools) if tools.is_empty() => Ok(None),
        Value::Array(_) => Ok(Some(tools)),
        _ => Err("`tools` is not a list of tools, nor one as a text".to_owned()),
    }
}

/// Whether a message is what the assistant says, whatever the file calls it.
pub(in super::super) fn is_answer(message: &Value) -> bool {
    role(message).is_ok_and(|role| role == "assistant")
}

/// Whether a message has a place for words and nothing there, nor calls of tools.
pub(in super::super) fn is_blank(message: &Value) -> bool {
    let words = message.get(if is_share_gpt(message) { "value" } else { "content" });
    words.is_some_and(is_nothing) && !has_calls(message)
}

fn is_share_gpt(message: &Value) -> bool {
    message.get("from").is_some() && message.get("role").is_none()
}

/// Who says a message, whatever the file calls it.
fn role(message: &Value) -> Result<&str, String> {
    if !is_share_gpt(message) {
        return text(message, "role");
    }
    Ok(match text(message, "from")? {
        "human" | "user" => "user",
        "gpt" | "chatgpt" | "bing" | "bard" | "model" | "assistant" => "assistant",
        call @ ("function_call" | "observation") => {
            return Err(format!(
                "`from` is {call:?}: calls of tools are read from `messages` with `tool_calls`, and their results from the role `tool`"
            ));
        }
        other => other,
    })
}

/// A message with `role` and `content`, whatever the file calls them; what else it has stays.
pub(super) fn message(message: &Value) -> Result<Value, String> {
    let Some(fields) = message.as_object() else { return Err("is not an object".to_owned()) };
    let mut own = fields.clone();
    if is_share_gpt(message) {
        let said = [("role", role(message)?), ("content", text(message, "value")?)];
        own.extend(said.map(|(key, value)| (key.to_owned(), value.into())));
        own.retain(|key, _| key != "from" && key != "value");
    }
    let mut message = Value::Object(own);
    if text(&message, "role")?.trim().is_empty() {
        return Err("`role` is empty".to_owned());
    }
    if fields.get("function_call").is_some_and(Value::is_object) {
        return Err("has a `function_call`: calls are read from `tool_calls`".to_owned());
    }
    if let Some(parts) = fields.get("content").and_then(Value::as_array) {
        message["content"] = text_of(parts)?.into();
    }
    // A call of a tool needs no words.
    if !has_calls(&message) {
        text(&message, "content")?;
    }
    match &message["weight"] {
        Value::Null | Value::Bool(_) => Ok(message),
        weight if weight.as_f64().is_some_and(|weight| weight == 0.0 || weight == 1.0) => Ok(message),
        weight => Err(format!("`weight` is {weight}, expected 0 (not learnt) or 1")),
    }
}

/// OpenAI's parts of a content, of which only texts are read.
fn text_of(parts: &[Value]) -> Result<String, String> {
    let text_of_part = |part: &Value| match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text") | None, Some(text)) => Ok(text.to_owned()),
        (Some(kind), _) => Err(format!("`content` has a part of the type {kind:?}, and only texts are read")),
        (None, None) => Err("`content` is a list, expected a text".to_owned()),
    };
    parts.iter().map(text_of_part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(record: &Value) -> Result<Question, String> {
        questions(record, "f/1").map(|mut questions| questions.swap_remove(0))
    }

    #[test]
    fn conversations_of_either_kind() {
        let messages = [
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "user", "content": "Hi"}),
            json!({"role": "assistant", "content": "Hello."}),
        ];
        let turns = json!([{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}]);
        for record in [
            json!({"messages": messages}),
            json!({"messages": null, "conversations": [{"from": "system", "value": "Be brief."}, turns[0], turns[1]]}),
            json!({"conversations": turns, "system": "Be brief."}),
            json!({"conversations": messages}),
            json!({"messages": json!(messages).to_string()}),
            json!({"prompt": messages[..2], "completion": messages[2..]}),
            json!({"prompt": messages[..2], "completion": messages}),
            json!({"prompt": messages[1..2], "completion": messages[2..], "system": "Be brief."}),
        ] {
            let question = read(&record).unwrap();
            assert_eq!((&question.messages[..], question.references.len()), (&messages[..], 0));
            assert_eq!(question.shared, if record.get("prompt").is_some() { 2 } else { 0 });
        }
        // What a message has beside its words stays.
        let weighted =
            json!({"conversations": [turns[0], {"from": "gpt", "value": "No.", "weight": 0}, turns[0], turns[1]]});
        let said = json!({"role": "assistant", "content": "No.", "weight": 0});
        assert_eq!(read(&weighted).unwrap().messages[1], said);
        let call = json!({"role": "assistant", "tool_calls": [{"name": "f"}]});
        let called = read(&json!({"messages": [messages[1], call, messages[2]]})).unwrap();
        assert_eq!(called.messages[1], call);
        // An answer may be a call alone, whose words the template writes.
        for content in [json!(null), json!(" "), json!("I call.")] {
            let call = json!({"role": "assistant", "content": content, "tool_calls": [{"name": "f"}]});
            let called = read(&json!({"messages": [messages[1], call]})).unwrap();
            assert_eq!((&called.messages[1], called.references.len()), (&call, 0));
        }
        for (record, problem) in [
            (
                json!({"messages": [messages[1]]}),
                "`messages` must end with what the assistant says; its last message is from \"user\"",
            ),
            (json!({"conversations": []}), "`conversations` must end with what the assistant says; it is empty"),
            (
                json!({"system": "Be long.", "messages": messages}),
                "has a `system` and another system message in `messages`: keep one of them",
            ),
            (
                json!({"conversations": [turns[0], {"from": "function_call", "value": "{}"}, turns[1]]}),
                "message 2: `from` is \"function_call\": calls of tools are read from `messages` with `tool_calls`, and their results \
                 from the role `tool`",
            ),
            (
                json!({"conversation": turns}),
                "has no conversation, which is read from `messages` or `conversations`; there are `conversation`",
            ),
            (
                json!({"messages": [messages[1], {"role": "assistant", "content": " ", "tool_calls": []}]}),
                "`messages` must end with what the assistant says; its last message is blank",
            ),
            (
                json!({"messages": [messages[1], {"role": "assistant", "content": null, "tool_calls": []}]}),
                "message 2: `content` is null, expected a text",
            ),
            (
                json!({"data": [{"prompt": "a", "completion": "b"}]}),
                "has no conversation, which is read from `messages` or `conversations`; there are `data`. A list of records has to be \
                 the whole file",
            ),
            (json!({"messages": "Hi"}), "`messages` is a text, expected a list"),
            (json!({"messages": [3]}), "message 1: is not an object"),
            (
                json!({"conversations": [turns[0], {"from": "gpt", "value": "Hello.", "weight": 0.5}]}),
                "message 2: `weight` is 0.5, expected 0 (not learnt) or 1",
            ),
            (
                json!({"conversations": [turns[0], {"from": "gpt", "value": "Hello.", "weight": false}]}),
                "`conversations` ends with an answer whose `weight` is 0: end it with one that is learnt",
            ),
            (
                json!({"messages": [messages[1], {"role": "assistant", "content": "Hello.", "weight": 0}]}),
                "`messages` ends with an answer whose `weight` is 0: end it with one that is learnt",
            ),
            (json!({"prompt": [messages[1]], "completion": "Hello."}), "`completion` is a text, expected a list"),
            (json!({"prompt": [messages[1]], "completion": []}), "`completion` is empty"),
            (
                json!({"messages": [messages[1], {"role": "assistant", "content": "", "function_call": {"name": "f"}}]}),
                "message 2: has a `function_call`: calls are read from `tool_calls`",
            ),
            (
                json!({"messages": [messages[1], {"role": "Assistant", "content": "x"}]}),
                "`messages` must end with what the assistant says; its last message is from \"Assistant\", and the role of an answer is \
                 \"assistant\" (or \"gpt\", as ShareGPT has it)",
            ),
            (json!({"messages": [{"role": "user"}]}), "message 1: has no `content`; there are `role`"),
            (
                json!({"conversations": [{"from": "gpt", "text": "x"}]}),
                "message 1: has no `value`; there are `from`, `text`",
            ),
        ] {
            assert_eq!(read(&record).unwrap_err(), problem);
        }
    }

    #[test]
    fn contents_of_other_forms() {
        let parts = |kind: &str| json!([{"type": "text", "text": "Hi "}, {"type": kind, "text": "Tom"}]);
        let said = |content: Value| {
            let asked = json!({"role": "user", "content": content, "tool_calls": null});
            read(&json!({"messages": [asked, {"role": "assistant", "content": "Hello.", "tool_calls": null}]}))
        };
        assert_eq!(said(parts("text")).unwrap().messages[0]["content"], "Hi Tom");
        assert_eq!(said(json!("Hi")).unwrap().messages[0]["content"], "Hi");
        for (content, problem) in [
            (
                json!([{"type": "image_url", "image_url": "x"}]),
                "`content` has a part of the type \"image_url\", and only texts are read",
            ),
            (json!([3]), "`content` is a list, expected a text"),
            (json!(null), "`content` is null, expected a text"),
        ] {
            assert_eq!(said(content).unwrap_err(), format!("message 1: {problem}"));
        }
        let fields = read(&json!({"prompt": "Is it?", "completion": true, "n": 3, "no": null})).unwrap().fields;
        assert_eq!((&fields["completion"][..], &fields["n"][..], fields.len()), ("true", "3", 3));
    }

    #[test]
    fn instructions_may_have_a_history() {
        let record = json!({"instruction": "And now?", "output": "Tom", "history": [["My name is Tom", "Hi Tom"]]});
        let question = read(&record).unwrap();
        let said: Vec<&str> = question.messages.iter().map(|message| message["content"].as_str().unwrap()).collect();
        assert_eq!(said, ["My name is Tom", "Hi Tom", "And now?", "Tom"]);
        let before = "\n\n### Instruction:\nMy name is Tom\n\n### Response:\nHi Tom\n\n### Instruction:\nAnd now?\n\n### Response:";
        assert!(question.fields["prompt"].ends_with(before), "{}", question.fields["prompt"]);
        for own in [json!("We talked."), json!(["z"]), json!([[1, 2]])] {
            let question = read(&json!({"instruction": "x", "output": "y", "history": own})).unwrap();
            assert_eq!(
                (question.messages.len(), question.fields.get("history").map(String::as_str)),
                (2, own.as_str())
            );
        }
        let read = |history: Value| read(&json!({"instruction": "x", "output": "y", "history": history}));
        assert_eq!(read(json!([["a", 3]])).unwrap().messages[1]["content"], "3");
        let problem = "`history`: entry 2 is [\"a\",null], expected two texts";
        assert_eq!(read(json!([["a", "b"], ["a", null]])).unwrap_err(), problem);
    }

    #[test]
    fn references_of_every_form() {
        let messages = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]);
        // What is null is not there.
        for listed in [json!(["Hi.", "Hello!"]), json!([]), json!(null)] {
            let given = listed.as_array().cloned().unwrap_or_default();
            for record in [json!({"messages": messages}), json!({"prompt": "Hi", "completion": "Hello."})] {
                let mut record = record;
                record["references"] = listed.clone();
                assert_eq!(read(&record).unwrap().references, given);
            }
        }
        for mut record in [json!({"messages": messages}), json!({"prompt": "Hi"})] {
            for (given, expected) in
                [("Hello.", &["Hello."][..]), ("[\"a\", \"b\"]", &["a", "b"]), ("[3, 4]", &["3", "4"]), (" ", &[])]
            {
                record["references"] = json!(given);
                assert_eq!(read(&record).unwrap().references, expected);
            }
            for (given, expected) in [(json!(3), &["3"][..]), (json!([5, true, "a"]), &["5", "true", "a"])] {
                record["references"] = given;
                assert_eq!(read(&record).unwrap().references, expected);
            }
            record["references"] = json!([["a"]]);
            assert_eq!(read(&record).unwrap_err(), "`references` holds a list");
        }
        // Columns of a table that are empty in a row.
        let row =
            json!({"prompt": "Hi", "completion": "Hello.", "messages": "", "conversations": " ", "references": ""});
        assert_eq!(read(&row).unwrap().fields["completion"], "Hello.");
    }

    #[test]
    fn answers_that_are_open() {
        for (message, of_assistant, blank) in [
            (json!({"role": "assistant", "content": "x"}), true, false),
            (json!({"role": "assistant", "content": " "}), true, true),
            (json!({"role": "assistant", "content": null}), true, true),
            (json!({"role": "assistant", "content": null, "tool_calls": [{"name": "f"}]}), true, false),
            (json!({"role": "assistant"}), true, false),
            (json!({"from": "gpt", "value": ""}), true, true),
            (json!({"from": "gpt", "value": "x"}), true, false),
            (json!({"from": "human", "value": ""}), false, true),
            (json!(3), false, false),
        ] {
            assert_eq!((is_answer(&message), is_blank(&message)), (of_assistant, blank), "{message}");
        }
    }

    #[test]
    fn instructions() {
        let record = json!({"instruction": "Add.", "input": "1 and 2", "output": "3"});
        let question = read(&record).unwrap();
        assert_eq!(
            question.fields["prompt"],
            "Below is an instruction that describes a task, paired with an input that provides further context. Write a \
             response that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1 and 2\n\n\
             ### Response:"
        );
        assert_eq!(
            (&question.fields["completion"][..], &question.messages[0]["content"]),
            ("3", &json!("Add.\n\n1 and 2"))
        );
        let alone = read(&json!({"instruction": "Greet.", "input": " ", "output": "Hi"})).unwrap();
        assert_eq!(
            alone.fields["prompt"],
            "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n\
             ### Instruction:\nGreet.\n\n### Response:"
        );
        assert_eq!(alone.messages[0]["content"], "Greet.");
        let told = read(&json!({"system": "Be kind.", "instruction": "Greet.", "output": "Hi"})).unwrap();
        assert_eq!(told.fields["prompt"], "Be kind.\n\n### Instruction:\nGreet.\n\n### Response:");
        assert_eq!(told.messages[0], json!({"role": "system", "content": "Be kind."}));
        assert_eq!(told.messages[1..], alone.messages);
        // One's own fields stay what they are.
        let own = read(&json!({"instruction": "x", "output": "y", "prompt": "p"})).unwrap();
        assert_eq!((own.fields.len(), own.messages.len()), (3, 0));
    }
}
