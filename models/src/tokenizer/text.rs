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

/// Ids behind which those before the last [`BEFORE`] are let go.
const WINDOW: usize = 4 * BEFORE;

/// Text of a growing sequence of ids, handed out piece by piece: never half a character.
pub struct TextStream<'a> {
    texts: &'a dyn Texts,
    /// The last ones.
    ids: Vec<u32>,
    /// Bytes of their text handed out so far.
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
        // A run of bytes is decoded as one, so whole characters at the end would be handed out with what follows them: they are
        // left out. A character that is only begun stays, since what follows may complete it.
        let is_written = |id: &u32| {
            let token = self.texts.token(*id);
            token.is_some_and(|(token, special)| !special && byte(&token).is_none())
        };
        let end = ids.iter().rposition(is_written).map_or(0, |last| last + 1);
        let (before, bytes) = ids.split_at(end);
        let begun = self.begun(bytes);
        for &id in before[before.len().saturating_sub(BEFORE)..].iter().chain(&begun) {
            self.push(id)?;
        }
        Ok(self)
    }

    /// Those ids of a run of bytes, special tokens in it left out, that begin its last character and do not complete it.
    fn begun(&self, run: &[u32]) -> Vec<u32> {
        let of_byte = |&id: &u32| Some((id, byte(&self.texts.token(id)?.0)?));
        let (ids, bytes): (Vec<u32>, Vec<u8>) = run.iter().filter_map(of_byte).unzip();
        match std::str::from_utf8(&bytes) {
            Err(error) if error.error_len().is_none() => ids[error.valid_up_to()..].to_vec(),
            _ => Vec::new(),
        }
    }

    /// Adds an id and gives the text that is certain now; empty while a character, or a run of single bytes, is incomplete.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.ids.push(id);
        let (token, special) = self.texts.token(id).unwrap_or_default();
        if !special {
            self.in_bytes = byte(&token).is_some();
        }
        if self.in_bytes {
            return Ok(String::new());
        }
        let text = self.texts.text(&self.ids)?;
        if text.ends_with(char::REPLACEMENT_CHARACTER) {
            return Ok(String::new());
        }
        let new = self.rest(&text);
        if self.ids.len() >= WINDOW {
            self.ids.drain(..self.ids.len() - BEFORE);
            self.printed = self.texts.text(&self.ids)?.len();
        }
        Ok(new)
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

/// The byte of a text that a token stands for, `<0xE2>`: a run of them is decoded together.
fn byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::path::Path;

    const THE: u32 = 272;
    const END: u32 = 2;

    /// The id of `<0xE2>` and its like.
    fn of(byte: u8) -> u32 {
        3 + u32::from(byte)
    }

    fn mistral() -> Tokenizer {
        Tokenizer::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/tokenizer")).unwrap()
    }

    /// What is handed out of `new` behind `prompt`.
    fn written(tokenizer: &Tokenizer, prompt: &[u32], new: &[u32]) -> String {
        let texts = TokenTexts::of(tokenizer);
        let [one, other] = [tokenizer.stream(), texts.stream()].map(|stream| {
            let mut stream = stream.after(prompt).unwrap();
            let mut text: String = new.iter().map(|&id| stream.push(id).unwrap()).collect();
            text.push_str(&stream.finish().unwrap());
            text
        });
        assert_eq!(one, other);
        one
    }

    /// `▁A`, `:`, and the bytes of a text.
    fn prompt(end: &str) -> Vec<u32> {
        [330, 28_747].into_iter().chain(end.bytes().map(of)).collect()
    }

    #[test]
    fn bytes_that_end_a_prompt_are_not_written_again() {
        let mistral = mistral();
        assert_eq!(written(&mistral, &prompt("\n"), &[THE]), " the");
        assert_eq!(written(&mistral, &[&prompt("\n")[..], &[END]].concat(), &[THE]), " the");
        assert_eq!(written(&mistral, &prompt("\n"), &[of(b'\n'), THE]), "\n the");
        // More bytes than are looked back at.
        let crabs = prompt(&"\u{1f980}".repeat(5));
        let crab: Vec<u32> = "\u{1f980}".bytes().map(of).collect();
        assert_eq!(written(&mistral, &crabs, &[THE]), " the");
        assert_eq!(written(&mistral, &crabs, &[&crab[..], &[THE]].concat()), "\u{1f980} the");
        assert_eq!(written(&mistral, &crabs, &[]), "");
        // A byte that spells nothing takes nothing of the prompt with it.
        assert_eq!(written(&mistral, &prompt("\n"), &[of(0xe2), THE]), "\u{fffd} the");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        /// Bytes, of which many spell nothing, and other tokens, more than are held.
        #[test]
        fn pieces_are_those_of_the_whole_text(ids in vec(prop_oneof![3_u32..259, 259_u32..32_000], 0..6 * WINDOW)) {
            let mistral = mistral();
            prop_assert_eq!(written(&mistral, &[], &ids), mistral.decode(&ids).unwrap());
        }
    }

    #[test]
    fn a_long_text_takes_no_more_at_each_token() {
        let mistral = mistral();
        let ids = mistral.encode(&"The crab \u{1f980} walks.\n".repeat(40)).unwrap();
        let mut stream = mistral.stream();
        let longest = ids.iter().map(|&id| stream.push(id).map(|_| stream.ids.len()).unwrap()).max();
        assert!(longest < Some(WINDOW + 8) && ids.len() > 3 * WINDOW, "{longest:?} of {}", ids.len());
    }

    #[test]
    fn a_character_that_a_prompt_begins_is_completed() {
        let mistral = mistral();
        let begun = [&prompt("\n")[..], &[of(0xe2), of(0x82)]].concat();
        assert_eq!(written(&mistral, &begun, &[of(0xac), THE]), "\u{20ac} the");
        assert_eq!(written(&mistral, &begun, &[of(0xac)]), "\u{20ac}");
        assert_eq!(written(&mistral, &begun, &[THE]), "\u{fffd}\u{fffd} the");
    }
}
