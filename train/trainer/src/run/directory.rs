//! The directory of a run.

use hankel_models::weights::{WeightsError, atomic};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A run directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// `--out` names a directory with a run in it.
    #[error("{} already holds {mark} of a run: continue it with --resume, or choose another --out", .path.display())]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// What is in it.
        mark: &'static str,
    },
    /// `--resume` found nothing to go on from.
    #[error("{0} holds no run to resume: it has no config.toml")]
    NothingToResume(PathBuf),
    /// The directory cannot be made or read.
    #[error("cannot use {path} as a run directory: {reason}")]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
}

/// `runs/NAME/` or what `--out` names.
#[derive(Debug, Clone)]
pub struct RunDirectory {
    path: PathBuf,
}

/// What marks a directory as holding a run.
const MARKS: [&str; 7] =
    ["config.toml", "metrics.jsonl", "result.json", "checkpoints", "adapters", "backbone", "predictions"];

impl RunDirectory {
    /// A new run's directory: `out`, or the first free one of `runs/NAME`, `runs/NAME-2` ...
    ///
    /// # Errors
    /// When `out` holds a run, or a directory cannot be made.
    pub fn create(name: &str, out: Option<&Path>) -> Result<Self, RunError> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |reason| RunError::Unusable { path, reason }
        };
        if let Some(out) = out {
            if let Some(mark) = MARKS.into_iter().find(|mark| out.join(mark).exists()) {
                return Err(RunError::Occupied { path: out.to_owned(), mark });
            }
            fs::create_dir_all(out).map_err(unusable(out))?;
            return Ok(RunDirectory { path: out.to_owned() });
        }
        fs::create_dir_all("runs").map_err(unusable(Path::new("runs")))?;
        for number in 1_u32.. {
            let path = Path::new("runs").join(if number == 1 { name.to_owned() } else { format!("{name}-{number}") });
            // Creation fails if it exists, so two runs that start together get two directories.
            match fs::create_dir(&path) {
                Ok(()) => return Ok(RunDirectory { path }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(reason) => return Err(RunError::Unusable { path, reason }),
            }
        }
        unreachable!("there are more numbers than directories")
    }

    /// The directory of an earlier run.
    ///
    /// # Errors
    /// When it holds none.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        if !path.join("config.toml").is_file() {
            return Err(RunError::NothingToResume(path.to_owned()));
        }
        Ok(RunDirectory { path: path.to_owned() })
    }

    /// Removes what killed processes left behind. No other process may be at the run.
    pub fn clean(&self) {
        for directory in [self.path.clone(), self.checkpoints(), self.path.join("adapters")] {
            clean(&directory);
        }
    }

    /// The newest of `runs/NAME`, `runs/NAME-2` ...: what `--resume` without `--out` continues.
    pub fn newest(name: &str) -> Option<PathBuf> {
        let path = |number: u32| {
            Path::new("runs").join(if number == 1 { name.to_owned() } else { format!("{name}-{number}") })
        };
        let last = (1..=u32::MAX).take_while(|&number| path(number).exists()).last()?;
        Some(path(last))
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// The resolved configuration.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }
    /// The events.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }
    /// The final figures.
    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }
    /// The report.
    pub fn report(&self) -> PathBuf {
        self.path.join("report.html")
    }
    /// The backbone.
    pub fn backbone(&self) -> PathBuf {
        self.path.join("backbone")
    }
    /// The full states.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }
    /// Generated answers of a row on a split.
    pub fn predictions(&self, row: &str, split: &str) -> PathBuf {
        self.path.join("predictions").join(format!("{row}-{split}.jsonl"))
    }
    /// Where generated answers are, if there are any.
    pub fn existing_predictions(&self) -> Option<PathBuf> {
        Some(self.path.join("predictions")).filter(|folder| folder.is_dir())
    }
    /// A trained adapter.
    pub fn adapter(&self, name: &str) -> PathBuf {
        self.path.join("adapters").join(name)
    }

    /// Writes a text file of the run as a whole.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), WeightsError> {
        atomic::write_file(path, text.as_bytes())
    }
}

/// Removes what killed processes left behind in `directory`: files and directories `.NAME.tmp-PID`, `.NAME.old-PID`.
fn clean(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') && (name.contains(".tmp-") || name.contains(".old-")) {
            let path = entry.path();
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_run_is_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("a/b");
        let run = RunDirectory::create("x", Some(&out)).unwrap();
        assert!(matches!(RunDirectory::open(&out), Err(RunError::NothingToResume(_))));
        RunDirectory::create("x", Some(&out)).expect("an empty directory is free");
        run.write(&run.config(), "seed = 1").unwrap();
        let error = RunDirectory::create("x", Some(&out)).unwrap_err();
        assert!(error.to_string().contains("already holds config.toml of a run: continue it with --resume"), "{error}");
        assert_eq!(fs::read_to_string(run.config()).unwrap(), "seed = 1");
        let model = directory.path().join("model");
        fs::create_dir_all(model.join("backbone")).unwrap();
        assert!(matches!(RunDirectory::create("x", Some(&model)), Err(RunError::Occupied { mark: "backbone", .. })));
        fs::create_dir_all(out.join("checkpoints/.00-hrm-step-000003.tmp-77")).unwrap();
        let run = RunDirectory::open(&out).unwrap();
        assert_eq!(run.path(), out);
        run.clean();
        assert_eq!(fs::read_dir(out.join("checkpoints")).unwrap().count(), 0, "leftovers are removed");
    }
}
