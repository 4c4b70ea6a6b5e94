//! The last position that a model was made for, where generation ends.

use anyhow::{Result, ensure};
use hankel_models::Backbone;
use hankel_trainer::tell;

/// Tokens of a sequence, or of a turn where it is read by turns, the prompt included, at most.
#[derive(Debug, Clone, Copy)]
pub struct Limit(usize);

impl Limit {
    /// The limit of `model`. A model with learned positions has none, because it starts afresh on the second half of its context; but it
    /// has one when it reads by turns.
    pub fn of(model: &dyn Backbone, by_turns: bool) -> Self {
        Limit(model.made_for().filter(|_| by_turns || model.context().is_none()).unwrap_or(usize::MAX))
    }

    /// Refuses what is too long already; `what` it is, and what can be done.
    pub fn check(self, tokens: usize, what: &str, remedy: &str) -> Result<()> {
        let Limit(most) = self;
        ensure!(
            tokens < most,
            "{what} has {tokens} tokens, and the model was made for {most} (`max_position_embeddings`, in a GGUF file `context_length`), an answer included: {remedy}"
        );
        Ok(())
    }

    /// The number of tokens at which a sequence ends.
    pub fn most(self) -> usize {
        self.0
    }

    /// Whether a sequence of `tokens` ends here, which is told.
    pub fn ends(self, tokens: usize) -> bool {
        let Limit(most) = self;
        let ends = tokens >= most;
        if ends {
            tell!(
                "note: this ends at {most} tokens, the most that the model was made for (`max_position_embeddings`, in a GGUF file `context_length`)"
            );
        }
        ends
    }
}
