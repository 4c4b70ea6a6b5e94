//! The adapters of a run.

use anyhow::{Context, Result, bail};
use hankel_trainer::config::{AdapterConfig, Config};
use hankel_trainer::fit::adapter_directory;
use hankel_trainer::results::RunResult;
use hankel_trainer::tell;
use std::path::{Path, PathBuf};

/// What stands for the backbone alone.
pub const NONE: &str = "none";

/// The names of a run's adapters, sorted.
///
/// # Errors
/// When its directory cannot be read.
pub fn names(run: &Path) -> Result<Vec<String>> {
    let directory = run.join("adapters");
    let mut names = Vec::new();
    if directory.is_dir() {
        let entries = std::fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
        names.extend(
            entries
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .filter(|name| !name.starts_with('.') && name != NONE),
        );
        names.sort();
    }
    Ok(names)
}

/// Refuses a run, where the directory of one adapter is asked for.
///
/// # Errors
/// Names the adapters of the run.
pub fn ensure_no_run(directory: &Path) -> Result<()> {
    if directory.join("config.toml").is_file() {
        let (shown, inside) = (directory.display(), directory.join("adapters"));
        bail!("{shown} is a run: give one of the adapters in {}: {}", inside.display(), names(directory)?.join(", "));
    }
    Ok(())
}

/// Tells which adapters of a run are not there.
///
/// # Errors
/// When its directory cannot be read.
pub fn tell_missing(config: &Config, run: &Path) -> Result<()> {
    let there = names(run)?;
    let all =
        config.adapter.iter().filter(|adapter| adapter.method.kind() != NONE).flat_map(AdapterConfig::saved_names);
    let missing: Vec<String> = all.filter(|name| !there.contains(name)).collect();
    if !missing.is_empty() {
        tell!("warning: {} lacks the adapters {}", run.join("adapters").display(), missing.join(", "));
    }
    Ok(())
}

/// The directory of an adapter of `run`, given by its name or as a directory. For `none` that of what was trained without one, if
/// anything was.
///
/// # Errors
/// When there is no such adapter; says which there are.
pub fn directory(run: &Path, name: &str) -> Result<Option<PathBuf>> {
    if name == NONE {
        // The run's own folder with the head or embeddings that were trained without an adapter; never another folder named `none`.
        return Ok(Some(run.join("adapters").join(NONE)).filter(|own| own.is_dir()));
    }
    let directory = adapter_directory(run, name);
    if !name.is_empty() && directory.is_dir() {
        return Ok(Some(directory));
    }
    // A result that cannot be read says nothing of it.
    let result = std::fs::read_to_string(run.join("result.json")).ok();
    let result = result.and_then(|text| serde_json::from_str::<RunResult>(&text).ok());
    if let Some(lost) = result.iter().flat_map(|result| &result.diverged).find(|lost| lost.name == name) {
        bail!("`{name}` of {} was not kept: {}", run.display(), lost.error);
    }
    let names = names(run)?;
    let there = if names.is_empty() { "it has none yet".to_owned() } else { format!("it has {}", names.join(", ")) };
    bail!("`{name}` is not an adapter of {} ({there}), and no directory", run.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::create_dir_all;

    #[test]
    fn none_is_no_folder_but_that_of_the_run() {
        let run = tempfile::tempdir().unwrap();
        create_dir_all(run.path().join("none")).unwrap();
        create_dir_all(run.path().join("adapters/hrm")).unwrap();
        assert_eq!(directory(run.path(), NONE).unwrap(), None);
        assert_eq!(directory(run.path(), "hrm").unwrap(), Some(run.path().join("adapters/hrm")));
        assert!(directory(run.path(), "").unwrap_err().to_string().contains("`` is not an adapter of"));
        let own = run.path().join("adapters").join(NONE);
        create_dir_all(&own).unwrap();
        assert_eq!(directory(run.path(), NONE).unwrap(), Some(own));
    }
}
