//! Running the real binary.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A configuration that trains in a moment: HRM, with dropout, on a tiny frozen backbone with a trained head.
pub const TINY: &str = r#"
name = "tiny"
seed = 3

[task]
kind = "dfa"
length = 12
train_sequences = 64
validation_sequences = 16
test_sequences = 0

[backbone]
layers = 2
d_model = 16
heads = 2
dropout = 0.1
train_head = true

[train]
steps = 12
batch_size = 4
accumulation = 2
lr = 1e-2
eval_sequences = 8

[[adapter]]
kind = "hrm"
state_dim = 4
truncate = { order = 2 }
"#;

/// A directory of its own, in which the binary runs.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Finished {
        Finished::new(&self.command(arguments).output().unwrap())
    }

    /// Trains a configuration into `out` and expects success.
    pub fn fit(&self, config: &str, out: &str, more: &[&str]) -> Finished {
        self.write("config.toml", config);
        let mut arguments = vec!["fit", "config.toml", "--out", out];
        arguments.extend(more);
        let finished = self.run(&arguments);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        finished
    }

    /// Every file under `name` with its content, for comparisons.
    pub fn snapshot(&self, name: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        collect(&self.path(name), &mut files);
        files.sort();
        files
    }
}

fn collect(path: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), files);
        }
    } else if path.exists() {
        files.push((path.to_owned(), fs::read(path).unwrap()));
    }
}

/// What a process left.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    pub fn new(output: &Output) -> Self {
        Finished {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Expects exit code 2 and a message with all of `parts`.
    #[track_caller]
    pub fn refused(&self, parts: &[&str]) {
        assert_eq!(self.code, Some(2), "{}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "expected {part:?} in:\n{}", self.stderr);
        }
    }
}

/// Starts a run and stops it by `signal` as soon as a checkpoint called `name` exists.
#[cfg(unix)]
pub fn stop_at(place: &Place, arguments: &[&str], run: &str, name: &str, signal: &str) -> Finished {
    let mut child = place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let checkpoints = place.path(run).join("checkpoints");
    let begun = Instant::now();
    loop {
        let reached = fs::read_dir(&checkpoints)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            // One that is still being written is hidden.
            .any(|entry| entry.contains(name) && !entry.starts_with('.'));
        if reached {
            break;
        }
        assert!(child.try_wait().unwrap().is_none(), "the run ended before {name}");
        assert!(begun.elapsed() < Duration::from_secs(120), "{name} did not appear");
        std::thread::sleep(Duration::from_millis(1));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    Finished::new(&child.wait_with_output().unwrap())
}

/// The losses that a run logged for a stage.
pub fn collect_losses(place: &Place, run: &str, stage: &str) -> Vec<f64> {
    let text = fs::read_to_string(place.path(run).join("metrics.jsonl")).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let own = events.filter(|event| event["event"] == "step" && event["stage"] == stage);
    own.map(|event| event["loss"].as_f64().unwrap()).collect()
}
