//! The directory of a run.

use super::checksum::crc32c_of;
use super::{checkpoint, lock};
use hankel_io::Existing;
use hankel_io::lock::Held;
use std::fs;
use std::io::ErrorKind;
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
    /// `--out` names a directory with a model or an adapter in it.
    #[error("{} holds a model or an adapter, with {mark}: choose another --out", .path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// What is in it.
        mark: &'static str,
    },
    /// `--resume` found nothing to go on from.
    #[error("{0} holds no run to resume: it has no config.toml")]
    NothingToResume(PathBuf),
    /// Another process is at the run.
    #[error("another process is at the run in {0}: wait until it has ended")]
    Busy(PathBuf),
    /// The directory cannot be made or held.
    #[error("cannot be used as a run directory")]
    File(#[from] hankel_io::Error),
}

/// `runs/NAME/` or what `--out` names.
#[derive(Debug, Clone)]
pub struct RunDirectory {
    path: PathBuf,
}

/// What marks a directory as holding a run.
const MARKS: [&str; 9] = [
    "config.toml",
    "metrics.jsonl",
    "result.json",
    "report.html",
    "checkpoints",
    "adapters",
    "backbone",
    "predictions",
    "plots",
];

/// What marks a directory as holding a model or an adapter.
const OTHERS: [&str; 2] = ["config.json", "adapter_config.json"];

/// Folders in which nobody but a run keeps files.
const OWN_FOLDERS: [&str; 5] = ["checkpoints", "adapters", "backbone", "predictions", "plots"];

impl RunDirectory {
    /// Takes a new run's directory for this process: `out`, or the first free one of `runs/NAME`, `runs/NAME-2` ... One that
    /// a killed process left empty is free.
    ///
    /// # Errors
    /// When `out` holds a run or another process is running it, or a directory cannot be made.
    pub fn begin(name: &str, out: Option<&Path>) -> Result<(Self, Held), RunError> {
        if let Some(out) = out {
            Self::check_free(out)?;
            hankel_io::create_folder(out)?;
            let held = lock::try_hold(out)?.ok_or_else(|| RunError::Busy(out.to_owned()))?;
            return Ok((Self::free(out)?, held));
        }
        hankel_io::create_folder(Path::new("runs"))?;
        for number in 1_u32.. {
            let path = numbered(name, number);
            let is_new = match fs::create_dir(&path) {
                Ok(()) => true,
                Err(error) if error.kind() == ErrorKind::AlreadyExists && is_empty(&path) => false,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(reason) => return Err(hankel_io::Error::io("create", path)(reason).into()),
            };
            // Whoever has the lock has the directory.
            let Some(held) = lock::try_hold(&path)?.filter(|held| is_new || held.is_exclusive) else { continue };
            match Self::free(&path) {
                Err(RunError::Occupied { .. } | RunError::Foreign { .. }) => {}
                other => return Ok((other?, held)),
            }
        }
        unreachable!("there are more numbers than directories")
    }

    /// A directory for a new run, which this process holds.
    ///
    /// # Errors
    /// When there is a run in it.
    pub fn free(path: &Path) -> Result<Self, RunError> {
        Self::check_free(path)?;
        let run = RunDirectory { path: path.to_owned() };
        run.clean();
        Ok(run)
    }

    fn check_free(path: &Path) -> Result<(), RunError> {
        let found = |marks: &[&'static str]| marks.iter().copied().find(|mark| path.join(mark).exists());
        match (found(&MARKS), found(&OTHERS)) {
            (Some(mark), _) => Err(RunError::Occupied { path: path.to_owned(), mark }),
            (_, Some(mark)) => Err(RunError::Foreign { path: path.to_owned(), mark }),
            (None, None) => Ok(()),
        }
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

    /// The directory that another process of the same run has made, or goes on with.
    pub fn of_another_process(path: PathBuf) -> Self {
        RunDirectory { path }
    }

    /// Removes what killed processes left behind: temporary files and folders, and parts of checkpoints. No other process may
    /// be at the run.
    pub fn clean(&self) {
        hankel_io::clean(&self.path);
        for folder in OWN_FOLDERS {
            hankel_io::clean_below(&self.path.join(folder));
        }
        for part in checkpoint::incomplete(&self.checkpoints()) {
            let _ = hankel_io::remove_whole(&part);
        }
    }

    /// The newest run in `runs/NAME`, `runs/NAME-2` ...: what `--resume` without `--out` continues.
    pub fn newest(name: &str) -> Option<PathBuf> {
        let entries = fs::read_dir("runs").ok()?.flatten();
        let numbers = entries.filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let rest = file.strip_prefix(name)?;
            if rest.is_empty() { Some(1) } else { rest.strip_prefix('-')?.parse().ok() }
        });
        let begun = numbers.filter_map(|number: u32| {
            let path = numbered(name, number);
            // `NAME-2` may be the name of another experiment.
            let config: toml::Table = fs::read_to_string(path.join("config.toml")).ok()?.parse().ok()?;
            if config.get("name").is_some_and(|own| own.as_str() != Some(name)) {
                return None;
            }
            let begun = fs::metadata(path.join("config.toml")).ok()?.modified().ok()?;
            Some((begun, number, path))
        });
        begun.max().map(|(.., path)| path)
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
    /// The backbone.
    pub fn backbone(&self) -> PathBuf {
        self.path.join("backbone")
    }
    /// CRC-32C of the backbone's weights, if they are there.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn backbone_crc32c(&self) -> hankel_io::Result<Option<u32>> {
        let weights = self.backbone().join("model.safetensors");
        if !weights.exists() {
            return Ok(None);
        }
        crc32c_of(&weights).map(Some)
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
    pub fn write(&self, path: &Path, text: &str) -> hankel_io::Result<()> {
        hankel_io::write_file(path, text.as_bytes(), Existing::Replace)
    }
}

/// `runs/NAME`, or with a number from 2.
fn numbered(name: &str, number: u32) -> PathBuf {
    Path::new("runs").join(if number == 1 { name.to_owned() } else { format!("{name}-{number}") })
}

/// Whether nothing but a lock and leftovers is in a directory.
fn is_empty(directory: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(directory) else { return false };
    entries.all(|entry| {
        let name = entry.map(|entry| entry.file_name().to_string_lossy().into_owned()).unwrap_or_default();
        name == ".lock" || hankel_io::is_temporary(&name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_run_is_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("a/b");
        let (run, held) = RunDirectory::begin("x", Some(&out)).unwrap();
        assert!(matches!(RunDirectory::open(&out), Err(RunError::NothingToResume(_))));
        assert!(matches!(RunDirectory::begin("x", Some(&out)), Err(RunError::Busy(_))));
        drop(held);
        let again = RunDirectory::begin("x", Some(&out)).expect("an empty directory is free");
        run.write(&run.config(), "seed = 1").unwrap();
        drop(again);
        let error = RunDirectory::begin("x", Some(&out)).unwrap_err();
        assert!(error.to_string().contains("already holds config.toml of a run: continue it with --resume"), "{error}");
        assert_eq!(fs::read_to_string(run.config()).unwrap(), "seed = 1");
        let model = directory.path().join("model");
        fs::create_dir_all(model.join("backbone")).unwrap();
        assert!(matches!(RunDirectory::begin("x", Some(&model)), Err(RunError::Occupied { mark: "backbone", .. })));
    }

    #[test]
    fn leftovers_and_parts_of_checkpoints_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let run = RunDirectory::free(&directory.path().join("run")).unwrap();
        fs::create_dir_all(run.checkpoints().join(".00-hrm-step-000003.tmp-77-0")).unwrap();
        fs::create_dir_all(run.checkpoints().join("00-hrm-step-000002")).unwrap();
        fs::write(run.checkpoints().join("00-hrm-step-000002/state.json"), "half of what was pruned").unwrap();
        fs::create_dir_all(run.path().join("plots")).unwrap();
        fs::write(run.path().join("plots/.loss.svg.tmp-77-1"), "").unwrap();
        fs::create_dir_all(run.checkpoints().join("my notes")).unwrap();
        fs::create_dir_all(run.checkpoints().join("keep-step-500")).unwrap();
        fs::create_dir_all(run.path().join("mine/.dotfiles.old-2024")).unwrap();
        fs::write(run.path().join("mine/.a.tmp-1-0"), "").unwrap();
        fs::write(run.path().join(".env.old-prod"), "").unwrap();
        run.clean();
        assert!(run.path().join("mine/.dotfiles.old-2024").is_dir() && run.path().join("mine/.a.tmp-1-0").is_file());
        assert!(run.path().join(".env.old-prod").is_file());
        let mut left: Vec<_> =
            fs::read_dir(run.checkpoints()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["keep-step-500", "my notes"]);
        assert_eq!(fs::read_dir(run.path().join("plots")).unwrap().count(), 0);
    }
}
