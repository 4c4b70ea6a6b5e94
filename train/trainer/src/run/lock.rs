//! A directory held by one process at a time, with a warning where the file system cannot promise that.

use hankel_io::lock::{self, Held};
use std::path::Path;
use std::sync::Once;

/// Holds `directory` until the value is dropped; `None` when another process does.
///
/// # Errors
/// When the directory cannot be made, or its lock is not a regular file.
pub fn try_hold(directory: &Path) -> hankel_io::Result<Option<Held>> {
    let held = lock::try_hold(directory)?;
    held.iter().for_each(|held| warn_without_locks(directory, held));
    Ok(held)
}

fn warn_without_locks(directory: &Path, held: &Held) {
    static TOLD: Once = Once::new();
    if !held.is_exclusive {
        TOLD.call_once(|| {
            tell!("warning: the file system of {} has no locks: run nothing twice there", directory.display());
        });
    }
}
