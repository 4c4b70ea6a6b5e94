//! Files and folders that appear complete or not at all.

use super::error::{Result, WeightsError};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes `bytes` under a temporary name beside `path`, syncs it and renames it: a reader sees the old file or the new one,
/// never a part, and a failure (full disk, crash) leaves the old one in place.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = beside(path, "tmp");
    let guard = Cleanup(temporary.clone());
    write_synced(&temporary, bytes)?;
    fs::rename(&temporary, path).map_err(WeightsError::io("rename a finished file to", path))?;
    std::mem::forget(guard);
    sync_folder(parent(path));
    Ok(())
}

/// Whether a folder that is in the way is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// An existing folder is an error.
    Refuse,
    /// An existing folder is replaced once the new one is complete, and restored if the replacement fails.
    Replace,
}

/// Creates the folder `path` with the given files (name, content), all or nothing: they are written and synced in a
/// temporary folder beside it, which is then renamed.
pub fn write_folder(path: &Path, files: &[(&str, &[u8])], existing: Existing) -> Result<()> {
    let folder = PendingFolder::create(path, existing)?;
    for (name, bytes) in files {
        folder.write(name, bytes)?;
    }
    folder.commit()
}

/// A folder that is being written: it appears under its name when it is complete, and leaves nothing behind if it is not.
pub struct PendingFolder {
    path: PathBuf,
    temporary: PathBuf,
    guard: Cleanup,
}

impl PendingFolder {
    /// Begins a folder that will be `path`.
    ///
    /// # Errors
    /// When it exists and may not be replaced, or nothing can be written beside it.
    pub fn create(path: &Path, existing: Existing) -> Result<Self> {
        if existing == Existing::Refuse && path.symlink_metadata().is_ok() {
            return Err(WeightsError::Exists(path.to_path_buf()));
        }
        let temporary = beside(path, "tmp");
        let _ = fs::remove_dir_all(&temporary); // left by a crash of a process with the same number
        fs::create_dir_all(&temporary).map_err(WeightsError::io("create", &temporary))?;
        Ok(PendingFolder { path: path.to_path_buf(), guard: Cleanup(temporary.clone()), temporary })
    }

    /// Writes and syncs one file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write_synced(&self.temporary.join(name), bytes)
    }

    /// Where its files are until it is complete; whoever writes there syncs what is written.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Gives the folder its name.
    ///
    /// # Errors
    /// When it cannot be renamed; what was there is still there then.
    pub fn commit(self) -> Result<()> {
        let PendingFolder { path, temporary, guard } = self;
        sync_folder(&temporary);
        let replaced = beside(&path, "old");
        let in_the_way = path.symlink_metadata().is_ok();
        if in_the_way {
            fs::rename(&path, &replaced).map_err(WeightsError::io("move aside", &path))?;
        }
        if let Err(error) = fs::rename(&temporary, &path) {
            if in_the_way {
                fs::rename(&replaced, &path).map_err(WeightsError::io("restore", &path))?;
            }
            return Err(WeightsError::io("rename a finished folder to", &path)(error));
        }
        std::mem::forget(guard);
        sync_folder(parent(&path));
        if in_the_way {
            // The new folder is in place; a leftover of the old one is untidy, not an error.
            let _ = fs::remove_dir_all(&replaced).or_else(|_| fs::remove_file(&replaced));
        }
        Ok(())
    }
}

/// Removes what was written so far when an error ends the writing.
struct Cleanup(PathBuf);

impl Drop for Cleanup {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0).or_else(|_| fs::remove_file(&self.0));
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).map_err(WeightsError::io("create", path))?;
    file.write_all(bytes).map_err(WeightsError::io("write", path))?;
    file.sync_all().map_err(WeightsError::io("write", path))
}

/// `.NAME.SUFFIX-PID` in the same folder, so that the rename stays within one file system.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    parent(path).join(format!(".{name}.{suffix}-{}", std::process::id()))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a rename durable where the system can (folders cannot be opened as files everywhere).
fn sync_folder(path: &Path) {
    if let Ok(folder) = File::open(path) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(path: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn folders_appear_whole_and_replace_whole() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("adapter");
        write_folder(&folder, &[("a", b"1"), ("b", b"2")], Existing::Refuse).unwrap();
        assert!(matches!(write_folder(&folder, &[("a", b"3")], Existing::Refuse), Err(WeightsError::Exists(_))));
        assert_eq!(fs::read(folder.join("a")).unwrap(), b"1");
        write_folder(&folder, &[("a", b"3")], Existing::Replace).unwrap();
        assert_eq!(entries(&folder), ["a"]);
        assert_eq!(entries(root.path()), ["adapter"]);
    }

    #[test]
    fn a_failure_leaves_what_was_there_and_no_litter() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("adapter");
        write_folder(&folder, &[("a", b"1")], Existing::Refuse).unwrap();
        // The second file cannot be created: its folder does not exist.
        let broken: &[(&str, &[u8])] = &[("a", b"2"), ("missing/b", b"2")];
        assert!(write_folder(&folder, broken, Existing::Replace).is_err());
        assert_eq!(fs::read(folder.join("a")).unwrap(), b"1");
        assert_eq!(entries(root.path()), ["adapter"]);
        // A file cannot be renamed over a folder.
        assert!(write_file(&folder, b"2").is_err());
        assert_eq!(entries(root.path()), ["adapter"]);
        write_file(&folder.join("a"), b"4").unwrap();
        assert_eq!(fs::read(folder.join("a")).unwrap(), b"4");
    }
}
