//! Tokens that `tokenizer_config.json` adds to those of `tokenizer.json`, or gives other flags, as in transformers.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use tokenizers::{AddedToken, Tokenizer};

/// An entry of `added_tokens_decoder`.
#[derive(Deserialize)]
struct Entry {
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

/// Adds the entries of `added_tokens_decoder` in the order of their ids, and makes special what is `named` as such and has an id.
///
/// # Errors
/// When the list is malformed, or the tokenizer cannot take a token.
pub(super) fn add(inner: &mut Tokenizer, config: &Value, named: &[String]) -> Result<(), String> {
    let listed = config.get("added_tokens_decoder").filter(|listed| !listed.is_null());
    let entries: BTreeMap<u32, Entry> = listed
        .map_or_else(|| Ok(BTreeMap::new()), BTreeMap::deserialize)
        .map_err(|error| format!("added_tokens_decoder: {error}"))?;
    let tokens = entries.into_values().map(|entry| {
        AddedToken::from(entry.content, entry.special)
            .single_word(entry.single_word)
            .lstrip(entry.lstrip)
            .rstrip(entry.rstrip)
            .normalized(entry.normalized)
    });
    inner.add_tokens(tokens).map_err(|error| error.to_string())?;
    let is_plain =
        |text: &&String| inner.token_to_id(text).is_some() && !inner.get_added_vocabulary().is_special_token(text);
    let plain: Vec<AddedToken> =
        named.iter().filter(is_plain).map(|text| AddedToken::from(text.clone(), true)).collect();
    inner.add_special_tokens(plain).map(drop).map_err(|error| error.to_string())
}
