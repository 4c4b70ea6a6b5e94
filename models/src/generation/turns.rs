//! Where the turns of a conversation begin.

use crate::tokenizer::Tokenizer;
use crate::weights::WeightsError;
use std::ops::Range;
use std::sync::Arc;

/// The tokens that begin a turn. Attention and positions start afresh there ([`crate::Pass::turns`],
/// [`crate::State::begin_turn`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnStart {
    /// In every spelling, the longest first: many tokenizers write a text otherwise at the beginning, and behind a special token,
    /// than within a text.
    spellings: Arc<[Vec<u32>]>,
}

impl TurnStart {
    /// The tokens of `text`, at the beginning of a text and within one. `None` when it has none.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn new(tokenizer: &Tokenizer, text: &str) -> Result<Option<Self>, WeightsError> {
        Ok(Self::of_tokens(vec![tokenizer.encode(text)?, tokenizer.continuation(text)?]))
    }

    /// Any of these spellings; `None` when one is empty.
    pub fn of_tokens(mut spellings: Vec<Vec<u32>>) -> Option<Self> {
        spellings.sort_by_key(|spelling| std::cmp::Reverse(spelling.len()));
        spellings.dedup();
        let usable = spellings.last().is_some_and(|shortest| !shortest.is_empty());
        usable.then(|| TurnStart { spellings: spellings.into() })
    }

    /// The beginnings of turns in the tokens of a whole text, in ascending order, without that of the first turn: what stands
    /// before it, the token that begins a text or a system prompt, belongs to the first turn.
    pub fn later_turns<'a>(&'a self, tokens: &'a [u32]) -> impl Iterator<Item = Range<usize>> + 'a {
        let mut from = 0;
        let places = std::iter::from_fn(move || {
            let found = (from..tokens.len()).find_map(|place| {
                let spelling = self.spellings.iter().find(|spelling| tokens[place..].starts_with(spelling))?;
                Some(place..place + spelling.len())
            });
            from = found.as_ref().map_or(tokens.len(), |place| place.end);
            found
        });
        places.skip(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_one_turn_each() {
        let start = TurnStart::of_tokens(vec![vec![7, 2], vec![9, 7, 2]]).unwrap();
        let found = |tokens: &[u32]| start.later_turns(tokens).collect::<Vec<_>>();
        assert_eq!(found(&[1, 9, 7, 2, 5, 7, 2, 5, 9, 7, 2]), [5..7, 8..11], "the first is that of the text");
        assert!(found(&[7, 2, 5]).is_empty() && found(&[]).is_empty() && found(&[7, 7, 7]).is_empty());
        assert_eq!(found(&[7, 2, 7, 2, 7, 2]), [2..4, 4..6]);
        assert_eq!(TurnStart::of_tokens(vec![vec![1], vec![]]), None);
    }
}
