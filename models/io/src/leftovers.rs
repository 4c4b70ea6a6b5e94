//! What is written before it has its name, and what killed processes have left of that.

use crate::lock;
use crate::{Error, Result};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a name that its temporary name repeats: the longest names leave no room for the rest.
const NAME_BYTES: usize = 180;

/// A file or folder under a temporary name, held by this process until it is dropped: nobody else takes it for a leftover.
pub(crate) struct Temporary {
    pub path: PathBuf,
    pub file: File,
}

impl Temporary {
    /// A new file `.NAME.tmp-PID-N` beside `path`, so that the rename stays within one file system.
    pub fn file(path: &Path) -> Result<Self> {
        Self::new(path, |temporary| OpenOptions::new().write(true).create_new(true).open(temporary))
    }

    /// A new folder of that kind.
    pub fn folder(path: &Path) -> Result<Self> {
        Self::new(path, |temporary| {
            fs::create_dir(temporary)?;
            lock::open_folder(temporary)
        })
    }

    fn new(path: &Path, create: impl Fn(&Path) -> std::io::Result<File>) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        check_folder(path)?;
        clean_those_of(path);
        loop {
            let mut name = prefix(path);
            name.push(format!("{}-{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
            let temporary = parent(path).join(name);
            let file = match create(&temporary) {
                Ok(file) => file,
                // Left by a process with the same number, on a file system without locks.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(Error::io("write", path)(error)),
            };
            let _ = file.try_lock();
            // Before it was locked it may have been taken for a leftover.
            if temporary.symlink_metadata().is_ok() {
                return Ok(Temporary { path: temporary, file });
            }
        }
    }

    /// The temporary name of something that is to be removed: a reader never sees half of it under its name.
    pub fn name_beside(path: &Path) -> PathBuf {
        let mut name = prefix(path);
        name.push(format!("{}-old", process::id()));
        parent(path).join(name)
    }
}

/// `.NAME.tmp-`.
fn prefix(path: &Path) -> OsString {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let end = (0..=NAME_BYTES.min(name.len())).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    format!(".{}.tmp-", &name[..end]).into()
}

/// The folder that a path lies in.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks that the folder of an output is there.
///
/// # Errors
/// When it is not.
pub fn check_folder(path: &Path) -> Result<()> {
    let folder = parent(path);
    if folder.is_dir() { Ok(()) } else { Err(Error::NoFolder { path: path.to_owned(), folder: folder.to_owned() }) }
}

/// Removes what killed processes have left of writing `path`.
fn clean_those_of(path: &Path) {
    let prefix = prefix(path);
    // What begins alike and ends otherwise is somebody's own.
    let is_ours = |name: &OsString| {
        let ending = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        ending.and_then(|ending| str::from_utf8(ending).ok()).is_some_and(is_ending)
    };
    for entry in fs::read_dir(parent(path)).into_iter().flatten().flatten() {
        if is_ours(&entry.file_name()) && is_abandoned(&entry.path()) {
            remove(&entry.path());
        }
    }
}

/// Removes what killed processes have left in `directory`: files and folders with a [temporary name](is_temporary) that no process holds.
/// Links are not followed, folders below it are left alone.
pub fn clean(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if is_temporary(&entry.file_name().to_string_lossy()) && is_abandoned(&entry.path()) {
            remove(&entry.path());
        }
    }
}

/// The same in all folders below `directory`, which has to be one that nobody else keeps files in.
pub fn clean_below(directory: &Path) {
    clean(directory);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            clean_below(&entry.path());
        }
    }
}

/// Whether a name is `.NAME.tmp-PID-N` or `.NAME.tmp-PID-old`, as this program gives them: other hidden files are somebody's own.
pub fn is_temporary(name: &str) -> bool {
    name.strip_prefix('.').and_then(|rest| rest.rsplit_once(".tmp-")).is_some_and(|(_, ending)| is_ending(ending))
}

/// Whether a name ends so after `.tmp-`: `PID-N` or `PID-old`.
fn is_ending(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('-').is_some_and(|(process, number)| is_number(process) && (is_number(number) || number == "old"))
}

/// Whether no process holds it: the system drops the lock of a process that ends.
fn is_abandoned(path: &Path) -> bool {
    let Ok(kind) = path.symlink_metadata() else { return false };
    if kind.is_symlink() {
        return true;
    }
    let file = if kind.is_dir() { lock::open_folder(path) } else { lock::open_existing(path) };
    file.is_ok_and(|file| file.try_lock().is_ok())
}

/// Removes a file or folder; what cannot be removed stays for the next time.
pub(crate) fn remove(path: &Path) {
    let is_folder = path.symlink_metadata().is_ok_and(|kind| kind.is_dir());
    let _ = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_held_stays_and_what_is_abandoned_goes() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("model");
        let held = Temporary::folder(&target).unwrap();
        let also = Temporary::file(&target).unwrap();
        fs::create_dir_all(root.path().join(".model.tmp-77-old/deep")).unwrap();
        fs::write(root.path().join(".model.tmp-78-1"), "half").unwrap();
        fs::write(root.path().join(".other.tmp-78-0"), "not this one's").unwrap();
        let third = Temporary::file(&target).unwrap();
        assert!(held.path.exists() && also.path.exists() && third.path.exists());
        assert_eq!(names(root.path()).len(), 4, "{:?}", names(root.path()));
        fs::create_dir(root.path().join("run")).unwrap();
        fs::write(root.path().join("run/.a.tmp-3-0"), "").unwrap();
        clean(root.path());
        assert!(held.path.exists() && also.path.exists() && third.path.exists());
        assert_eq!(names(&root.path().join("run")), [".a.tmp-3-0"], "a folder below is somebody else's");
        clean_below(root.path());
        assert!(held.path.exists() && names(&root.path().join("run")).is_empty());
        drop((held.file, also.file, third.file));
        clean(root.path());
        assert_eq!(names(root.path()), ["run"]);
    }

    #[test]
    fn hidden_files_of_others_are_not_temporary() {
        for name in [".model.tmp-77-0", ".a.b.tmp-1-old", "..tmp-1-2"] {
            assert!(is_temporary(name), "{name}");
        }
        for name in
            [".env.old-prod", ".ssh.old-laptop", ".cfg.tmp-1", ".x.tmp-a-1", ".x.tmp-1-", ".x.tmp-1-2b", "x.tmp-1-2"]
        {
            assert!(!is_temporary(name), "{name}");
        }
    }

    #[test]
    fn writing_leaves_hidden_files_of_others_alone() {
        let root = tempfile::tempdir().unwrap();
        let others = [".m.tmp-2024", ".m.tmp-77-1b", ".m.tmp-mine", ".m.tmp-n.tmp-77-1", ".m.tmp-notes-1"];
        for name in others {
            if name == ".m.tmp-mine" {
                fs::create_dir_all(root.path().join(name).join("deep")).unwrap();
            } else {
                fs::write(root.path().join(name), "years").unwrap();
            }
        }
        fs::create_dir_all(root.path().join(".m.tmp-77-old/deep")).unwrap();
        fs::write(root.path().join(".m.tmp-77-1"), "half").unwrap();
        for new in [Temporary::file, Temporary::folder] {
            let ours = new(&root.path().join("m")).unwrap();
            remove(&ours.path);
        }
        assert_eq!(names(root.path()), others);
        assert!(root.path().join(".m.tmp-mine/deep").is_dir());
    }

    #[test]
    fn the_longest_names_have_temporary_ones() {
        let root = tempfile::tempdir().unwrap();
        Temporary::file(&root.path().join("\u{e9}".repeat(127))).unwrap();
    }
}
