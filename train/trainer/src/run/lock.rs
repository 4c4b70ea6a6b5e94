//! A directory held by one process at a time. The system takes the lock back when the process ends, however it ends.

use anyhow::{Context, Result};
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::sync::Once;

const LOCK: &str = ".lock";

/// Waits until no other process holds `directory`, and holds it until the file is dropped.
///
/// # Errors
/// When the directory cannot be made.
pub fn hold(directory: &Path) -> Result<File> {
    let file = open(directory)?;
    if file.lock().is_err() {
        no_locks(directory);
    }
    Ok(file)
}

/// Holds `directory` until the file is dropped; `None` when another process does.
///
/// # Errors
/// When the directory cannot be made.
pub fn try_hold(directory: &Path) -> Result<Option<File>> {
    let file = open(directory)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(_)) => {
            no_locks(directory);
            Ok(Some(file))
        }
    }
}

fn open(directory: &Path) -> Result<File> {
    let unusable = || format!("cannot use {}", directory.display());
    fs::create_dir_all(directory).with_context(unusable)?;
    File::create(directory.join(LOCK)).with_context(unusable)
}

fn no_locks(directory: &Path) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tell!(
            "warning: the file system of {} has no locks: run nothing twice there, and share the cells of a sweep out by \
             --shard or --task-index",
            directory.display()
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let held = try_hold(&run).unwrap().unwrap();
        assert!(try_hold(&run).unwrap().is_none());
        drop(held);
        assert!(try_hold(&run).unwrap().is_some());
    }
}
