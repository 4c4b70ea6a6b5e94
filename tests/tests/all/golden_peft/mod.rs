//! Against PEFT, on a small Mistral: files both ways, logits and gradients, merged weights, twenty training steps.

mod files;
mod forward;
mod training;

use std::path::{Path, PathBuf};

/// A golden file or directory.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}
