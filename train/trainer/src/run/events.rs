//! `metrics.jsonl`: one event a line.

use crate::results::Event;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The open file of events.
pub(crate) struct EventLog {
    /// None where nothing is written.
    file: Option<File>,
    path: PathBuf,
}

impl EventLog {
    /// A log that takes events and writes nothing: another process does.
    pub(crate) fn silent() -> Self {
        EventLog { file: None, path: PathBuf::new() }
    }

    /// A new, empty file.
    ///
    /// # Errors
    /// When it exists or cannot be made.
    pub(crate) fn create(path: &Path) -> hankel_io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(path);
        file.map(|file| EventLog { file: Some(file), path: path.to_owned() })
            .map_err(hankel_io::Error::io("write", path))
    }

    /// The file of an earlier run, truncated to the `bytes` it had at the checkpoint from which the run resumes:
    /// what came after will happen again. Also gives the bytes that are missing of those: the file then ends with its last
    /// complete line.
    ///
    /// # Errors
    /// When it cannot be opened or cut.
    pub(crate) fn reopen(path: &Path, bytes: u64) -> hankel_io::Result<(Self, u64)> {
        let mut file = hankel_io::open_to_write(path)?;
        let mut cut = || -> io::Result<u64> {
            let mut kept = bytes;
            if file.metadata()?.len() < bytes {
                let there = fs::read(path)?;
                kept = there.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end as u64 + 1);
            }
            file.set_len(kept)?;
            // Whole lines stay whole, also those of a process that was suspended and wakes up beside its successor.
            file = OpenOptions::new().append(true).open(path)?;
            file.seek(SeekFrom::End(0))
        };
        let kept = cut().map_err(hankel_io::Error::io("write", path))?;
        Ok((EventLog { file: Some(file), path: path.to_owned() }, bytes - kept))
    }

    /// Appends an event.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub(crate) fn write(&mut self, event: &Event) -> hankel_io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let failed = hankel_io::Error::io("write", &self.path);
        let line = serde_json::to_vec(event).map_err(io::Error::other);
        let written = line.and_then(|mut line| {
            line.push(b'\n');
            file.write_all(&line)
        });
        written.map_err(failed)
    }

    /// Brings the events to the disk, and gives the length of the file.
    ///
    /// # Errors
    /// When the system cannot.
    pub(crate) fn sync(&mut self) -> hankel_io::Result<u64> {
        let Some(file) = &mut self.file else { return Ok(0) };
        file.sync_data().and_then(|()| file.stream_position()).map_err(hankel_io::Error::io("write", &self.path))
    }

    /// Reads the events of a file; a last line that was cut off by a crash is left out.
    ///
    /// # Errors
    /// With the number of the line that is not an event.
    #[cfg(test)]
    fn read(path: &Path) -> Result<Vec<Event>, String> {
        let text = hankel_io::input::read_to_string(path).map_err(|error| error.to_string())?;
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |(number, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| format!("{}:{}: {error}", path.display(), number + 1))
        };
        complete.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_log_goes_on_where_the_state_was_saved() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics.jsonl");
        let event = |seconds| Event::Finished { seconds };
        let mut log = EventLog::create(&path).unwrap();
        log.write(&event(1.0)).unwrap();
        let saved = log.sync().unwrap();
        log.write(&event(2.0)).unwrap();
        drop(log);
        assert!(EventLog::create(&path).is_err());
        let (mut log, missing) = EventLog::reopen(&path, saved).unwrap();
        log.write(&event(3.0)).unwrap();
        assert_eq!((EventLog::read(&path).unwrap(), missing), (vec![event(1.0), event(3.0)], 0));
        // A process that was suspended, and wakes up beside the one that has gone on.
        let mut old = EventLog::create(&directory.path().join("two")).unwrap();
        old.write(&event(1.0)).unwrap();
        let (mut new, _) = EventLog::reopen(&directory.path().join("two"), 0).unwrap();
        [7.0, 8.0].into_iter().for_each(|seconds| new.write(&event(seconds)).unwrap());
        old.write(&event(2.0)).unwrap();
        new.write(&event(9.0)).unwrap();
        let both = EventLog::read(&directory.path().join("two")).unwrap();
        assert_eq!(both, [7.0, 8.0, 2.0, 9.0].map(event));
        // A file system that lost its end: half a line is not a line, and what is missing is told.
        let whole = log.sync().unwrap();
        log.file.as_ref().unwrap().set_len(whole - 5).unwrap();
        let (mut log, missing) = EventLog::reopen(&path, whole).unwrap();
        assert_eq!(missing, whole - saved);
        log.write(&event(4.0)).unwrap();
        assert_eq!(EventLog::read(&path).unwrap(), [event(1.0), event(4.0)]);
        fs::remove_file(&path).unwrap();
        assert_eq!(EventLog::reopen(&path, whole).unwrap().1, whole);
        fs::write(&path, "{\"event\":\"finished\",\"seconds\":1.0}\n{\"event\":\"fin").unwrap();
        assert_eq!(EventLog::read(&path).unwrap(), [event(1.0)]);
        fs::write(&path, "{\"event\":\"nonsense\"}\n").unwrap();
        assert!(EventLog::read(&path).unwrap_err().contains("metrics.jsonl:1:"));
    }
}
