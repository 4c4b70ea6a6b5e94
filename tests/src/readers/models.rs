//! Readers of models: their configuration, weights, tokenizer and chat template.

use super::{two, with_files};
use hankel_models::chat::ChatTemplate;
use hankel_models::gguf::GgufModel;
use hankel_models::weights::ModelFiles;
use hankel_models::{DecoderConfig, Tokenizer};
use serde_json::{Map, Value, json};

/// A text with what tokenizers stumble over.
const TEXT: &str = "Once upon a time, Tom's 3 cats\n\n  said:\t\u{e9}\u{4e2d}\u{1f600} <s> ";

/// `config.json` of a model.
pub(super) fn config(bytes: &[u8]) -> bool {
    let Ok(config) = DecoderConfig::parse(bytes) else { return false };
    let written = serde_json::to_vec(&config.to_json("float32")).expect("a JSON value");
    let again = DecoderConfig::parse(&written);
    assert_eq!(again.as_ref(), Ok(&config), "what was written is read again");
    true
}

/// `model.safetensors`.
pub(super) fn safetensors(bytes: &[u8]) -> bool {
    with_files(&[("model.safetensors", bytes)], |folder| ModelFiles::open(folder).is_ok_and(take_all))
}

/// The index of a model of two shards, one of them empty.
pub(super) fn shards(bytes: &[u8]) -> bool {
    let (index, shard) = two(bytes);
    with_files(&[("model.safetensors.index.json", index), ("a", shard), ("b", b"")], |folder| {
        ModelFiles::open(folder).is_ok_and(take_all)
    })
}

/// Takes every tensor by the shape that the file gives it; whether all could be.
fn take_all(mut files: ModelFiles) -> bool {
    let names: Vec<String> = files.names().map(str::to_owned).collect();
    let mut taken = true;
    for name in names {
        // Tensors that belong to another one went with it.
        let Some(shape) = files.shape(&name).map(<[usize]>::to_vec) else { continue };
        taken &= files.take(&name, &shape).is_ok_and(|tensor| tensor.shape()[..] == shape[..]);
    }
    taken && files.finish().is_ok()
}

/// A GGUF file: the configuration, the weights, the tokenizer and the chat template in it.
pub(super) fn gguf(bytes: &[u8]) -> bool {
    with_files(&[("x.gguf", bytes)], |folder| {
        let path = folder.join("x.gguf");
        let Ok(model) = GgufModel::open(&path) else { return false };
        let config = DecoderConfig::load(&path);
        let taken = model.weights().is_ok_and(take_all);
        on_a_thread(|| {
            if let Ok(tokenizer) = &Tokenizer::load(&path) {
                use_tokenizer(tokenizer);
                if let Ok(Some(template)) = ChatTemplate::load(&path, tokenizer) {
                    let _ = template.render(&conversation(), true);
                }
            }
        });
        taken && config.is_ok()
    })
}

/// Calls `f` on a thread of its own: the `tokenizers` crate keeps words of every tokenizer that a thread has used until that thread ends.
fn on_a_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(f).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// `tokenizer.json`.
pub(super) fn tokenizer(bytes: &[u8]) -> bool {
    with_files(&[("tokenizer.json", bytes)], |folder| {
        on_a_thread(|| Tokenizer::load(folder).is_ok_and(|tokenizer| use_tokenizer(&tokenizer)))
    })
}

/// A text to ids and back, at once and piece by piece.
fn use_tokenizer(tokenizer: &Tokenizer) -> bool {
    let Ok(places) = tokenizer.encode_with_places(TEXT) else { return false };
    for (_, place) in &places {
        assert!(place.start <= place.end && place.end <= TEXT.len(), "{place:?} lies in the text");
    }
    let ids: Vec<u32> = places.into_iter().map(|(id, _)| id).collect();
    let mut stream = tokenizer.stream();
    let pieces: Result<Vec<String>, _> = ids.iter().map(|&id| stream.push(id)).collect();
    let rest = stream.finish();
    let _ = tokenizer.decode(&[0, 1, u32::MAX]);
    tokenizer.decode(&ids).is_ok() && pieces.is_ok() && rest.is_ok()
}

/// A conversation as users have them.
fn conversation() -> [Value; 4] {
    let message = |role: &str, content: &str| {
        let fields = [("role", role), ("content", content)].map(|(key, value)| (key.to_owned(), Value::from(value)));
        Value::Object(Map::from_iter(fields))
    };
    [
        message("system", "Answer briefly."),
        message("user", "  What is 2 + 2?\n"),
        message("assistant", "<think>easy</think>4 \u{1f600}"),
        json!({"role": "user", "content": "Thanks", "name": null, "tool_calls": [{"function": {"name": "f"}}]}),
    ]
}

/// A chat template.
pub(super) fn chat_template(bytes: &[u8]) -> bool {
    let Ok(source) = std::str::from_utf8(bytes) else { return false };
    let Ok(template) = ChatTemplate::new(source, Some("<s>"), Some("</s>")) else { return false };
    if let Ok(found) = template.conversation(&conversation()) {
        assert!(found.answers.iter().all(|answer| found.text.get(answer.clone()).is_some()), "answers are texts");
    }
    template.render(&conversation(), true).is_ok()
}
