//! Turns: where attention starts afresh, `task.turn_start`.

use super::config::TextConfig;
use crate::tasks::{Batch, Sequence, TaskError};
use hankel_models::{Tokenizer, TurnStart};

/// Training examples of which one must have several turns.
pub(super) const LOOKED_AT: usize = 100;

/// The tokens that begin a turn, where turns are asked for.
///
/// # Errors
/// Those of the tokenizer.
pub(super) fn start(config: &TextConfig, tokenizer: &Tokenizer) -> Result<Option<TurnStart>, TaskError> {
    let start = config.turn_start.as_deref().map(|text| TurnStart::new(tokenizer, text));
    start.transpose().map_err(TaskError::Tokenizer)
}

/// Writes down where turns begin in packed sequences.
pub(super) fn divide(batch: &mut Batch, start: &TurnStart) {
    let ends = batch.documents[1..].iter().copied().chain([batch.length]);
    let turns = batch.documents.iter().zip(ends).flat_map(|(&first, end)| {
        let later = start.later_turns(&batch.tokens[first..end]).map(move |place| first + place);
        std::iter::once(first).chain(later).collect::<Vec<_>>()
    });
    batch.turns = turns.collect();
}

/// What is said of the turns of an example.
pub(super) fn describe(sequence: &Sequence, start: &TurnStart, text: &str) -> String {
    let count = 1 + start.later_turns(&sequence.tokens).count();
    format!(
        "attention starts afresh at every {text:?} but the first, {count} turns in the first example: only stream adapters remember earlier ones"
    )
}

/// Refuses a beginning of turns that examples do not have.
///
/// # Errors
/// When none of `sequences` has a second turn.
pub(super) fn check(sequences: &[Sequence], start: &TurnStart, text: &str) -> Result<(), TaskError> {
    if sequences.iter().any(|sequence| start.later_turns(&sequence.tokens).next().is_some()) {
        return Ok(());
    }
    Err(TaskError::Unusable(format!(
        "`task.turn_start` = {text:?} begins no second turn in the first {} training examples: `train fit CONFIG --dry-run` without it \
         shows their tokens",
        sequences.len()
    )))
}
