//! Files and folders that appear complete or not at all.

use crate::leftovers::{Temporary, parent, remove};
use crate::{Error, Result, rename};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// What happens to something that has the name of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays as it is, and writing is an error: also when it appears at the last instant.
    Refuse,
    /// It is replaced once the new one is complete.
    Replace,
}

/// Writes one file: see [`Outputs`].
///
/// # Errors
/// When it cannot be written; what was there is then still there.
pub fn write_file(path: &Path, bytes: &[u8], existing: Existing) -> Result<()> {
    let mut outputs = Outputs::new();
    outputs.file(path, bytes, existing)?;
    outputs.commit()
}

/// Writes the folder `path` with the given files (name, content): see [`Outputs`].
///
/// # Errors
/// When it cannot be written; what was there is then still there.
pub fn write_folder(path: &Path, files: &[(&str, &[u8])], existing: Existing) -> Result<()> {
    let folder = PendingFolder::create(path, existing)?;
    for (name, bytes) in files {
        folder.write(name, bytes)?;
    }
    folder.commit()
}

/// Makes a folder and those above it, durably.
///
/// # Errors
/// When that cannot be done.
pub fn create_folder(path: &Path) -> Result<()> {
    let mut folders = CreatedFolders::default();
    folders.create(path)?;
    folders.keep();
    Ok(())
}

/// Files and folders that belong together: all are written and synced under temporary names, and get their own by
/// [`Outputs::commit`]. Dropped before that, they leave nothing behind.
///
/// Devices and pipes are written to as they are, at the commit. Links are refused: where they lead is not ours to replace.
#[derive(Default)]
pub struct Outputs {
    pending: Vec<Pending>,
    streams: Vec<(PathBuf, Vec<u8>)>,
    folders: CreatedFolders,
}

impl Outputs {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes and syncs a file that will be `path`.
    ///
    /// # Errors
    /// When it cannot be written, or what is at `path` may not be replaced.
    pub fn file(&mut self, path: &Path, bytes: &[u8], existing: Existing) -> Result<()> {
        if look_at(path, existing)? == Target::Stream {
            self.streams.push((path.to_owned(), bytes.to_vec()));
            return Ok(());
        }
        let temporary = Temporary::file(path)?;
        let mut file = &temporary.file;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        self.pending.push(Pending { path: path.to_owned(), temporary, existing, is_named: false });
        written.map_err(Error::io("write", path))
    }

    /// Makes a folder for files and the folders above it; those it makes are removed again if nothing is committed.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn create_folder(&mut self, path: &Path) -> Result<()> {
        self.folders.create(path)
    }

    /// Gives everything its name, in the order in which it was written. When one fails that must not exist yet, those before
    /// it that had to be new as well are taken back.
    ///
    /// # Errors
    /// When something cannot be renamed, or a device or pipe written to.
    pub fn commit(mut self) -> Result<()> {
        for (path, bytes) in &self.streams {
            write_to_stream(path, bytes)?;
        }
        for index in 0..self.pending.len() {
            if let Err(error) = self.pending[index].name_it() {
                for named in self.pending[..index].iter_mut().filter(|named| named.existing == Existing::Refuse) {
                    // Back under its temporary name, from where it is removed.
                    named.is_named = rename::no_replace(&named.path, &named.temporary.path).is_err();
                }
                return Err(error);
            }
        }
        self.folders.keep();
        Ok(())
    }
}

/// A folder that is being written.
pub struct PendingFolder {
    pending: Pending,
    folders: CreatedFolders,
}

impl PendingFolder {
    /// Begins a folder that will be `path`.
    ///
    /// # Errors
    /// When it exists and may not be replaced, or nothing can be written beside it.
    pub fn create(path: &Path, existing: Existing) -> Result<Self> {
        match look_at(path, existing) {
            Err(Error::Kind { found: FOLDER, .. }) | Ok(Target::Absent) => {}
            Err(error) => return Err(error),
            Ok(Target::File | Target::Stream) => {
                return Err(Error::Kind { path: path.to_owned(), found: "no folder", expected: "one, or nothing" });
            }
        }
        let mut folders = CreatedFolders::default();
        folders.create(parent(path))?;
        let temporary = Temporary::folder(path)?;
        Ok(PendingFolder { pending: Pending { path: path.to_owned(), temporary, existing, is_named: false }, folders })
    }

    /// Writes and syncs one file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.temporary().join(name);
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(&path).map_err(Error::io("create", &path))?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::io("write", &path))
    }

    /// Where its files are until it is complete; whoever writes there syncs what is written.
    pub fn temporary(&self) -> &Path {
        &self.pending.temporary.path
    }

    /// Gives the folder its name.
    ///
    /// # Errors
    /// When it cannot be renamed; what was there is still there then.
    pub fn commit(mut self) -> Result<()> {
        self.pending.name_it()?;
        self.folders.keep();
        Ok(())
    }
}

/// A file that is written piece by piece, too large to be held in memory.
pub struct PendingFile {
    buffer: BufWriter<File>,
    pending: Pending,
    folders: CreatedFolders,
}

impl PendingFile {
    /// Begins a file that will be `path`.
    ///
    /// # Errors
    /// When it exists and may not be replaced, is a device or pipe, or nothing can be written beside it.
    pub fn create(path: &Path, existing: Existing) -> Result<Self> {
        if look_at(path, existing)? == Target::Stream {
            return Err(Error::Kind {
                path: path.to_owned(),
                found: "a device or pipe",
                expected: "the name of a file",
            });
        }
        let mut folders = CreatedFolders::default();
        folders.create(parent(path))?;
        let temporary = Temporary::file(path)?;
        let buffer = BufWriter::new(temporary.file.try_clone().map_err(Error::io("open", path))?);
        let pending = Pending { path: path.to_owned(), temporary, existing, is_named: false };
        Ok(PendingFile { buffer, pending, folders })
    }

    /// What it will be called.
    pub fn path(&self) -> &Path {
        &self.pending.path
    }

    /// Adds bytes at its end.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.write_all(bytes).map_err(Error::io("write", &self.pending.path))
    }

    /// Where it is until it is complete, with all bytes that were added.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn flushed(&mut self) -> Result<&Path> {
        self.buffer.flush().map_err(Error::io("write", &self.pending.path))?;
        Ok(&self.pending.temporary.path)
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// When it cannot be written or renamed; what was there is still there then.
    pub fn commit(mut self) -> Result<()> {
        self.flushed()?;
        self.pending.temporary.file.sync_all().map_err(Error::io("write", &self.pending.path))?;
        self.pending.name_it()?;
        self.folders.keep();
        Ok(())
    }
}

/// Something complete under a temporary name. Removed when it is dropped without having got its own.
struct Pending {
    path: PathBuf,
    temporary: Temporary,
    existing: Existing,
    is_named: bool,
}

impl Pending {
    fn name_it(&mut self) -> Result<()> {
        let (from, path) = (&self.temporary.path, &self.path);
        let is_folder = from.is_dir();
        if is_folder {
            sync_folder(from);
        }
        match (self.existing, is_folder) {
            (Existing::Refuse, _) => rename::no_replace(from, path).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty => Error::Exists(path.clone()),
                _ => Error::io("rename a finished output to", path)(error),
            })?,
            (Existing::Replace, false) => {
                look_at(path, Existing::Replace)?;
                fs::rename(from, path).map_err(Error::io("rename a finished file to", path))?;
            }
            (Existing::Replace, true) => replace_folder(from, path)?,
        }
        self.is_named = true;
        sync_folder(parent(path));
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_named {
            remove(&self.temporary.path);
        }
    }
}

/// Puts a folder in the place of another one.
fn replace_folder(from: &Path, path: &Path) -> Result<()> {
    let failed = |error| Error::io("rename a finished folder to", path)(error);
    match rename::no_replace(from, path) {
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty) => {}
        other => return other.map_err(failed),
    }
    if !path.symlink_metadata().is_ok_and(|kind| kind.is_dir()) {
        return Err(Error::Kind { path: path.to_owned(), found: "no folder", expected: "one, or nothing" });
    }
    if rename::exchange(from, path).map_err(failed)? {
        remove(from);
        return Ok(());
    }
    let aside = Temporary::name_beside(path);
    fs::rename(path, &aside).map_err(Error::io("move aside", path))?;
    if let Err(error) = rename::no_replace(from, path) {
        fs::rename(&aside, path).map_err(Error::io("restore", path))?;
        return Err(failed(error));
    }
    remove(&aside);
    Ok(())
}

/// Removes a folder, or file: it loses its name in one step, so that a reader never sees half of it. What is left after a
/// crash goes with the next [`crate::clean`].
///
/// # Errors
/// When it cannot be renamed.
pub fn remove_whole(path: &Path) -> Result<()> {
    let aside = Temporary::name_beside(path);
    remove(&aside);
    fs::rename(path, &aside).map_err(Error::io("remove", path))?;
    remove(&aside);
    Ok(())
}

#[derive(Debug, PartialEq)]
enum Target {
    Absent,
    File,
    Stream,
}

const FOLDER: &str = "a folder";

/// What is at the path of an output, if it may be written there.
fn look_at(path: &Path, existing: Existing) -> Result<Target> {
    let kind = match path.symlink_metadata() {
        Ok(found) => found.file_type(),
        // Whatever else is wrong shows when it is written.
        Err(_) => return Ok(Target::Absent),
    };
    if existing == Existing::Refuse {
        return Err(Error::Exists(path.to_owned()));
    }
    // `/dev/stdout` is a link.
    let target = if kind.is_symlink() { path.metadata().ok().map(|found| found.file_type()) } else { Some(kind) };
    let found = match target {
        Some(target) if is_stream(target) => return Ok(Target::Stream),
        _ if kind.is_symlink() => "a link",
        _ if kind.is_file() => return Ok(Target::File),
        _ if kind.is_dir() => FOLDER,
        _ => "a device or socket",
    };
    Err(Error::Kind { path: path.to_owned(), found, expected: "a file, or the name of a new one" })
}

/// Whether bytes written there go somewhere, one after the other.
fn is_stream(kind: fs::FileType) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        kind.is_char_device() || kind.is_fifo()
    }
    #[cfg(not(unix))]
    {
        !kind.is_file() && !kind.is_dir() && !kind.is_symlink()
    }
}

fn write_to_stream(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        // A pipe that nobody reads is an error, and not waited for.
        options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
    }
    let failed = Error::io("write", path);
    let write = || {
        let mut file = options.open(path)?;
        #[cfg(unix)]
        rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::empty())?;
        file.write_all(bytes)
    };
    write().map_err(failed)
}

/// Makes a rename durable where the system can.
fn sync_folder(path: &Path) {
    if let Ok(folder) = crate::lock::open_folder(path) {
        let _ = File::sync_all(&folder);
    }
}

/// Folders that were made for an output, and go with it when nothing comes of it.
#[derive(Default)]
struct CreatedFolders(Vec<PathBuf>);

impl CreatedFolders {
    fn create(&mut self, path: &Path) -> Result<()> {
        for folder in path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
            self.0.push(folder.to_owned());
        }
        fs::create_dir_all(path).map_err(Error::io("create", path))
    }

    fn keep(&mut self) {
        for folder in std::mem::take(&mut self.0) {
            sync_folder(parent(&folder));
        }
    }
}

impl Drop for CreatedFolders {
    fn drop(&mut self) {
        // The deepest first, and only those that are empty.
        self.0.sort_by_key(|folder| std::cmp::Reverse(folder.components().count()));
        for folder in &self.0 {
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests;
