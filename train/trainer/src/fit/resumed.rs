//! What a run that is resumed goes on from, checked before anything of it is changed.

use crate::results::{DataFile, Event, RunResult};
use crate::run::RunDirectory;
use crate::run::checkpoint::{self, RunState};
use anyhow::{Context, Result, bail};

/// The state of the newest checkpoint, or a fresh one for a run that was stopped before its first.
///
/// # Errors
/// When the checkpoint cannot be read; when there is none, although the log has one or adapters are there without a log. To begin again
/// would replace what the run has trained.
pub(super) fn state_of(directory: &RunDirectory) -> Result<RunState> {
    let checkpoints = checkpoint::list(&directory.checkpoints());
    if let Some(newest) = checkpoints.last() {
        let advice = || {
            let others =
                if checkpoints.len() > 1 { "; without this folder the run goes on from the one before" } else { "" };
            format!("the newest checkpoint cannot be read{others}")
        };
        return Ok(checkpoint::load(newest).with_context(advice)?.0);
    }
    let metrics = directory.metrics();
    // Without it nobody knows what the run has done, but for what it has left.
    let lines = if metrics.exists() { Some(hankel_io::input::read_to_string(&metrics)?) } else { None };
    let is_checkpoint = |line: &str| matches!(serde_json::from_str(line), Ok(Event::Checkpoint { .. }));
    let has_trained = match &lines {
        Some(lines) => lines.lines().any(is_checkpoint),
        None => {
            std::fs::read_dir(directory.path().join("adapters")).is_ok_and(|mut adapters| adapters.next().is_some())
        }
    };
    if has_trained {
        bail!(
            "the checkpoints of {} are not there any more, so that it cannot be resumed: put {} back, or begin a new run",
            directory.path().display(),
            directory.checkpoints().display()
        );
    }
    Ok(RunState::default())
}

/// The result of a run that is finished: it stays as it was written, with the program and machine that it is of.
pub(super) fn result_of(directory: &RunDirectory) -> Option<RunResult> {
    serde_json::from_str(&hankel_io::input::read_to_string(&directory.result()).ok()?).ok()
}

/// Takes up the files of data that the run is trained on, and those of its model, tokenizers and adapters.
///
/// # Errors
/// When it is resumed and one is not what it began with: batches and splits, or what is computed, would be others from here on.
pub(super) fn go_on_with(state: &mut RunState, data: Vec<DataFile>, model_files: Vec<DataFile>) -> Result<()> {
    let before = std::mem::replace(&mut state.data, data);
    // By their order: a run may have been moved with its data.
    before.iter().zip(&state.data).try_for_each(|(was, is)| same_file(was, is, "the SHA-256"))?;
    let (began, are) = (before.len(), state.data.len());
    if began > 0 && began != are {
        bail!("the run began with {began} files of data, and there are {are}: begin a new run");
    }
    // More files in a model's directory change nothing that the others give.
    let before = std::mem::replace(&mut state.model_files, model_files);
    for was in &before {
        // Tokenizers of two tasks may be called the same.
        let mut called_so = state.model_files.iter().filter(|is| is.path == was.path);
        if called_so.clone().any(|is| same_file(was, is, "").is_ok()) {
            continue;
        }
        let Some(is) = called_so.next() else {
            bail!("the run began with a {}, which is not there now: put it back, or begin a new run", was.path);
        };
        same_file(was, is, "by 64 samples the SHA-256")?;
    }
    Ok(())
}

/// Fails where the file `is` is not what it was when the run began.
fn same_file(was: &DataFile, is: &DataFile, hash: &str) -> Result<()> {
    if (was.bytes, &was.sha256) == (is.bytes, &is.sha256) {
        return Ok(());
    }
    bail!(
        "{} is not the file that the run began with: it has {} bytes and {hash} {}, it had {} and {}; put that file back, or begin a \
         new run",
        is.path,
        is.bytes,
        is.sha256,
        was.bytes,
        was.sha256
    )
}
