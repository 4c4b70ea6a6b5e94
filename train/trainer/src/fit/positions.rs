//! Sequences longer than those a model was made for.

use hankel_models::Backbone;

/// What is to be said before sequences of `length` tokens are given to a model, if they are too long for it.
pub fn position_warning(model: &dyn Backbone, length: usize) -> Option<String> {
    let most = model.made_for().filter(|most| *most < length)?;
    Some(format!(
        "warning: sequences of {length} tokens for a model that was made for {most} (`max_position_embeddings`): it has met no \
         position beyond, and its answers there are worth little; shorten `task.length`"
    ))
}
