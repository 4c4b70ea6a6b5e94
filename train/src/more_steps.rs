//! More steps for a run that is continued: where what is done so far is what a longer run would have done.

use anyhow::{Result, bail};
use hankel_trainer::config::{AdapterConfig, Config, Keep, Schedule, TrainConfig};
use hankel_trainer::format::counted;
use hankel_trainer::run::{RunDirectory, checkpoint};

/// Whether a `--set` changes the number of steps of `[train]` or of an adapter.
pub fn is_of_steps(assignment: &str) -> bool {
    is_of(assignment, "train.steps")
}

/// Whether an assignment is of the passes over the data.
pub fn is_of_epochs(assignment: &str) -> bool {
    is_of(assignment, "train.epochs")
}

fn is_of(assignment: &str, of_training: &str) -> bool {
    let key = assignment.split('=').next().unwrap_or_default().trim();
    key == of_training || (key.starts_with("adapter.") && key.ends_with(&format!(".{of_training}")))
}

/// Refuses other steps for a run that was begun with `before`, unless it is on its first adapter and its schedule does not depend on
/// them; and those of `[train]` where an adapter has settings of its own, which are stored whole.
pub fn check(directory: &RunDirectory, before: &Config, now: &Config) -> Result<()> {
    let path = directory.path();
    if before.train.steps != now.train.steps {
        let steps = |config: &Config, adapter: &AdapterConfig| config.training_of(adapter).steps;
        let stays = before.adapter.iter().zip(&now.adapter).find(|(was, is)| steps(before, was) == steps(now, is));
        if let Some((adapter, _)) = stays {
            bail!(
                "`train.steps` does not reach `{0}`, which has settings of training of its own: set `adapter.{0}.train.steps`",
                adapter.name
            );
        }
    }
    let changed = before.adapter.iter().zip(&now.adapter).find_map(|(was, is)| {
        let [was, is] = [(before, was), (now, is)].map(|(config, adapter)| (adapter, config.training_of(adapter)));
        (was.1.steps != is.1.steps).then_some((was, is))
    });
    let Some(((adapter, was), (_, is))) = changed else { return Ok(()) };
    let name = &adapter.name;
    // Rows without an adapter, which stand beside others, leave nothing to go on from.
    let is_saved = |adapter: &&AdapterConfig| directory.adapter(&adapter.name).join("adapter_config.json").is_file();
    let saved = before.adapter.iter().find(is_saved);
    let anew = saved.map_or_else(
        || "for more, begin a new run".to_owned(),
        |saved| {
            format!(
                "for more, begin a new run with `path = {:?}` in [[adapter]], which goes on from what `{}` has learnt (its moments and its \
                 schedule begin anew)",
                directory.adapter(&saved.name).display().to_string(),
                saved.name
            )
        },
    );
    let newest = checkpoint::list(&directory.checkpoints()).pop();
    if newest.is_none() && directory.result().is_file() {
        bail!("{} is finished, and has no checkpoint to go on from: {anew}", path.display());
    }
    let state = newest.map(|newest| checkpoint::state(&newest)).transpose()?.unwrap_or_default();
    if !state.rows.is_empty() {
        bail!("{} has finished `{}` with the steps it was begun with: {anew}", path.display(), state.rows[0].name);
    }
    // The configuration would differ from the newest checkpoint's in more than steps: killed before the next one, the run could not go on.
    if adapter.train.is_none() && now.adapter.iter().any(|is| is.name == *name && is.train.is_some()) {
        bail!("`{name}` has no settings of training of its own: set `train.steps`");
    }
    if was.steps.is_none() {
        bail!(
            "{}: how many steps `{name}` has, and when it is evaluated, follows from its data: {anew}; with `train.steps` in the \
             configuration a run can be given more",
            path.display()
        );
    }
    if let Some(dependence) = dependence(was, adapter.method.depends_on_steps()) {
        bail!("{}: {dependence} of `{name}` was laid out for {} steps: {anew}", path.display(), shown(was));
    }
    let is_at_end = state.name == *name && was.steps == Some(state.step);
    let is_evaluated = state.progress.curve.last().is_some_and(|(step, _)| *step == state.step);
    let counts = was.keep == Keep::Best || was.patience.is_some();
    let is_another = |every: &u64| counts && is_at_end && state.step.is_multiple_of(*every) != is_evaluated;
    if let Some(every) = was.eval_every.filter(is_another) {
        let (was, longer) = if is_evaluated { ("was", "is not") } else { ("was not", "is") };
        bail!(
            "{}: `{name}` {was} evaluated after its last step, {}, where a longer run {longer} (`eval_every` = {every}), and `keep` and \
             `patience` go by evaluations: {anew}",
            path.display(),
            state.step
        );
    }
    let waited = state.progress.best.as_ref().map_or(0, |best| best.waited);
    if let Some(patience) = was.patience.filter(|patience| is_at_end && waited >= *patience) {
        bail!(
            "{}: `{name}` was no better in its last {}, so that `patience` ends a longer run there, too: {anew}",
            path.display(),
            counted(patience as usize, "evaluation")
        );
    }
    if state.name == *name && is.steps.is_some_and(|steps| steps <= state.step) {
        bail!("{}: `{name}` has {} steps done already: more than that are needed", path.display(), state.step);
    }
    Ok(())
}

fn shown(train: &TrainConfig) -> String {
    train.steps.map_or_else(|| "its".to_owned(), |steps| steps.to_string())
}

/// What a training begun with more steps would have done differently so far, if anything.
fn dependence(train: &TrainConfig, kind: bool) -> Option<&'static str> {
    if train.schedule != Schedule::Constant {
        return Some("the schedule of the learning rate");
    }
    // Written out as steps where the steps were known.
    if train.warmup_steps.is_none() && train.warmup_ratio.is_none_or(|ratio| ratio > 0.0) {
        return Some("the warm-up, a share of the steps,");
    }
    kind.then_some("the schedule of ranks")
}
