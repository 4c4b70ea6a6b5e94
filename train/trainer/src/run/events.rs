//! `metrics.jsonl`: one event a line.

use crate::results::Event;
use hankel_models::weights::WeightsError;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The open file of events.
pub struct EventLog {
    file: File,
    path: PathBuf,
}

impl EventLog {
    /// A new, empty file.
    ///
    /// # Errors
    /// When it exists or cannot be made.
    pub fn create(path: &Path) -> Result<Self, WeightsError> {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        file.map(|file| EventLog { file, path: path.to_owned() }).map_err(WeightsError::io("write", path))
    }

    /// The file of an earlier run, cut back to the `bytes` it had when the state was saved from which the run goes on:
    /// what came after will happen again.
    ///
    /// # Errors
    /// When it cannot be opened or cut.
    pub fn reopen(path: &Path, bytes: u64) -> Result<Self, WeightsError> {
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
            file.set_len(bytes.min(file.metadata()?.len()))?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        open().map(|file| EventLog { file, path: path.to_owned() }).map_err(WeightsError::io("write", path))
    }

    /// Appends an event.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn write(&mut self, event: &Event) -> Result<(), WeightsError> {
        let mut line = serde_json::to_vec(event).map_err(io::Error::other).map_err(|error| self.failed(error))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|error| self.failed(error))
    }

    /// Present length of the file.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn bytes(&mut self) -> Result<u64, WeightsError> {
        self.file.stream_position().map_err(|error| self.failed(error))
    }

    fn failed(&self, source: io::Error) -> WeightsError {
        WeightsError::io("write", &self.path)(source)
    }

    /// Reads the events of a file; a last line that was cut off by a crash is left out.
    ///
    /// # Errors
    /// With the number of the line that is not an event.
    pub fn read(path: &Path) -> Result<Vec<Event>, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
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
        let saved = log.bytes().unwrap();
        log.write(&event(2.0)).unwrap();
        drop(log);
        assert!(EventLog::create(&path).is_err());
        let mut log = EventLog::reopen(&path, saved).unwrap();
        log.write(&event(3.0)).unwrap();
        assert_eq!(EventLog::read(&path).unwrap(), [event(1.0), event(3.0)]);
        std::fs::write(&path, "{\"event\":\"finished\",\"seconds\":1.0}\n{\"event\":\"fin").unwrap();
        assert_eq!(EventLog::read(&path).unwrap(), [event(1.0)]);
        std::fs::write(&path, "{\"event\":\"nonsense\"}\n").unwrap();
        assert!(EventLog::read(&path).unwrap_err().contains("metrics.jsonl:1:"));
    }
}
