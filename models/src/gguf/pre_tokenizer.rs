//! How byte-level BPE cuts a text before it merges, by the name that a file gives: `tokenizer.ggml.pre`.
//!
//! Source: the patterns of the models' own `tokenizer.json`, which `llama-vocab.cpp` names.

use super::Gguf;
use crate::weights;
use serde_json::{Value as Json, json};

const PRE: &str = "tokenizer.ggml.pre";

/// What a name stands for, in the spelling of `tokenizer.json`.
pub(super) struct PreTokenizer {
    pub(super) normalizer: Option<Json>,
    pub(super) split: Json,
    /// Whether a whole word that is a token stays one.
    pub(super) ignore_merges: bool,
    /// Whether a text begins with its special token where the file does not say.
    pub(super) add_bos: bool,
}

/// Words, and numbers of up to three digits.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words, and single digits.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words cut where small letters are followed by large ones, and single digits.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// What names stand for. The first of a row is written.
const KNOWN: &[(&[&str], fn() -> PreTokenizer)] = &[
    (&["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"], || whole_words(LLAMA3)),
    (&["dbrx", "smaug-bpe"], || plain(split(LLAMA3))),
    (&["qwen2", "deepseek-r1-qwen"], || PreTokenizer {
        normalizer: Some(json!({ "type": "NFC" })),
        ..plain(split(QWEN2))
    }),
    (&["smollm", "starcoder", "refact", "command-r"], || {
        plain(both(&json!({ "type": "Digits", "individual_digits": true }), &byte_level(true)))
    }),
    (&["gpt-2", "olmo"], || plain(byte_level(true))),
    (&["tekken"], || whole_words(TEKKEN)),
];

/// All names in a list.
fn names() -> String {
    let names: Vec<&str> = KNOWN.iter().flat_map(|(names, _)| *names).copied().collect();
    names.join(", ")
}

/// The pre-tokenizer that `file` names.
///
/// # Errors
/// When it names none, or one that is not known: any guess would give other ids.
pub(super) fn of(file: &Gguf) -> weights::Result<PreTokenizer> {
    let Some(name) = file.string(PRE)? else {
        return Err(
            file.fail(format!("{PRE} is missing: without the name of its pre-tokenizer, text would get other ids"))
        );
    };
    let known = KNOWN.iter().find(|(names, _)| names.contains(&name));
    known.map(|(_, parts)| parts()).ok_or_else(|| {
        let known = names();
        file.fail(format!("{PRE} is {name:?}, which is not known (known are {known}): text would get other ids"))
    })
}

/// The first name that stands for these parts of a `tokenizer.json`.
///
/// # Errors
/// When none does: llama.cpp would cut texts in another way.
pub(super) fn name(
    normalizer: Option<&Json>,
    split: Option<&Json>,
    ignore_merges: bool,
) -> Result<&'static str, String> {
    let parts = (normalizer.map(plain_form), split.map(plain_form), ignore_merges);
    let found = KNOWN.iter().find(|(_, known)| {
        let known = known();
        parts == (known.normalizer.as_ref().map(plain_form), Some(plain_form(&known.split)), known.ignore_merges)
    });
    found.map(|(names, _)| names[0]).ok_or_else(|| {
        let known = names();
        format!("llama.cpp has no name that is known here for its normalizer and pre-tokenizer (known are {known})")
    })
}

/// A part of a `tokenizer.json` without what decides no id.
fn plain_form(part: &Json) -> Json {
    match part {
        Json::Object(map) => {
            let kept = map.iter().filter(|(key, _)| *key != "trim_offsets");
            let mut map: serde_json::Map<String, Json> =
                kept.map(|(key, value)| (key.clone(), plain_form(value))).collect();
            // The pieces that a pattern covers, in two spellings.
            if map.get("behavior") == Some(&json!("Removed")) && map.get("invert") == Some(&json!(true)) {
                map.insert("behavior".to_owned(), json!("Isolated"));
                map.insert("invert".to_owned(), json!(false));
            }
            if map.get("type") == Some(&json!("ByteLevel")) {
                map.entry("use_regex").or_insert(json!(true));
            }
            Json::Object(map)
        }
        Json::Array(parts) => parts.iter().map(plain_form).collect(),
        other => other.clone(),
    }
}

fn plain(split: Json) -> PreTokenizer {
    PreTokenizer { normalizer: None, split, ignore_merges: false, add_bos: false }
}

fn whole_words(pattern: &str) -> PreTokenizer {
    PreTokenizer { ignore_merges: true, add_bos: true, ..plain(split(pattern)) }
}

fn split(pattern: &str) -> Json {
    let split = json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false });
    both(&split, &byte_level(false))
}

fn byte_level(regex: bool) -> Json {
    json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex })
}

fn both(first: &Json, second: &Json) -> Json {
    json!({ "type": "Sequence", "pretokenizers": [first, second] })
}
