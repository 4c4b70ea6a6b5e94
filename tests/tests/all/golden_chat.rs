//! Conversations as Hugging Face's `apply_chat_template` writes them, and templates that mean harm.

use super::golden_gguf::smollm2;
use hankel_models::chat::{ChatTemplate, Conversation};
use hankel_models::decoder::merge_model;
use hankel_models::gguf::{ExportType, export_model};
use hankel_models::{AdapterSet, DecoderConfig, Tokenizer};
use serde_json::Value;
use std::path::Path;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/chat").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn json(name: &str) -> Value {
    serde_json::from_str(&read(name)).unwrap()
}

fn template(source: &str, variables: &Value) -> Result<ChatTemplate, String> {
    let mut template = ChatTemplate::new(source, None, None)?;
    for (name, value) in variables.as_object().unwrap() {
        template.set(name, value.clone());
    }
    Ok(template)
}

/// Bytes of a text between two positions in characters.
fn bytes(text: &str, span: &Value) -> std::ops::Range<usize> {
    let place = |at: &Value| {
        let at = at.as_u64().unwrap() as usize;
        text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte)
    };
    place(&span[0])..place(&span[1])
}

#[test]
fn texts_and_answers_are_those_of_the_library() {
    let golden = json("cases.json");
    let tokenizer = smollm2().map(|file| Tokenizer::load(&file).unwrap());
    for case in golden["cases"].as_array().unwrap() {
        let (name, conversation) = (case["template"].as_str().unwrap(), case["conversation"].as_str().unwrap());
        let messages = golden["conversations"][conversation].as_array().unwrap();
        let prompt = case["add_generation_prompt"].as_bool().unwrap_or(false);
        for marked in [false, true] {
            let suffix = if marked { ".marked" } else { "" };
            let what = format!("{name}{suffix} on {conversation}");
            let source = read(&format!("templates/{name}{suffix}.jinja"));
            let template = template(&source, &golden["variables"][name]).unwrap();
            let got = template.render(messages, prompt);
            if let Some(error) = case["error"].as_str() {
                let message = got.expect_err(&what);
                if case["error_kind"] == "raise_exception" {
                    assert!(message.contains(error), "{what}: {message}");
                }
                continue;
            }
            assert_eq!(got.as_deref(), Ok(case["text"].as_str().unwrap()), "{what}");
            if prompt {
                continue;
            }
            let text = case["text"].as_str().unwrap();
            let expected: Vec<_> = case["spans"].as_array().unwrap().iter().map(|span| bytes(text, span)).collect();
            let conversation = template.conversation(messages).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(conversation.text, text, "{what}");
            // Its marked form has no mark where a message has no content; the end of the turn is there all the same.
            if (&*what, marked) != ("gemma3 on no_content", false) {
                assert_eq!(conversation.answers, expected, "{what}: {text:?}");
            }
            if let Some(tokenizer) = &tokenizer {
                let tokens = tokenizer.encode_with_places(text).unwrap();
                let ids: Vec<u64> = tokens.iter().map(|(id, _)| u64::from(*id)).collect();
                assert_eq!(serde_json::json!(ids), case["ids"], "{what}");
                let expected = Conversation { text: text.to_owned(), answers: expected };
                let learned = |place| if expected.is_answer(place) { '1' } else { '0' };
                let mask: String = tokens.iter().map(|(_, place)| learned(place)).collect();
                assert_eq!(mask, case["assistant_mask"], "{what}");
            }
        }
    }
}

#[test]
fn the_language_is_that_of_templates_in_use() {
    let golden = json("language.json");
    let messages = golden["messages"].as_array().unwrap();
    let mut wrong = Vec::new();
    for case in golden["features"].as_array().unwrap() {
        let source = case["template"].as_str().unwrap();
        let got = template(source, &golden["variables"]).and_then(|template| template.render(messages, false));
        if got.as_deref() != Ok(case["text"].as_str().unwrap()) {
            println!("{}: {source}\n  expected {}\n  got {got:?}", case["weight"], case["text"]);
            if case["weight"] == "must" {
                wrong.push(source);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// As `apply_chat_template` has them where none are given: None, not undefined; and a call of a tool has the `content` None.
#[test]
fn tools_and_contents_that_are_not_there_are_none() {
    let source = "{% if tools is not none %}TOOLS{% endif %}{% if documents is not none %}DOCUMENTS{% endif %}\
                  {% for message in messages %}{% if message['content'] is none %}CALL{% else %}{{ message['content'] }}{% endif %}{% endfor %}";
    let template = template(source, &serde_json::json!({})).unwrap();
    let messages = serde_json::json!([
        {"role": "user", "content": "now"},
        {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]},
    ]);
    assert_eq!(template.render(messages.as_array().unwrap(), false).unwrap(), "nowCALL");
}

#[test]
fn a_template_that_means_harm_ends() {
    let golden = json("language.json");
    let messages = golden["messages"].as_array().unwrap();
    for case in golden["hostile"].as_array().unwrap() {
        let (name, source) = (case["name"].as_str().unwrap(), case["template"].as_str().unwrap());
        let got = template(source, &golden["variables"]).and_then(|template| template.render(messages, false));
        match &got {
            Ok(text) => assert!(text.len() < 1000, "{name}: {} bytes", text.len()),
            Err(message) => {
                assert!(!message.is_empty() && message.len() < 10_000, "{name}: {message}");
                assert!(message.contains(case["error"].as_str().unwrap_or("")), "{name}: {message}");
            }
        }
    }
}

/// Calls of tools have no content that could be marked, and are learnt as well as words.
#[test]
fn calls_of_tools_are_answers() {
    let source = "{% for m in messages %}<|{{ m.role }}|>{% if m.content %}\n{{ m.content }}{% endif %}\
        {% for call in m.tool_calls or [] %}\n<call>{{ call.function.name }}</call>{% endfor %}<end>\n{% endfor %}\
        {% if add_generation_prompt %}<|assistant|>{% endif %}";
    let template = ChatTemplate::new(source, None, None).unwrap();
    let call =
        serde_json::json!([{"type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}]);
    for content in [Value::Null, "".into()] {
        let messages = [
            serde_json::json!({"role": "user", "content": "Is it raining?"}),
            serde_json::json!({"role": "assistant", "content": content, "tool_calls": call}),
            serde_json::json!({"role": "tool", "content": "no"}),
            serde_json::json!({"role": "assistant", "content": "It is dry."}),
        ];
        let conversation = template.conversation(&messages).unwrap();
        let answers: Vec<&str> = conversation.answers.iter().map(|answer| &conversation.text[answer.clone()]).collect();
        // A newline behind a block is the block's.
        assert_eq!(answers, ["<call>weather</call><end>", "It is dry.<end>"]);
    }
}

#[test]
fn where_a_model_keeps_its_template() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/tokenizer");
    std::fs::copy(tokenizer.join("tokenizer.json"), place.path().join("tokenizer.json")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
    let load = || {
        let tokenizer = Tokenizer::load(place.path()).unwrap();
        ChatTemplate::load(place.path(), &tokenizer).map_err(|error| error.to_string())
    };
    let text = || load().unwrap().unwrap().render(&[], false).unwrap();
    assert!(load().unwrap().is_none());
    write("tokenizer_config.json", r#"{"bos_token": "<s>", "eos_token": "</s>"}"#);
    assert!(load().unwrap().is_none());
    let several =
        r#"[{"name": "tools", "template": "T"}, {"name": "default", "template": "D{{ bos_token }}{{ eos_token }}"}]"#;
    write(
        "tokenizer_config.json",
        &format!(r#"{{"bos_token": "<s>", "eos_token": "</s>", "chat_template": {several}}}"#),
    );
    assert_eq!(text(), "D<s></s>");
    write("tokenizer_config.json", r#"{"bos_token": "<s>", "chat_template": "C{{ bos_token }}"}"#);
    assert_eq!(text(), "C<s>");
    // Tokens that stand in the other file alone, and those beside the two that begin and end a text.
    write(
        "special_tokens_map.json",
        r#"{"bos_token": "</s>", "eos_token": {"content": "</s>"}, "unk_token": "<unk>"}"#,
    );
    write(
        "tokenizer_config.json",
        r#"{"bos_token": "<s>", "pad_token": null, "chat_template": "{{ bos_token ~ eos_token ~ unk_token ~ pad_token }}"}"#,
    );
    assert_eq!(text(), "<s></s><unk>");
    write("chat_template.jinja", "J");
    assert_eq!(text(), "J");
    // A token that the model does not have prints nothing.
    let template = ChatTemplate::new("{{- bos_token }}|{{ eos_token }}", None, Some("</s>")).unwrap();
    assert_eq!(template.render(&[], false).unwrap(), "|</s>");
    write("chat_template.jinja", "{% if %}");
    let message = load().unwrap_err();
    assert!(message.contains("chat_template.jinja") && message.contains("line 1"), "{message}");
    let Some(file) = smollm2() else { return };
    let tokenizer = Tokenizer::load(&file).unwrap();
    let named = tokenizer.special_tokens();
    for (name, token) in [("pad_token", "<|im_end|>"), ("unk_token", "<|endoftext|>")] {
        assert!(named.contains(&(name, token.to_owned())), "{named:?}");
    }
    let template = ChatTemplate::load(&file, &tokenizer).unwrap().unwrap();
    let messages = [serde_json::json!({"role": "user", "content": "Hi"})];
    assert!(
        template.render(&messages, true).unwrap().ends_with("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    );
}

/// As Hermes 2 Pro has them: in a list, which GGUF files and what is merged keep, or in files of their own.
#[test]
fn conversations_with_tools_have_a_template_of_their_own() {
    let place = tempfile::tempdir().unwrap();
    let [model, file, merged, again] = ["model", "model.gguf", "merged", "again"].map(|name| place.path().join(name));
    std::fs::create_dir(&model).unwrap();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/gguf/models/hf/llama")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), model.join(entry.file_name())).unwrap();
    }
    let load = |model: &Path| ChatTemplate::load(model, &Tokenizer::load(model).unwrap()).unwrap().unwrap();
    let written = |model: &Path| {
        let template = load(model);
        let with = |tools: Value| template.with("tools", tools).render(&[], false);
        [template.render(&[], false), with(Value::Null), with(serde_json::json!([{"name": "f"}]))].map(Result::unwrap)
    };
    let merge = |from: &Path, to: &Path| {
        let placement = DecoderConfig::load(from).unwrap().placement();
        merge_model(&AdapterSet::none(&placement), from, to, None).unwrap();
    };
    let config = model.join("tokenizer_config.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    json["chat_template"] = serde_json::json!([
        {"name": "default", "template": "{{ eos_token }}"},
        {"name": "tool_use", "template": "{{ eos_token }}{% for tool in tools %}[{{ tool.name }}]{% endfor %}"},
    ]);
    std::fs::write(&config, json.to_string()).unwrap();
    let expected = ["<|eot_id|>", "<|eot_id|>", "<|eot_id|>[f]"];
    assert_eq!(written(&model), expected);
    export_model(&model, &file, ExportType::F16).unwrap();
    assert_eq!(written(&file), expected);
    merge(&file, &merged);
    assert_eq!(written(&merged), expected);
    // A file stands before the list, with all that is in it.
    std::fs::write(model.join("chat_template.jinja"), "own").unwrap();
    assert_eq!(written(&model), ["own"; 3]);
    let folder = model.join("additional_chat_templates");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("tool_use.jinja"), "own tools").unwrap();
    assert_eq!(written(&model), ["own", "own", "own tools"]);
    merge(&model, &again);
    assert_eq!(written(&again), ["own", "own", "own tools"]);
    // One that cannot be used is in the way of conversations with tools alone.
    std::fs::write(folder.join("tool_use.jinja"), "{% if %}").unwrap();
    let template = load(&model);
    assert_eq!(template.render(&[], false).as_deref(), Ok("own"));
    let message = template.with("tools", serde_json::json!([])).render(&[], false).unwrap_err();
    assert!(message.contains("tool_use.jinja") && message.contains("line 1"), "{message}");
}
