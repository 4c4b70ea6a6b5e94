//! Where the turns of a conversation begin.

use crate::tokenizer::Tokenizer;
use crate::weights::WeightsError;
use std::sync::Arc;

/// The tokens that begin a turn. Attention and positions start afresh there ([`crate::Pass::turns`],
/// [`crate::State::begin_turn`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnStart(Arc<[u32]>);

impl TurnStart {
    /// The tokens of `text` as they stand within a text.
    ///
    /// # Errors
    /// Those of the tokenizer.
    ///
    /// # Panics
    /// When the text is empty or has no tokens.
    pub fn new(tokenizer: &Tokenizer, text: &str) -> Result<Self, WeightsError> {
        Ok(Self::of_tokens(&tokenizer.continuation(text)?))
    }

    /// These tokens.
    ///
    /// # Panics
    /// When there are none.
    pub fn of_tokens(tokens: &[u32]) -> Self {
        assert!(!tokens.is_empty(), "a turn begins with a token");
        TurnStart(tokens.into())
    }

    /// How many tokens there are.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Where turns begin in the tokens of a whole text, in ascending order, without the first turn: what stands before the
    /// first of these tokens, the token that begins a text or a system prompt, belongs to it.
    pub fn later_turns<'a>(&'a self, tokens: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
        let places = tokens.windows(self.len()).enumerate().filter(|(_, window)| *window == &self.0[..]);
        places.map(|(place, _)| place).skip(1)
    }
}
