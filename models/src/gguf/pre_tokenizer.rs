//! How byte-level BPE cuts a text before it merges, by the name that a file gives: `tokenizer.ggml.pre`.
//!
//! Source: the patterns of the models' own `tokenizer.json`, which `llama-vocab.cpp` names.

use super::Gguf;
use crate::weights::Result;
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

/// Names that are understood.
const NAMES: [&str; 16] = [
    "llama-bpe",
    "llama3",
    "llama-v3",
    "falcon3",
    "pixtral",
    "dbrx",
    "smaug-bpe",
    "qwen2",
    "deepseek-r1-qwen",
    "smollm",
    "starcoder",
    "refact",
    "command-r",
    "gpt-2",
    "olmo",
    "tekken",
];

/// The pre-tokenizer that `file` names.
///
/// # Errors
/// When it names none, or one that is not known: any guess would give other ids.
pub(super) fn of(file: &Gguf) -> Result<PreTokenizer> {
    let Some(name) = file.string(PRE)? else {
        return Err(
            file.fail(format!("{PRE} is missing: without the name of its pre-tokenizer, text would get other ids"))
        );
    };
    let byte_level = |regex: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex });
    let both = |first: Json, second: Json| json!({ "type": "Sequence", "pretokenizers": [first, second] });
    let split = |pattern: &str| {
        let split =
            json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false });
        both(split, byte_level(false))
    };
    let plain = |split: Json| PreTokenizer { normalizer: None, split, ignore_merges: false, add_bos: false };
    Ok(match name {
        "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "pixtral" => {
            PreTokenizer { ignore_merges: true, add_bos: true, ..plain(split(LLAMA3)) }
        }
        "dbrx" | "smaug-bpe" => plain(split(LLAMA3)),
        "qwen2" | "deepseek-r1-qwen" => {
            PreTokenizer { normalizer: Some(json!({ "type": "NFC" })), ..plain(split(QWEN2)) }
        }
        "smollm" | "starcoder" | "refact" | "command-r" => {
            plain(both(json!({ "type": "Digits", "individual_digits": true }), byte_level(true)))
        }
        "gpt-2" | "olmo" => plain(byte_level(true)),
        "tekken" => PreTokenizer { ignore_merges: true, add_bos: true, ..plain(split(TEKKEN)) },
        other => {
            let known = NAMES.join(", ");
            return Err(file.fail(format!(
                "{PRE} is {other:?}, which is not known (known are {known}): text would get other ids"
            )));
        }
    })
}
