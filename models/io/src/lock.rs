//! A directory held by one process at a time. The system takes the lock back when the process ends, however it ends.

use crate::{Error, Result};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

const LOCK: &str = ".lock";

/// A directory that this process holds until it is dropped.
#[derive(Debug)]
pub struct Held {
    _file: File,
    /// Whether the system keeps others out: some file systems have no locks.
    pub is_exclusive: bool,
}

/// Holds `directory`; `None` when another process does.
///
/// # Errors
/// When the directory cannot be made, or its lock is not a regular file.
pub fn try_hold(directory: &Path) -> Result<Option<Held>> {
    let file = open(directory)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Held { _file: file, is_exclusive: true })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(_)) => Ok(Some(Held { _file: file, is_exclusive: false })),
    }
}

/// Opens the lock without following a link and without changing what is there.
fn open(directory: &Path) -> Result<File> {
    fs::create_dir_all(directory).map_err(Error::io("use", directory))?;
    open_to_write(&directory.join(LOCK))
}

/// Opens a regular file for writing, or makes it, and leaves its content as it is.
///
/// # Errors
/// When it is a link or no regular file, or cannot be opened.
pub fn open_to_write(path: &Path) -> Result<File> {
    let other = |found| Error::Kind { path: path.to_owned(), found, expected: "a file of its own: remove it" };
    let file = opened(OpenOptions::new().write(true).create(true).truncate(false), path);
    let file = file.map_err(|reason| match path.symlink_metadata() {
        Ok(kind) if kind.is_symlink() => other("a link"),
        _ => Error::io("use", path)(reason),
    })?;
    if file.metadata().is_ok_and(|kind| kind.is_file()) { Ok(file) } else { Err(other("a device or a pipe")) }
}

/// Opens what is there: no link is followed, and no pipe waited for.
pub(crate) fn open_existing(path: &Path) -> io::Result<File> {
    opened(OpenOptions::new().write(true), path)
}

/// Opens a folder for locking and syncing, where the system can.
pub(crate) fn open_folder(path: &Path) -> io::Result<File> {
    opened(OpenOptions::new().read(true), path)
}

fn opened(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
    }
    #[cfg(windows)]
    {
        use std::os::windows::fs::OpenOptionsExt;
        const BACKUP_SEMANTICS: u32 = 0x0200_0000; // without it folders cannot be opened
        options.custom_flags(BACKUP_SEMANTICS);
    }
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let held = try_hold(&run).unwrap().unwrap();
        assert!(held.is_exclusive && try_hold(&run).unwrap().is_none());
        drop(held);
        assert!(try_hold(&run).unwrap().is_some());
    }

    #[test]
    #[cfg(unix)]
    fn what_a_lock_links_to_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let precious = directory.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        let run = directory.path().join("run");
        fs::create_dir(&run).unwrap();
        std::os::unix::fs::symlink(&precious, run.join(LOCK)).unwrap();
        let message = try_hold(&run).unwrap_err().to_string();
        assert!(message.contains(".lock is a link"), "{message}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        // What is in a lock that somebody made stays.
        fs::remove_file(run.join(LOCK)).unwrap();
        fs::write(run.join(LOCK), "kept").unwrap();
        drop(try_hold(&run).unwrap());
        assert_eq!(fs::read_to_string(run.join(LOCK)).unwrap(), "kept");
        fs::remove_file(run.join(LOCK)).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, run.join(LOCK), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(try_hold(&run).is_err(), "a pipe is not waited for");
    }
}
