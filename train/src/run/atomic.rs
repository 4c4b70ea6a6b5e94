//! Files and directories that appear complete or not at all: written under a temporary name, synced, renamed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Prefix of temporary names; whatever bears it is left over from a process that was killed.
pub const TEMPORARY: &str = ".tmp-";

/// A write that failed, with the file it was for. What was there before is still there.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {source}")]
pub struct WriteError {
    /// The file or directory.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> WriteError + '_ {
    move |source| WriteError { path: path.to_owned(), source }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(TEMPORARY);
    name.push(path.file_name().unwrap_or_default());
    name.push(format!("-{}", std::process::id()));
    path.with_file_name(name)
}

/// Makes a rename durable, where directories can be synced.
fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        #[cfg(unix)]
        Some(parent) => File::open(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?.sync_all(),
        _ => Ok(()),
    }
}

/// Writes a file by `fill`; when anything fails the old file, if there is one, is left as it was.
///
/// # Errors
/// When the file cannot be written, for example because the disk is full.
pub fn write_file(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), WriteError> {
    let temporary = temporary(path);
    let attempt = || -> io::Result<()> {
        let mut writer = BufWriter::new(File::create(&temporary)?);
        fill(&mut writer)?;
        writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_parent(path)
    };
    attempt().map_err(|error| {
        let _ = fs::remove_file(&temporary);
        failed(path)(error)
    })
}

/// Writes a directory by `fill`, which is given a temporary one; an old directory at `path` is replaced at the end.
///
/// # Errors
/// Those of `fill`, or when the directory cannot be made; the old directory is then left as it was.
pub fn write_directory<E: From<WriteError>>(path: &Path, fill: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), E> {
    let temporary = temporary(path);
    let make = || -> io::Result<()> {
        if temporary.exists() {
            fs::remove_dir_all(&temporary)?;
        }
        fs::create_dir_all(&temporary)
    };
    make().map_err(failed(path))?;
    let install = || -> io::Result<()> {
        File::open(&temporary).and_then(|directory| directory.sync_all()).or_else(ignore_unsupported)?;
        if path.exists() {
            // A directory cannot be replaced in one step: the old one is moved aside first.
            let aside = temporary.with_extension("old");
            fs::rename(path, &aside)?;
            fs::rename(&temporary, path)?;
            fs::remove_dir_all(&aside)?;
        } else {
            fs::rename(&temporary, path)?;
        }
        sync_parent(path)
    };
    let result = fill(&temporary).and_then(|()| install().map_err(|error| E::from(failed(path)(error))));
    if result.is_err() {
        let _ = fs::remove_dir_all(&temporary);
    }
    result
}

/// Some systems cannot open directories as files.
fn ignore_unsupported(error: io::Error) -> io::Result<()> {
    if cfg!(unix) { Err(error) } else { Ok(()) }
}

/// Removes what killed processes left behind in `directory`.
pub fn clean(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
            let path = entry.path();
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        write_file(&path, |out| out.write_all(b"old")).unwrap();
        let error = write_file(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        })
        .unwrap_err();
        assert!(error.to_string().starts_with("cannot write") && error.to_string().contains("state"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(directory.path()), ["state"]);
        write_file(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn directories_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("step-1");
        let fill = |text: &'static str| {
            move |inside: &Path| write_file(&inside.join("a"), |out| out.write_all(text.as_bytes()))
        };
        write_directory(&path, fill("1")).unwrap();
        write_directory(&path, fill("2")).unwrap();
        assert_eq!(fs::read(path.join("a")).unwrap(), b"2");
        let full = |inside: &Path| {
            fill("3")(inside)?;
            Err(WriteError { path: inside.to_owned(), source: io::ErrorKind::StorageFull.into() })
        };
        write_directory(&path, full).unwrap_err();
        assert_eq!(fs::read(path.join("a")).unwrap(), b"2");
        assert_eq!(names(directory.path()), ["step-1"]);
        fs::create_dir(directory.path().join(".tmp-step-2-77")).unwrap();
        clean(directory.path());
        assert_eq!(names(directory.path()), ["step-1"]);
    }
}
