//! Renames that never replace anything, and exchanges.

use std::fs;
use std::io;
use std::path::Path;

/// Renames a file or folder; when there is something at `to`, that is left as it is and the error is `AlreadyExists`.
pub(crate) fn no_replace(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "macos"))]
    match renameat(from, to, rustix::fs::RenameFlags::NOREPLACE) {
        Err(error) if is_unsupported(&error) => {}
        other => return other,
    }
    by_placeholder(from, to)
}

/// Exchanges two folders in one step. False where the system cannot: nothing has changed then.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "macos"))]
    match renameat(one, other, rustix::fs::RenameFlags::EXCHANGE) {
        Err(error) if is_unsupported(&error) => {}
        done => return done.map(|()| true),
    }
    let _ = (one, other);
    Ok(false)
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "macos"))]
fn renameat(from: &Path, to: &Path, flags: rustix::fs::RenameFlags) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags)?)
}

/// Network and older file systems rename without flags only.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "macos"))]
fn is_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    Errno::from_io_error(error).is_some_and(|errno| [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP].contains(&errno))
}

/// Gives a file a second name, which fails if it is taken, and removes the first. Where there are no second names, and for
/// folders: takes the name with an empty file or folder, and renames over that. What somebody puts into the folder meanwhile
/// makes the rename fail.
fn by_placeholder(from: &Path, to: &Path) -> io::Result<()> {
    let is_folder = from.symlink_metadata()?.is_dir();
    if is_folder && cfg!(windows) {
        // A folder is never renamed over another one there.
        return fs::rename(from, to);
    }
    if is_folder {
        fs::create_dir(to)?;
    } else {
        match fs::hard_link(from, to) {
            Ok(()) => {
                return fs::remove_file(from).inspect_err(|_| {
                    let _ = fs::remove_file(to);
                });
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => drop(fs::OpenOptions::new().write(true).create_new(true).open(to)?),
        }
    }
    fs::rename(from, to).inspect_err(|_| {
        let _ = if is_folder { fs::remove_dir(to) } else { fs::remove_file(to) };
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_replaced_with_and_without_the_systems_help() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for rename in [no_replace, by_placeholder] {
            fs::write(at("file"), "new").unwrap();
            fs::write(at("taken"), "old").unwrap();
            assert_eq!(rename(&at("file"), &at("taken")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(at("taken")).unwrap(), "old");
            rename(&at("file"), &at("free")).unwrap();
            assert_eq!(fs::read_to_string(at("free")).unwrap(), "new");

            fs::create_dir(at("folder")).unwrap();
            fs::write(at("folder/part"), "new").unwrap();
            // An empty folder is something, too.
            fs::create_dir(at("empty")).unwrap();
            assert_eq!(rename(&at("folder"), &at("empty")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            rename(&at("folder"), &at("other")).unwrap();
            assert_eq!(fs::read_to_string(at("other/part")).unwrap(), "new");
            fs::remove_dir_all(at("other")).unwrap();
            fs::remove_dir(at("empty")).unwrap();
            fs::remove_file(at("free")).unwrap();
        }
    }
}
