//! Ids to text, as they are generated.

use super::{Tokenizer, fits, without_panic};
use crate::weights::{Result, WeightsError};
use std::borrow::Cow;
use std::path::PathBuf;
use tokenizers::{Decoder, DecoderWrapper};

/// What turns ids into text.
pub(super) trait Texts {
    /// The token of an id, and whether it is a special one.
    fn token(&self, id: u32) -> Option<(Cow<'_, str>, bool)>;
    /// The text of some ids; special tokens are left out.
    fn text(&self, ids: &[u32]) -> Result<String>;
}

impl Texts for Tokenizer {
    fn token(&self, id: u32) -> Option<(Cow<'_, str>, bool)> {
        let token = self.inner.id_to_token(id)?;
        let special = self.inner.get_added_vocabulary().is_special_token(&token);
        Some((token.into(), special))
    }

    fn text(&self, ids: &[u32]) -> Result<String> {
        self.decode(ids)
    }
}

/// The tokens of a tokenizer one after the other, without what encoding takes: 0.8 MB in place of 8 for a vocabulary of 49,152.
pub struct TokenTexts {
    path: PathBuf,
    /// Ascending.
    ids: Vec<u32>,
    /// Where the token of each ends in `tokens`.
    ends: Vec<u32>,
    tokens: String,
    special: Vec<bool>,
    decoder: Option<DecoderWrapper>,
    /// Ids at which generation stops.
    stops: Vec<u32>,
}

impl TokenTexts {
    /// The ids of `tokenizer` and their texts.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        let (inner, added) = (&tokenizer.inner, tokenizer.inner.get_added_vocabulary());
        let known = inner.get_vocab(true).into_values();
        let mut ids: Vec<u32> = known.filter(|id| !tokenizer.beyond.contains(id)).collect();
        ids.sort_unstable();
        ids.dedup();
        let (mut tokens, mut ends, mut special) = (String::new(), Vec::new(), Vec::new());
        for &id in &ids {
            let token = added.simple_id_to_token(id).or_else(|| inner.id_to_token(id)).unwrap_or_default();
            special.push(added.is_special_token(&token));
            tokens.push_str(&token);
            ends.push(tokens.len() as u32);
        }
        tokens.shrink_to_fit();
        let decoder = inner.get_decoder().cloned();
        let stops = tokenizer.eos.into_iter().chain(tokenizer.ends.iter().copied()).collect();
        TokenTexts { path: tokenizer.path.clone(), ids, ends, tokens, special, decoder, stops }
    }

    /// Whether nothing comes after `id` when a model writes.
    pub fn is_end(&self, id: u32) -> bool {
        self.stops.contains(&id)
    }

    /// Fails when a model of `vocabulary` ids cannot read what the tokenizer writes.
    ///
    /// # Errors
    /// Says both sizes.
    pub fn check(&self, vocabulary: usize) -> Result<()> {
        fits(&self.path, self.ids.last().map_or(0, |id| *id as usize + 1), vocabulary)
    }

    /// Decodes ids as they are generated.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream::of(self)
    }
}

impl Texts for TokenTexts {
    fn token(&self, id: u32) -> Option<(Cow<'_, str>, bool)> {
        let at = self.ids.binary_search(&id).ok()?;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some((self.tokens[start..self.ends[at] as usize].into(), self.special[at]))
    }

    fn text(&self, ids: &[u32]) -> Result<String> {
        let tokens = ids.iter().filter_map(|&id| self.token(id)).filter(|(_, special)| !special);
        let tokens: Vec<String> = tokens.map(|(token, _)| token.into_owned()).collect();
        let Some(decoder) = &self.decoder else { return Ok(tokens.join(" ")) };
        let text = without_panic(|| decoder.decode(tokens));
        let text = text.and_then(|text| text.map_err(|error| error.to_string()));
        text.map_err(|reason| WeightsError::content(&self.path, reason))
    }
}

/// Ids before a text that it is decoded with.
const BEFORE: usize = 16;

/// Text of a growing sequence of ids, handed out piece by piece: never half a character.
pub struct TextStream<'a> {
    texts: &'a dyn Texts,
    ids: Vec<u32>,
    /// Bytes of the text handed out so far.
    printed: usize,
    /// Whether the last token is a single byte: what its run of bytes spells depends on all of them.
    in_bytes: bool,
}

impl<'a> TextStream<'a> {
    pub(super) fn of(texts: &'a dyn Texts) -> Self {
        TextStream { texts, ids: Vec::new(), printed: 0, in_bytes: false }
    }

    /// Takes up what stands before: what a token looks like depends on those just before it. Nothing is handed out.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn after(mut self, ids: &[u32]) -> Result<Self> {
        ids[ids.len().saturating_sub(BEFORE)..].iter().try_for_each(|&id| self.push(id).map(drop))?;
        Ok(self)
    }

    /// Adds an id and gives the text that is certain now; empty while a character, or a run of single bytes, is incomplete.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.ids.push(id);
        let (token, special) = self.texts.token(id).unwrap_or_default();
        if !special {
            self.in_bytes = is_byte(&token);
        }
        if self.in_bytes {
            return Ok(String::new());
        }
        let text = self.texts.text(&self.ids)?;
        if text.ends_with(char::REPLACEMENT_CHARACTER) {
            return Ok(String::new());
        }
        Ok(self.rest(&text))
    }

    /// What is left at the end: a character that was never completed.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn finish(mut self) -> Result<String> {
        let text = self.texts.text(&self.ids)?;
        Ok(self.rest(&text))
    }

    fn rest(&mut self, text: &str) -> String {
        let new = text.get(self.printed..).unwrap_or_default().to_owned();
        self.printed = text.len();
        new
    }
}

/// Whether a token stands for one byte of a text, `<0xE2>`: a run of them is decoded together.
fn is_byte(token: &str) -> bool {
    token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).is_some_and(|hex| hex.len() == 2)
}
