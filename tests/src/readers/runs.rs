//! Readers of configurations and of what a run directory holds.

use super::{two, with_files};
use hankel_trainer::config::{Config, Experiment};
use hankel_trainer::export::{scalars, to_csv};
use hankel_trainer::report::Run;
use hankel_trainer::run::checkpoint;

/// The configuration of a run.
pub(super) fn configuration(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok((config, _)) = Config::load(text, "x.toml", &[]) else { return false };
    let written = config.to_toml();
    let again = Config::load(&written, "x.toml", &[]).map(|(config, _)| config);
    assert!(again.is_ok_and(|again| again == config), "what was written is read again:\n{written}");
    true
}

/// A configuration with a grid.
pub(super) fn sweep(bytes: &[u8]) -> bool {
    /// As many as an experiment of the paper has.
    const CELLS: usize = 200;
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(experiment) = Experiment::load(text, "x.toml", &[]) else { return false };
    // Who writes a million cells gets a million.
    experiment.size() <= CELLS && experiment.cells().is_ok_and(|cells| cells.len() == experiment.size())
}

/// `state.json` and `state.safetensors` of a checkpoint.
pub(super) fn checkpoint(bytes: &[u8]) -> bool {
    let (state, tensors) = two(bytes);
    with_files(&[("state.json", state), ("state.safetensors", tensors)], |folder| checkpoint::load(folder).is_ok())
}

/// `metrics.jsonl` of a run.
pub(super) fn events(bytes: &[u8]) -> bool {
    with_files(&[("metrics.jsonl", bytes)], |folder| {
        let Ok(run) = Run::load(folder) else { return false };
        let lines = to_csv(&scalars(&run.events)).lines().count();
        assert!(lines > 0, "a table has a header");
        !run.events.is_empty()
    })
}
