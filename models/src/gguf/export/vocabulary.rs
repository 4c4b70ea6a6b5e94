//! The tokenizer as keys of the metadata: of a `tokenizer.json`, or copied from another GGUF file.
//!
//! What is written is read back and compared on texts that are cut in different ways and hold every added token, so
//! that no file gives other ids than the model it was made from.

use crate::chat::load::{TOOLS_KEY, sources};
use crate::gguf::pre_tokenizer;
use crate::gguf::tokenizer::{
    BYTE, CONTROL, NAME, NORMAL, PHI3_TOKENS, UNKNOWN, UNUSED, USER_DEFINED, is_phi3, strips_behind,
};
use crate::gguf::write::{GgufWriter, Meta, Metadata};
use crate::gguf::{Gguf, is_gguf};
use crate::tokenizer::{TOKENIZER_FILE, Tokenizer};
use crate::weights::{Result, WeightsError};
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use tokenizers::AddedToken;

/// Whether a text begins with its special token.
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";

/// Texts that tokenizers cut in different ways.
const PROBES: [&str; 12] = [
    "",
    "Hello, world! It's 3.14159 or 1234567890; isn't it?",
    " leading and trailing  spaces   ",
    "\n\n\nlines\r\n\r\n1\t\ttabs\n  indented\n",
    "I'VE we'll CamelCaseWords snake_case_words kebab-case-words",
    "na\u{ef}ve caf\u{e9} \u{c4}\u{d6}\u{dc} \u{df} \u{153}uvre",
    "\u{4f60}\u{597d}\u{ff0c}\u{4e16}\u{754c} \u{3053}\u{3093}\u{306b}\u{3061}\u{306f} \u{c548}\u{b155} \u{447}\u{442}\u{43e}-\u{442}\u{43e} \u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{628}\u{627}",
    "\u{1f680} (normal) \u{1f636}\u{200d}\u{1f32b}\u{fe0f} \u{2705} \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}",
    "3 33 333 3333 33333 333333 3.3 3..3 \u{664}\u{662}",
    "def f(x: int) -> str:\n    return f\"{x!r:>10}\"  # ok?? !!\n",
    "a\u{301}e\u{301} \u{1e9b}\u{323} \u{fb01} \u{2460}",
    "'''''' ``` \"\" ...... ----- ==== \\\\ // <> [] {} @#$%^&*()_+~|",
];

/// Adds the keys for the tokenizer of `model`, whose table has `vocabulary` rows, to the `metadata` of a file that will
/// be `to`. `general.name` is changed where llama.cpp takes from it what the tokenizer does; `label` may be added to it.
///
/// # Errors
/// When it is of a kind that GGUF files cannot hold, or would give other ids from there.
pub(super) fn add(
    model: &Path,
    label: Option<&str>,
    vocabulary: usize,
    to: &Path,
    metadata: &mut Metadata,
    notes: &mut Vec<String>,
) -> Result<()> {
    if is_gguf(model) {
        let file = Gguf::open(model)?;
        let kept = file.metadata().keys().filter(|key| key.starts_with("tokenizer."));
        metadata.extend(kept.map(|key| (key.clone(), Meta::Raw(file.raw(key).to_vec()))));
        return Ok(());
    }
    let path = model.join(TOKENIZER_FILE);
    if !path.is_file() {
        notes.push(format!(
            "there is no {TOKENIZER_FILE}: the file has no tokenizer, so it takes token ids and no text"
        ));
        metadata.push(("tokenizer.ggml.model".to_owned(), Meta::Text("none".to_owned())));
        return Ok(());
    }
    let tokenizer = Tokenizer::load(model)?;
    tokenizer.check(vocabulary)?;
    let fail =
        |reason: String| WeightsError::content(&path, format!("the tokenizer cannot be written to GGUF: {reason}"));
    let bytes = hankel_io::input::read(&path)?;
    let mut file: File = serde_json::from_slice(&bytes).map_err(|e| fail(e.to_string()))?;
    // `tokenizer_config.json` may have others, or say other things of them.
    file.added_tokens = tokenizer.added().into_iter().map(Added::from).collect();
    metadata.extend(file.keys(vocabulary).map_err(fail)?);
    metadata.extend(special(model, &tokenizer)?);
    file.rename(label, vocabulary, metadata, notes).map_err(fail)?;
    // Where the file itself cannot be written, the tokenizer has no part in it.
    let mut writer = GgufWriter::create(to, metadata, &[])?;
    check(&tokenizer, &file.probes(vocabulary), &mut writer).map_err(fail)?;
    if file.spares_spaces() {
        notes.push(format!(
            "llama.cpp puts ▁ before every text, as SentencePiece does, also where {TOKENIZER_FILE} does not: before \
             one that begins with a space and, where prepend_scheme is first, behind a special token"
        ));
    }
    if file.composes() {
        notes.push(format!(
            "llama.cpp does not normalise texts, and {TOKENIZER_FILE} composes characters first (NFC): a text with \
             decomposed ones, a letter and a combining accent, gets other ids there"
        ));
    }
    metadata.extend(chat_templates(model)?);
    Ok(())
}

/// Reads the keys back and compares the ids of `texts`.
fn check(tokenizer: &Tokenizer, texts: &[String], writer: &mut GgufWriter) -> std::result::Result<(), String> {
    let copy = writer.so_far().and_then(|path| Tokenizer::of_gguf(&Gguf::open(path)?)).map_err(|e| e.to_string())?;
    for text in texts {
        let [expected, found] = [tokenizer, &copy].map(|tokenizer| tokenizer.encode(text).map_err(|e| e.to_string()));
        let (expected, found) = (expected?, found?);
        if expected != found {
            return Err(format!("{text:?} has the ids {expected:?} and would get {found:?}"));
        }
    }
    Ok(())
}

/// Ids with a meaning, and what is put around a text.
fn special(model: &Path, tokenizer: &Tokenizer) -> Result<Metadata> {
    let id = |key: &str, id: u32| (format!("tokenizer.ggml.{key}_token_id"), Meta::U32(id));
    let mut metadata = Metadata::new();
    metadata.extend(tokenizer.bos().map(|token| id("bos", token)));
    metadata.extend(tokenizer.eos().map(|token| id("eos", token)));
    for (name, token) in tokenizer.special_tokens() {
        let key = [("unk_token", "unknown"), ("pad_token", "padding")].into_iter().find(|(theirs, _)| *theirs == name);
        metadata.extend(key.and_then(|(_, ours)| Some(id(ours, tokenizer.id(&token)?))));
    }
    let config = config(model)?;
    let (plain, around) = (tokenizer.encode("a")?, tokenizer.encode_with_special("a")?);
    let begins = tokenizer.bos().is_some_and(|bos| around.first() == Some(&bos) && plain.first() != Some(&bos));
    let ends = tokenizer.eos().is_some_and(|eos| around.last() == Some(&eos) && plain.last() != Some(&eos));
    // What the configuration says counts more than what `tokenizer.json` does, as in llama.cpp's converter.
    let said = |key: &str| config.get(key).and_then(Json::as_bool);
    metadata
        .push((ADD_BOS.to_owned(), Meta::Bool(said("add_bos_token").unwrap_or(begins) && tokenizer.bos().is_some())));
    if said("add_eos_token").unwrap_or(ends) && tokenizer.eos().is_some() {
        metadata.push(("tokenizer.ggml.add_eos_token".to_owned(), Meta::Bool(true)));
    }
    Ok(metadata)
}

/// `tokenizer_config.json`; an empty object where there is none.
fn config(model: &Path) -> Result<Json> {
    let path = model.join("tokenizer_config.json");
    if !path.is_file() {
        return Ok(Json::Object(serde_json::Map::new()));
    }
    let bytes = hankel_io::input::read(&path)?;
    serde_json::from_slice(&bytes).map_err(|e| WeightsError::content(&path, e.to_string()))
}

/// The template of conversations, and the one for conversations with tools.
fn chat_templates(model: &Path) -> Result<Metadata> {
    let mut metadata = Metadata::new();
    let Some(((_, text), for_tools)) = sources(model)? else { return Ok(metadata) };
    metadata.push(("tokenizer.chat_template".to_owned(), Meta::Text(text)));
    if let Some((_, text)) = for_tools {
        metadata.push(("tokenizer.chat_templates".to_owned(), Meta::Texts(vec!["tool_use".to_owned()])));
        metadata.push((TOOLS_KEY.to_owned(), Meta::Text(text)));
    }
    Ok(metadata)
}

/// The parts of a `tokenizer.json` that decide ids.
#[derive(Deserialize)]
struct File {
    model: Model,
    #[serde(skip)]
    added_tokens: Vec<Added>,
    normalizer: Option<Json>,
    pre_tokenizer: Option<Json>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    vocab: Json,
    #[serde(default)]
    merges: Vec<Merge>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    unk_token: Option<String>,
}

/// A merge in either spelling.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Text(String),
}

impl Merge {
    fn pair(&self) -> std::result::Result<(&str, &str), String> {
        match self {
            Merge::Pair(left, right) => Ok((left, right)),
            Merge::Text(text) => text.split_once(' ').ok_or_else(|| format!("the merge {text:?} has no space")),
        }
    }
}

/// A token that is found in a text before anything else.
struct Added {
    id: u32,
    content: String,
    special: bool,
    /// Whether white space before it is dropped.
    lstrip: bool,
    /// Whether white space behind it is dropped.
    rstrip: bool,
    /// Whether it is found only where no word goes on beside it.
    single_word: bool,
}

impl From<(u32, AddedToken)> for Added {
    fn from((id, token): (u32, AddedToken)) -> Self {
        let AddedToken { content, special, lstrip, rstrip, single_word, .. } = token;
        Added { id, content, special, lstrip, rstrip, single_word }
    }
}

impl File {
    fn keys(&self, vocabulary: usize) -> std::result::Result<Metadata, String> {
        let kind = self.model.kind.as_deref().unwrap_or("BPE");
        if kind != "BPE" {
            return Err(format!("its model is {kind:?}; BPE, byte-level or of SentencePiece, can be"));
        }
        let ids: BTreeMap<String, u32> =
            serde_json::from_value(self.model.vocab.clone()).map_err(|e| format!("vocab: {e}"))?;
        let tokens = self.tokens(&ids, vocabulary)?;
        let mut metadata = Metadata::new();
        let mut put = |key: &str, value: Meta| metadata.push((format!("tokenizer.ggml.{key}"), value));
        if self.is_sentencepiece() {
            put("model", Meta::Text("llama".to_owned()));
            put("pre", Meta::Text("default".to_owned()));
            put("scores", Meta::F32s(self.scores(&tokens)?));
            put("add_space_prefix", Meta::Bool(self.begins_with_space()?));
        } else {
            let pre =
                pre_tokenizer::name(self.normalizer.as_ref(), self.pre_tokenizer.as_ref(), self.model.ignore_merges)?;
            put("model", Meta::Text("gpt2".to_owned()));
            put("pre", Meta::Text(pre.to_owned()));
            let merges = self.model.merges.iter().map(Merge::pair);
            let merges = merges.map(|pair| pair.map(|(left, right)| format!("{left} {right}")));
            put("merges", Meta::Texts(merges.collect::<std::result::Result<_, _>>()?));
        }
        let (texts, types) = tokens.into_iter().unzip();
        put("tokens", Meta::Texts(texts));
        put("token_type", Meta::I32s(types));
        Ok(metadata)
    }

    fn is_sentencepiece(&self) -> bool {
        self.model.byte_fallback
    }

    /// Every token of the table with its type; rows without a token are named as llama.cpp's converter names them.
    fn tokens(
        &self,
        ids: &BTreeMap<String, u32>,
        vocabulary: usize,
    ) -> std::result::Result<Vec<(String, i32)>, String> {
        let mut tokens: Vec<(String, i32)> = (0..vocabulary).map(|id| (format!("[PAD{id}]"), UNUSED as i32)).collect();
        let mut put = |id: u32, text: &str, kind: f64| match tokens.get_mut(id as usize) {
            Some(token) => {
                *token = (text.to_owned(), kind as i32);
                Ok(())
            }
            None => Err(format!("token {text:?} has the id {id}, and the model {vocabulary} rows")),
        };
        for (text, &id) in ids {
            let is_byte = self.model.byte_fallback && text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
            put(id, text, if is_byte { BYTE } else { NORMAL })?;
        }
        for token in self.added(vocabulary) {
            put(token.id, &self.in_text(token), if token.special { CONTROL } else { USER_DEFINED })?;
        }
        // Byte-level tokenizers name a token here that takes no part.
        if let Some((text, id)) = self.model.unk_token.as_ref().and_then(|text| Some((text, *ids.get(text)?)))
            && self.is_sentencepiece()
        {
            put(id, text, UNKNOWN)?;
        }
        Ok(tokens)
    }

    /// Added tokens that the model has a row for. No text may contain the others.
    fn added(&self, vocabulary: usize) -> impl Iterator<Item = &Added> {
        self.added_tokens.iter().filter(move |token| (token.id as usize) < vocabulary)
    }

    /// An added token as texts have it and llama.cpp looks for it: before it writes spaces as SentencePiece does.
    fn in_text(&self, token: &Added) -> String {
        let is_defined = self.is_sentencepiece() && !token.special;
        if is_defined { token.content.replace('▁', " ") } else { token.content.clone() }
    }

    /// Texts that must have the same ids in the file: of all kinds, and one with each added token.
    fn probes(&self, vocabulary: usize) -> Vec<String> {
        let spares = self.spares_spaces();
        let behind = if spares { "" } else { "\ny" };
        let plain = PROBES.map(|text| if spares { text.trim_start_matches(' ') } else { text });
        let added = self.added(vocabulary).map(|token| format!("x{}{behind}", self.in_text(token)));
        plain.into_iter().map(str::to_owned).chain(added).collect()
    }

    /// Changes `general.name` where llama.cpp would take from it what does not hold.
    fn rename(
        &self,
        label: Option<&str>,
        vocabulary: usize,
        metadata: &mut Metadata,
        notes: &mut Vec<String>,
    ) -> std::result::Result<(), String> {
        let given = metadata.iter().find_map(|(key, value)| match value {
            Meta::Text(name) if key == NAME => Some(name.clone()),
            _ => None,
        });
        let given = given.unwrap_or_default();
        let name = self.name(&given, label, vocabulary)?;
        if name == given {
            return Ok(());
        }
        metadata.retain(|(key, _)| key != NAME);
        if name.is_empty() {
            notes.push(format!(
                "{NAME} is left out: by {given:?} llama.cpp would take the model for a Phi-3, whose tokens drop the \
                 white space behind them"
            ));
        } else {
            notes.push(format!(
                "{NAME} is {name:?}: tokens drop the white space behind them, for which GGUF has no key, and llama.cpp \
                 knows that by this name"
            ));
            metadata.push((NAME.to_owned(), Meta::Text(name)));
        }
        Ok(())
    }

    /// The name by which llama.cpp drops white space beside added tokens as `tokenizer.json` does: `given` where that
    /// is one, and empty where none may be written.
    fn name(&self, given: &str, label: Option<&str>, vocabulary: usize) -> std::result::Result<String, String> {
        /// What one can do.
        const REMEDY: &str = "if that matters to no text, set it to false in tokenizer.json";
        if let Some(token) = self.added(vocabulary).find(|token| token.lstrip || token.single_word) {
            let flag = if token.lstrip { "lstrip" } else { "single_word" };
            return Err(format!("the token {:?} has {flag}, for which GGUF has no key; {REMEDY}", token.content));
        }
        let has = |text: &str| {
            self.model.vocab.get(text).is_some() || self.added(vocabulary).any(|token| token.content == text)
        };
        let fits = |name: &String| {
            let alike = self.added(vocabulary).all(|token| token.rstrip == strips_behind(name, &token.content));
            // llama.cpp does not load a file of this name without them.
            alike && (!is_phi3(name) || PHI3_TOKENS.into_iter().all(has))
        };
        let mut names = vec![given.to_owned()];
        names.extend(label.map(|label| format!("{given} ({label})")));
        names.push(String::new());
        names.into_iter().find(fits).ok_or_else(|| {
            let token = self.added(vocabulary).find(|token| token.rstrip).map_or("", |token| token.content.as_str());
            format!(
                "the token {token:?} has rstrip, it drops the white space behind it, for which GGUF has no key: \
                 llama.cpp knows that of Phi-3 only, whose tokens all do but <unk>, <s> and <|endoftext|>; {REMEDY}"
            )
        })
    }

    /// The parts of the normalizer.
    fn normalizers(&self) -> Vec<Json> {
        match &self.normalizer {
            Some(Json::Object(map)) if map.get("type") == Some(&"Sequence".into()) => {
                map.get("normalizers").and_then(Json::as_array).cloned().unwrap_or_default()
            }
            Some(one @ Json::Object(_)) => vec![one.clone()],
            _ => Vec::new(),
        }
    }

    /// Whether a letter and the accent behind it become one character.
    fn composes(&self) -> bool {
        self.normalizers().iter().any(|part| part.get("type") == Some(&"NFC".into()))
    }

    /// Whether spaces are marked by a `Metaspace` alone.
    fn is_metaspace(&self) -> bool {
        let kind = self.pre_tokenizer.as_ref().and_then(|part| part.get("type")?.as_str());
        self.normalizers().is_empty() && kind == Some("Metaspace")
    }

    /// Whether a `Metaspace` puts a space before a text, which it does not before one that begins with a space.
    fn spares_spaces(&self) -> bool {
        let scheme = self.pre_tokenizer.as_ref().and_then(|part| part.get("prepend_scheme")?.as_str());
        self.is_metaspace() && scheme != Some("never")
    }

    /// Whether a space is put before a text.
    fn begins_with_space(&self) -> std::result::Result<bool, String> {
        let replace = serde_json::json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" });
        let prepend = serde_json::json!({ "type": "Prepend", "prepend": "▁" });
        let parts = self.normalizers();
        if parts == [prepend, replace.clone()] {
            return Ok(true);
        }
        if parts == [replace] {
            return Ok(false);
        }
        if self.is_metaspace() {
            return Ok(self.spares_spaces());
        }
        Err("its normalizer does not mark spaces as SentencePiece does".to_owned())
    }

    /// SentencePiece merges the pair with the best score first: a score for each token, from the ranks of the merges.
    fn scores(&self, tokens: &[(String, i32)]) -> std::result::Result<Vec<f32>, String> {
        let is_normal = |kind: i32| f64::from(kind) == NORMAL;
        // The others are found in a text before anything is merged.
        let merged: HashSet<&str> =
            tokens.iter().filter(|(_, kind)| is_normal(*kind)).map(|(text, _)| text.as_str()).collect();
        let mut ranks: HashMap<String, usize> = HashMap::new();
        let mut last: Option<String> = None;
        for (rank, merge) in self.model.merges.iter().enumerate() {
            let (left, right) = merge.pair()?;
            let token = format!("{left}{right}");
            if !merged.contains(token.as_str()) {
                continue;
            }
            if ranks.contains_key(&token) && last.as_ref() != Some(&token) {
                return Err(format!(
                    "the merges that make {token:?} do not follow each other, so that no score gives their order"
                ));
            }
            ranks.entry(token.clone()).or_insert(rank);
            last = Some(token);
        }
        let made = self.model.merges.len();
        let score = |(id, (text, kind)): (usize, &(String, i32))| {
            let rank = ranks.get(text).copied().unwrap_or(made + id);
            if is_normal(*kind) { -(rank as f32) } else { 0.0 }
        };
        Ok(tokens.iter().enumerate().map(score).collect())
    }
}
