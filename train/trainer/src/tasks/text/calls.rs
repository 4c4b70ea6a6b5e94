//! Calls of tools in messages.

use super::formats::has_calls;
use hankel_models::chat::{ChatTemplate, Conversation};
use serde_json::Value;

/// A conversation as a template writes it, and the messages as it takes them. OpenAI gives the arguments of calls as
/// JSON text: most templates take them as objects, some as text. The content of a call without words is null for some templates, and
/// an empty text for others. All combinations are tried.
///
/// # Errors
/// The first reason of several.
pub(super) fn written_by(template: &ChatTemplate, messages: &[Value]) -> Result<(Vec<Value>, Conversation), String> {
    let parsed = parsed(messages);
    let first = template.conversation(&parsed);
    let Err(problem) = first else { return first.map(|conversation| (parsed, conversation)) };
    for other in [messages.to_vec(), with_words(&parsed), with_words(messages)] {
        if other != parsed
            && let Ok(conversation) = template.conversation(&other)
        {
            return Ok((other, conversation));
        }
    }
    Err(problem)
}

/// The messages with the arguments of calls as objects where they stand as a text of one.
fn parsed(messages: &[Value]) -> Vec<Value> {
    let mut messages = messages.to_vec();
    for call in messages.iter_mut().filter_map(|message| message.get_mut("tool_calls")?.as_array_mut()).flatten() {
        // OpenAI's form, and that without `function` around it.
        let of = if call.get("function").is_some_and(Value::is_object) { &mut call["function"] } else { call };
        let Some(text) = of.get("arguments").and_then(Value::as_str) else { continue };
        if let Ok(Value::Object(arguments)) = serde_json::from_str(text) {
            of["arguments"] = arguments.into();
        }
    }
    messages
}

/// The messages with an empty text where a call has no words.
fn with_words(messages: &[Value]) -> Vec<Value> {
    let mut messages = messages.to_vec();
    for message in messages.iter_mut().filter(|message| has_calls(message) && message["content"].is_null()) {
        message["content"] = "".into();
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_objects() {
        let call = |arguments: Value| json!({"type": "function", "function": {"name": "f", "arguments": arguments}});
        let message = |call: Value| json!({"role": "assistant", "content": null, "tool_calls": [call]});
        let object = json!({"city": "Rome", "n": 2});
        for (given, expected) in [
            (call("{\"city\": \"Rome\", \"n\": 2}".into()), call(object.clone())),
            (json!({"name": "f", "arguments": "{}"}), json!({"name": "f", "arguments": {}})),
            (call(object.clone()), call(object)),
            (call("Rome".into()), call("Rome".into())),
            (json!("f"), json!("f")),
        ] {
            assert_eq!(parsed(&[message(given)]), [message(expected)]);
        }
        let said = json!({"role": "user", "content": "Hi"});
        assert_eq!(parsed(std::slice::from_ref(&said)), [said]);
    }

    #[test]
    fn calls_have_words() {
        let call = json!({"role": "assistant", "content": null, "tool_calls": [{"name": "f"}]});
        let said = json!({"role": "assistant", "content": null});
        let found = with_words(&[call, said.clone()]);
        assert_eq!((&found[0]["content"], &found[1]), (&json!(""), &said));
    }

    /// Templates want arguments as objects or as texts, and some search in the words of every message.
    #[test]
    fn messages_are_as_the_template_takes_them() {
        let call = json!({"type": "function", "function": {"name": "f", "arguments": "{\"city\":\"Rome\"}"}});
        let asked = json!({"role": "user", "content": "Where?"});
        let messages = [asked, json!({"role": "assistant", "content": null, "tool_calls": [call]})];
        let text = |of_call: &str| {
            let source = format!(
                "{{% for m in messages %}}<{{{{ m.role }}}}>{{{{ m.content or '' }}}}{{% for c in m.tool_calls or [] %}}{of_call}\
                 {{% endfor %}}</s>{{% endfor %}}{{% if add_generation_prompt %}}<assistant>{{% endif %}}"
            );
            let template = ChatTemplate::new(&source, None, None).unwrap();
            written_by(&template, &messages).map(|(_, conversation)| conversation.text)
        };
        let written = |call: &str| Ok(format!("<user>Where?</s><assistant>{call}</s>"));
        assert_eq!(text("{{ c.function.arguments | tojson }}"), written("{\"city\": \"Rome\"}"));
        assert_eq!(text("{{ '[' + c.function.arguments + ']' }}"), written("[{\"city\":\"Rome\"}]"));
        let searching = "{% if 'x' in m.content %}x{% endif %}{{ c.function.arguments.city }}";
        assert_eq!(text(searching), written("Rome"));
        assert!(text("{{ raise_exception('no calls') }}").unwrap_err().contains("no calls"));
    }
}
