//! Sequences longer than those a model has met.

use crate::config::Config;
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

/// What is to be said of lengths before a run of `config` on `backbone`.
pub(super) fn warnings(backbone: &dyn Backbone, config: &Config) -> impl Iterator<Item = String> {
    position_warning(backbone, &config.task).into_iter().chain(pretraining_warning(config))
}

/// What is to be said before a backbone is pretrained on sequences shorter than those that adapters meet: its positions are learnt.
fn pretraining_warning(config: &Config) -> Option<String> {
    let (longest, pretraining) = (config.task.longest_sequence(), config.pretrain_task().longest_sequence());
    let is_longer = config.pretrain.is_some() && config.backbone.path().is_none() && pretraining < longest;
    is_longer.then(|| {
        format!(
            "warning: the backbone is pretrained on sequences of {pretraining} tokens, and `[task]` has {longest}: its positions from \
             {pretraining} on stay as they were drawn; set `pretrain.task.length`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn positions_that_pretraining_leaves_out_are_told() {
        let config = |length: &str| {
            let text = format!(
                "name = \"x\"\n[task]\nkind = \"dfa\"\nlength = 32\n[pretrain]\nsteps = 1\n[pretrain.task]\n{length}\n[[adapter]]\nkind = \"none\"\n"
            );
            Config::load_of_run(&text, "x.toml", &Path::to_path_buf, &[]).unwrap()
        };
        assert_eq!(pretraining_warning(&config("")), None);
        let said = pretraining_warning(&config("length = 8")).unwrap();
        assert!(said.contains("sequences of 8 tokens, and `[task]` has 32: its positions from 8 on"), "{said}");
    }
}
