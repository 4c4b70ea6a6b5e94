//! Sequences longer than those a model was made for.

use crate::tasks::TaskConfig;
use hankel_models::Backbone;

/// What is to be said before sequences of `task` are given to a model, if they are too long for it. Positions start afresh at
/// turns, whose lengths are not known.
pub fn position_warning(model: &dyn Backbone, task: &TaskConfig) -> Option<String> {
    let length = task.sequence_length();
    let most = model.made_for().filter(|most| *most < length && !task.has_turns())?;
    Some(format!(
        "warning: sequences of {length} tokens for a model that was made for {most} (`max_position_embeddings`): it has met no \
         position beyond, and its answers there are worth little; shorten `task.length`"
    ))
}
