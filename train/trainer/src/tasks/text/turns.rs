//! Turns: where attention starts afresh, `task.turn_start`.

use super::config::TextConfig;
use crate::format::counted;
use crate::tasks::{Batch, TaskError};
use hankel_models::{Tokenizer, TurnStart};

/// What begins a turn, where turns are asked for.
///
/// # Errors
/// Those of the tokenizer, and when the text has no tokens.
pub(super) fn start(config: &TextConfig, tokenizer: &Tokenizer) -> Result<Option<TurnStart>, TaskError> {
    let Some(text) = config.turn_start.as_deref() else { return Ok(None) };
    let start = TurnStart::new(tokenizer, text).map_err(TaskError::Tokenizer)?;
    let none = || TaskError::Unusable(format!("`task.turn_start` = {text:?} has no tokens"));
    Ok(Some(start.ok_or_else(none)?))
}

/// Writes down where turns begin in packed sequences.
pub(super) fn divide(batch: &mut Batch, start: &TurnStart) {
    let ends = batch.documents[1..].iter().copied().chain([batch.length]);
    let turns = batch.documents.iter().zip(ends).flat_map(|(&first, end)| {
        let later = start.later_turns(&batch.tokens[first..end]).map(move |turn| first + turn.start);
        std::iter::once(first).chain(later).collect::<Vec<_>>()
    });
    batch.turns = turns.collect();
}

/// What is said of the turns of a batch; `text` begins them.
pub(super) fn describe(batch: &Batch, text: &str) -> String {
    format!(
        "attention starts afresh at every {text:?} but the first of an example: {} in {}; of earlier turns stream adapters alone remember \
         anything",
        counted(batch.turns.len(), "turn"),
        counted(batch.document_count(), "example")
    )
}

/// The problem with a text that begins no second turn in any training example.
pub(super) fn never(text: &str) -> TaskError {
    TaskError::Unusable(format!(
        "`task.turn_start` = {text:?} begins no second turn in any training example: `train fit CONFIG --dry-run` without it shows \
         their tokens"
    ))
}
