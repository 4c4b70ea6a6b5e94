//! Whether the model of a run is the one that its adapters were trained on.

use super::resumed::result_of;
use crate::config::Config;
use crate::run::model_files::{backbone_files, sampled};
use crate::run::{RunDirectory, checkpoint};
use std::path::Path;

/// Warns where a file of the model, or of a tokenizer, is not the one on record in the run's result or newest checkpoint. What cannot be read
/// is left to whoever loads it.
pub(super) fn warn_of_replaced(config: &Config, run: &Path) {
    let Ok(directory) = RunDirectory::open(run) else { return };
    let of_checkpoint =
        || Some(checkpoint::state(checkpoint::list(&directory.checkpoints()).last()?).ok()?.model_files);
    let Some(were) = result_of(&directory).map(|result| result.model_files).or_else(of_checkpoint) else { return };
    let Ok(files) = backbone_files(config) else { return };
    for (what, path) in files {
        let Ok(is) = sampled(&what, &path) else { continue };
        // Tokenizers of two tasks may be called the same.
        let mut called_so = were.iter().filter(|was| was.path == what).peekable();
        if called_so.peek().is_some() && called_so.all(|was| *was != is) {
            tell!(
                "warning: {} is not the {what} that {} was trained with: its adapters belong to that one",
                path.display(),
                run.display()
            );
        }
    }
}
