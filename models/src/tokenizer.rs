//! Text to token ids and back, by the `tokenizer.json` beside a model or the tokenizer in a GGUF file.

mod added;
mod text;

pub use text::{TextStream, TokenTexts};

use crate::gguf::{self, Gguf};
use crate::weights::{Result, WeightsError};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Once;

/// Name of the file.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// Name the special tokens, the first before the second; both may be missing.
const CONFIG_FILE: &str = "tokenizer_config.json";
const SPECIAL_FILE: &str = "special_tokens_map.json";
/// Special tokens that a chat template may name beside those that begin and end a text.
const OTHERS: [&str; 5] = ["unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

thread_local! {
    /// Whether a panic on this thread is caught and told as an error.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// What `f` gives, or what it panicked with: some files that are valid JSON make the `tokenizers` crate panic.
fn without_panic<T>(f: impl FnOnce() -> T) -> std::result::Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                usual(panic);
            }
        }));
    });
    let before = IS_CAUGHT.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(f));
    IS_CAUGHT.set(before);
    done.map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        format!("the tokenizers crate cannot use it and panics: {text}")
    })
}

/// A tokenizer.
#[derive(Clone)]
pub struct Tokenizer {
    path: PathBuf,
    inner: tokenizers::Tokenizer,
    bos: Option<u32>,
    eos: Option<u32>,
    ends: Vec<u32>,
    /// Special tokens by their names, without those that begin and end a text.
    others: Vec<(&'static str, String)>,
    before: Vec<u32>,
    after: Vec<u32>,
    /// One more than the largest id, of what the model has a row for.
    ids: usize,
    /// One more than the largest id of a token: a GGUF file may have rows without one at its end.
    vocabulary: usize,
    /// Added tokens for which it has none: those of pictures, for Gemma 3 1B. No text may have them.
    beyond: Vec<u32>,
}

impl Tokenizer {
    /// Whether a model, a directory or a GGUF file, comes with a tokenizer.
    pub fn is_beside(model: &Path) -> bool {
        gguf::is_gguf(model) || model.join(TOKENIZER_FILE).is_file()
    }

    /// Reads the tokenizer of a model: a GGUF file or a directory. In a directory it is `tokenizer.json`.
    ///
    /// `tokenizer_config.json` or `special_tokens_map.json` names the tokens that begin and end a text; without either file they are `<s>`
    /// and `</s>`. `add_bos_token` and `add_eos_token` say whether they are put around a text, else the post-processor of `tokenizer.json`.
    /// Generation stops at `eos_token_id` of `generation_config.json` and `config.json`, the first of which ends a text where nothing else
    /// says it, and at special tokens that end a turn (`<|im_end|>` ...).
    ///
    /// # Errors
    /// When a file is missing or malformed, or a special token that it names has no id; when a GGUF file has no tokenizer,
    /// or one of an unknown kind.
    pub fn load(model: &Path) -> Result<Self> {
        if gguf::is_gguf(model) { Self::of_gguf(&Gguf::open(model)?) } else { Self::of_directory(model) }
    }

    /// The tokenizer in a GGUF file.
    ///
    /// # Errors
    /// As [`Tokenizer::load`].
    pub fn of_gguf(file: &Gguf) -> Result<Self> {
        let path = file.path().to_path_buf();
        let built = without_panic(|| gguf::tokenizer::build(file));
        let gguf::tokenizer::Built { tokenizer, ids, bos, eos, ends, others } =
            built.map_err(|reason| WeightsError::content(&path, reason))??;
        let vocabulary = tokenizer.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1);
        Ok(Tokenizer { bos, eos, ends, others, vocabulary, ..Tokenizer::bare(path, tokenizer, ids) }.surrounded())
    }

    /// A tokenizer of which nothing is known but its file.
    fn bare(path: PathBuf, inner: tokenizers::Tokenizer, ids: usize) -> Self {
        let (ends, others, before, after) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (vocabulary, beyond) = (ids, Vec::new());
        Tokenizer { path, inner, bos: None, eos: None, ends, others, before, after, ids, vocabulary, beyond }
    }

    /// With what its post-processor puts around a text.
    fn surrounded(mut self) -> Self {
        // A file that cannot encode anything is told when something is encoded.
        let ids = |special| self.ids("a", special).unwrap_or_default();
        let (alone, whole) = (ids(false), ids(true));
        if let Some(at) = whole.windows(alone.len().max(1)).position(|window| window == alone) {
            (self.before, self.after) = (whole[..at].to_vec(), whole[at + alone.len()..].to_vec());
        }
        self
    }

    fn of_directory(directory: &Path) -> Result<Self> {
        let path = directory.join(TOKENIZER_FILE);
        let bytes = hankel_io::input::read(&path)?;
        let malformed = |reason: String| WeightsError::Malformed { path: path.clone(), kind: "tokenizer", reason };
        let mut inner = without_panic(|| tokenizers::Tokenizer::from_bytes(bytes))
            .map_err(malformed)?
            .map_err(|error| malformed(error.to_string()))?;
        // What a file keeps of the last call in Python: transformers, too, cuts and pads only when it is asked to.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| malformed(error.to_string()))?;
        let names = [CONFIG_FILE, SPECIAL_FILE].map(|name| directory.join(name));
        let [config, map] = [read_config(&names[0])?, read_config(&names[1])?];
        let special = |key: &'static str| {
            let (path, value) = match config.get(key) {
                Some(value) => (&names[0], value),
                None => (&names[1], map.get(key)?),
            };
            let text = value.get("content").unwrap_or(value).as_str()?;
            Some((path, key, text.to_owned()))
        };
        let named = ["bos_token", "eos_token"].into_iter().chain(OTHERS).filter_map(special);
        let named: Vec<String> = named.map(|(_, _, text)| text).collect();
        without_panic(|| added::add(&mut inner, &config, &named))
            .and_then(|added| added)
            .map_err(|reason| WeightsError::content(&names[0], reason))?;
        let beyond = beyond(&inner, &directory.join("config.json"))?;
        let ids = inner.get_vocab(true).into_values().filter(|id| !beyond.contains(id)).max();
        let ids = ids.map_or(0, |id| id as usize + 1);
        let mut tokenizer = Tokenizer { beyond, ..Tokenizer::bare(path, inner, ids) }.surrounded();
        tokenizer.others = OTHERS.into_iter().filter_map(special).map(|(_, key, text)| (key, text)).collect();
        if names.iter().any(|path| path.is_file()) {
            tokenizer.bos = special("bos_token").map(|named| tokenizer.named(named)).transpose()?;
            tokenizer.eos = special("eos_token").map(|named| tokenizer.named(named)).transpose()?;
        } else {
            tokenizer.bos = tokenizer.inner.token_to_id("<s>");
            tokenizer.eos = tokenizer.inner.token_to_id("</s>");
        }
        for name in ["generation_config.json", "config.json"] {
            tokenizer.ends.extend(end_ids(&directory.join(name))?);
        }
        tokenizer.eos = tokenizer.eos.or(tokenizer.ends.first().copied());
        // A base model whose template ends turns otherwise than its texts would write on.
        let added = tokenizer.inner.get_added_vocabulary();
        let turns = gguf::tokenizer::ENDS.into_iter().filter(|token| added.is_special_token(token));
        let turns: Vec<u32> = turns.filter_map(|token| tokenizer.inner.token_to_id(token)).collect();
        tokenizer.ends.extend(turns);
        // What is said here wins over the post-processor, as in llama.cpp and the Llama tokenizers of transformers 4; transformers 5 goes by
        // the post-processor alone.
        let asked = |key: &str| config.get(key).and_then(Value::as_bool);
        if let Some(begins) = asked("add_bos_token") {
            tokenizer.before = tokenizer.bos.filter(|_| begins).into_iter().collect();
        }
        if let Some(ends) = asked("add_eos_token") {
            tokenizer.after = tokenizer.eos.filter(|_| ends).into_iter().collect();
        }
        Ok(tokenizer)
    }

    /// The id of a special token that a file names.
    fn named(&self, (path, key, text): (&PathBuf, &str, String)) -> Result<u32> {
        let id = self.inner.token_to_id(&text);
        id.ok_or_else(|| WeightsError::content(path, format!("{key} {text:?} is not in {TOKENIZER_FILE}")))
    }

    /// Special tokens by the names that chat templates have for them: `bos_token`, `eos_token`, `pad_token` ...
    pub fn special_tokens(&self) -> Vec<(&'static str, String)> {
        let piece = |name, id: Option<u32>| Some((name, self.piece(id?)?));
        let ends = [piece("bos_token", self.bos), piece("eos_token", self.eos)];
        ends.into_iter().flatten().chain(self.others.iter().cloned()).collect()
    }

    /// The tokens that are found in a text before anything else, those of `tokenizer_config.json` included, by their ids.
    pub(crate) fn added(&self) -> BTreeMap<u32, tokenizers::AddedToken> {
        self.inner.get_added_tokens_decoder().into_iter().collect()
    }

    /// The content of a `tokenizer.json`.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn to_json(&self) -> Result<String> {
        self.inner.to_string(false).map_err(|e| WeightsError::content(&self.path, e.to_string()))
    }

    /// One more than the largest id that a text can have, special ones included: there may be gaps below it.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The token that begins a text; whether it is put before one, [`Tokenizer::before`] says.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// What is put before a text: the token that begins it, or nothing.
    pub fn before(&self) -> &[u32] {
        &self.before
    }

    /// Whether nothing comes after `id` when a model writes.
    pub fn is_end(&self, id: u32) -> bool {
        self.eos == Some(id) || self.ends.contains(&id)
    }

    /// The tokens at which generation stops, each once: first the one that ends a text.
    pub fn ends(&self) -> Vec<u32> {
        let mut ends: Vec<u32> = Vec::new();
        for id in self.eos.into_iter().chain(self.ends.iter().copied()) {
            if !ends.contains(&id) {
                ends.push(id);
            }
        }
        ends
    }

    /// The ids of those `texts` that are special tokens: they are not among the texts that ids decode to.
    pub fn special_ids(&self, texts: &[String]) -> Vec<u32> {
        let added = self.inner.get_added_vocabulary();
        let special = texts.iter().filter(|text| added.is_special_token(text));
        special.filter_map(|text| self.inner.token_to_id(text)).collect()
    }

    /// Fails when a model of `vocabulary` ids cannot read what this tokenizer writes.
    ///
    /// # Errors
    /// Says both sizes.
    pub fn check(&self, vocabulary: usize) -> Result<()> {
        fits(&self.path, self.ids, vocabulary)
    }

    /// The ids of a text, without special tokens around it.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.ids(text, false)
    }

    /// The ids of a text, with the special tokens that are put around it: `<s>` before it, for Mistral.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn encode_with_special(&self, text: &str) -> Result<Vec<u32>> {
        Ok([&self.before[..], &self.encode(text)?, &self.after].concat())
    }

    /// The ids of a text that follows another one, without special tokens around it.
    ///
    /// Tokenizers may put a space before a text, so it is encoded behind a line break.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn continuation(&self, text: &str) -> Result<Vec<u32>> {
        let (anchor, ids) = (self.encode("\n")?, self.encode(&format!("\n{text}"))?);
        match ids.strip_prefix(&anchor[..]) {
            Some(rest) => Ok(rest.to_vec()),
            // The line break grew together with what follows.
            None => self.encode(text),
        }
    }

    /// The ids of a text that follows `before`, as encoding all of it at once gives them. A text is cut at added tokens before anything
    /// else is done to it, so behind one of them it may begin with a space again, and its first spaces may belong to the token. Behind
    /// another token they are those of [`Tokenizer::continuation`].
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn behind(&self, before: &[u32], text: &str) -> Result<Vec<u32>> {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder();
        if let Some((id, token)) = before.last().and_then(|id| Some((*id, added.get(id)?))) {
            let ids = self.encode(&format!("{}{text}", token.content))?;
            if let Some((_, rest)) = ids.split_first().filter(|(first, _)| **first == id) {
                return Ok(rest.to_vec());
            }
        }
        self.continuation(text)
    }

    /// The ids of a text, without special tokens around it, each with the bytes of the text that it stands for. Tokens of
    /// which several make a character stand for all of it.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn encode_with_places(&self, text: &str) -> Result<Vec<(u32, Range<usize>)>> {
        let encoding = without_panic(|| self.inner.encode(text, false));
        let encoding = encoding.and_then(|encoding| encoding.map_err(|error| error.to_string()));
        let encoding = encoding.map_err(|reason| WeightsError::content(&self.path, reason))?;
        self.check_ids(encoding.get_ids())?;
        let places = encoding.get_offsets().iter().map(|&(first, end)| first..end);
        Ok(encoding.get_ids().iter().copied().zip(places).collect())
    }

    fn ids(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let encoding = without_panic(|| self.inner.encode_fast(text, special));
        let encoding = encoding.and_then(|encoding| encoding.map_err(|error| error.to_string()));
        let encoding = encoding.map_err(|reason| WeightsError::content(&self.path, reason))?;
        self.check_ids(encoding.get_ids())?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Refuses tokens that the model has no row for.
    fn check_ids(&self, ids: &[u32]) -> Result<()> {
        let Some(id) = ids.iter().find(|id| self.beyond.contains(id)) else { return Ok(()) };
        let token = self.piece(*id).unwrap_or_default();
        let reason =
            format!("the text has {token:?}, whose id {id} is beyond the vocabulary of the model, {}", self.ids);
        Err(WeightsError::content(&self.path, reason))
    }

    /// The id of a token as the vocabulary has it.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token of an id as the vocabulary has it: `▁the` (a space at its beginning shown as `▁` or `Ġ`), `<0x0A>`, `</s>`.
    pub fn piece(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The text of some ids; special tokens are left out.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.text(ids, true)
    }

    /// The text of some ids, special tokens written out.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn decode_with_special(&self, ids: &[u32]) -> Result<String> {
        self.text(ids, false)
    }

    fn text(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        let text = without_panic(|| self.inner.decode(ids, skip_special));
        let text = text.and_then(|text| text.map_err(|error| error.to_string()));
        text.map_err(|reason| WeightsError::content(&self.path, reason))
    }

    /// Decodes ids as they are generated.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream::of(self)
    }
}

/// Added tokens whose ids are not below `vocab_size` of the model's configuration, if that is there and all other tokens are.
fn beyond(inner: &tokenizers::Tokenizer, config: &Path) -> Result<Vec<u32>> {
    let size = read_config(config)?.get("vocab_size").and_then(Value::as_u64);
    let Some(size) = size.and_then(|size| u32::try_from(size).ok()) else { return Ok(Vec::new()) };
    if inner.get_vocab(false).into_values().any(|id| id >= size) {
        return Ok(Vec::new());
    }
    let added = inner.get_added_vocabulary().get_vocab().values();
    Ok(added.copied().filter(|&id| id >= size).collect())
}

/// A configuration; null where there is none.
fn read_config(path: &Path) -> Result<Value> {
    if !path.is_file() {
        return Ok(Value::Null);
    }
    let bytes = hankel_io::input::read(path)?;
    serde_json::from_slice(&bytes).map_err(|e| WeightsError::content(path, e.to_string()))
}

/// Fails when a model of `vocabulary` ids cannot read ids below `ids`.
fn fits(path: &Path, ids: usize, vocabulary: usize) -> Result<()> {
    if ids <= vocabulary {
        return Ok(());
    }
    let reason = format!("ids go up to {ids}, the model has {vocabulary}: the tokenizer is of another model");
    Err(WeightsError::content(path, reason))
}

/// `eos_token_id`, one or several, of a configuration that may be missing.
fn end_ids(path: &Path) -> Result<Vec<u32>> {
    let config = read_config(path)?;
    let value = config.get("eos_token_id").unwrap_or(&Value::Null);
    let several = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| WeightsError::content(path, format!("eos_token_id holds {value}, which is not a token id")))
    };
    several.iter().filter(|value| !value.is_null()).map(id).collect()
}
