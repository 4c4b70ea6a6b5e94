//! Checkpoints: the full state of a run after an optimizer step.
//!
//! `checkpoints/01-hrm-step-000200/` holds `state.json` (where the run is and what it has finished) and
//! `state.safetensors` (trained parameters and moments of the optimizer, by name) with its CRC-32C. Random numbers are functions of seed,
//! name and step, so there is no generator state. A directory appears under its name only when it is complete.

use super::checksum::crc32c_of;
use crate::results::{AdapterResult, DataFile, Diverged, Kept, TrainingResult, curve, figure, metric};
use hankel_core::Tensor;
use hankel_io::{Existing, PendingFolder};
use hankel_models::weights::{WeightsError, write_tensors};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const STATE: &str = "state.json";
const TENSORS: &str = "state.safetensors";
const CHECKSUM: &str = "state.safetensors.crc32c";

/// Where a run is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// Number of the stage in progress, from 0.
    pub stage: usize,
    /// Its name.
    pub name: String,
    /// Optimizer steps done in it.
    pub step: u64,
    /// Its figures so far.
    pub progress: StageProgress,
    /// Outcome of the pretraining stage, once finished.
    pub pretrain: Option<TrainingResult>,
    /// Rows of the stages finished so far.
    pub rows: Vec<AdapterResult>,
    /// Adapters whose training came to a value that is not finite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diverged: Vec<Diverged>,
    /// Seconds of wall time of the run so far.
    pub wall_time_seconds: f64,
    /// Length of `metrics.jsonl` when the state was saved.
    pub metrics_bytes: u64,
    /// Largest resident set so far, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Largest anonymous part of it so far, in bytes.
    #[serde(default)]
    pub peak_anonymous_bytes: Option<u64>,
    /// Most bytes that tensors took on a GPU so far.
    #[serde(default)]
    pub peak_device_bytes: Option<u64>,
    /// CRC-32C of the weights of the backbone that the run has pretrained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backbone_crc32c: Option<u32>,
    /// Text of the `config.toml` that it is trained with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The files of data that the run began with.
    #[serde(default)]
    pub data: Vec<DataFile>,
    /// Those of its model, tokenizers and adapters, called by what they are, each with the SHA-256 of samples.
    #[serde(default)]
    pub model_files: Vec<DataFile>,
}

/// What a stage has added up so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StageProgress {
    /// Sequence positions processed.
    pub tokens: u64,
    /// Seconds of training steps.
    pub seconds: f64,
    /// Loss added up since the last log line.
    #[serde(deserialize_with = "figure")]
    pub window_loss: f64,
    /// Steps since the last log line.
    pub window_steps: u64,
    /// Loss of the last log line.
    pub last_loss: Option<f64>,
    /// Step and loss of the evaluations so far.
    #[serde(default, deserialize_with = "curve")]
    pub curve: Vec<(u64, f64)>,
    /// Whether the evaluation of the present step is still to be done.
    pub evaluation_due: bool,
    /// What the evaluations compared so far have shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Best>,
    /// Whether the stage ends at the present step because evaluations became no better.
    #[serde(default)]
    pub stopped_early: bool,
}

/// The best of the evaluations so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// It, and the one after the last step so far.
    pub kept: Kept,
    /// Its loss: of equal ones the lower counts.
    #[serde(default)]
    pub loss: Option<f64>,
    /// Evaluations in a row since then that were no better.
    pub waited: u64,
}

impl StageProgress {
    /// Takes up the value of `metric` after `step`, and the loss there. True when it is better than every one before, or as good with a
    /// lower loss; `NaN` never is, nor what has a loss that is not finite.
    pub fn compare(&mut self, step: u64, metric: &str, value: f64, loss: Option<f64>) -> bool {
        let value = if loss.is_some_and(|loss| !loss.is_finite()) { f64::NAN } else { value };
        let larger = metric::larger_is_better(metric);
        let better = |best: &Best| {
            let (before, lower) = (best.kept.value, loss.zip(best.loss).is_some_and(|(loss, before)| loss < before));
            let ahead = if larger { value > before } else { value < before };
            ahead || (value == before && lower)
        };
        let evaluations = self.best.as_ref().map_or(0, |best| best.kept.evaluations).saturating_add(1);
        match &mut self.best {
            Some(best) if !better(best) => {
                best.kept.last = value;
                best.kept.evaluations = evaluations;
                best.waited = best.waited.saturating_add(1);
                false
            }
            None if value.is_nan() => false,
            best => {
                let kept = Kept { step, metric: metric.to_owned(), value, last: value, evaluations };
                *best = Some(Best { kept, loss, waited: 0 });
                true
            }
        }
    }
}

/// A checkpoint that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot go on from {path}: {reason}")]
pub struct CheckpointError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Saves a state under `directory`, keeping the newest `keep` checkpoints.
///
/// # Errors
/// When it cannot be written; the earlier checkpoints are then all still there.
pub fn save(
    directory: &Path,
    state: &RunState,
    tensors: &BTreeMap<String, Tensor>,
    keep: usize,
) -> Result<PathBuf, WeightsError> {
    let path = directory.join(name_of(state.stage, &state.name, state.step));
    let json = serde_json::to_vec_pretty(state).map_err(|e| WeightsError::io("write", &path)(e.into()))?;
    let folder = PendingFolder::create(&path, Existing::Replace)?;
    write_tensors(&folder.temporary().join(TENSORS), tensors)?;
    let sum = crc32c_of(&folder.temporary().join(TENSORS))?;
    folder.write(CHECKSUM, format!("{sum:08x}\n").as_bytes())?;
    folder.write(STATE, &json)?;
    folder.commit()?;
    for old in list(directory).into_iter().rev().skip(keep.max(1)) {
        let _ = hankel_io::remove_whole(&old);
    }
    Ok(path)
}

fn name_of(stage: usize, name: &str, step: u64) -> String {
    format!("{stage:02}-{name}-step-{step:06}")
}

/// Stage and step of a folder with the name of a checkpoint. Any other, such as a copy that somebody made, is left alone.
fn place(path: &Path) -> Option<(usize, u64)> {
    let folder = path.file_name()?.to_str()?;
    let (stage, rest) = folder.split_once('-')?;
    let (name, step) = rest.rsplit_once("-step-")?;
    let (stage, step) = (stage.parse().ok()?, step.parse().ok()?);
    (name_of(stage, name, step) == folder).then_some((stage, step))
}

/// The complete checkpoints of a run, oldest first.
pub fn list(directory: &Path) -> Vec<PathBuf> {
    let placed = named(directory).filter(|path| is_complete(path)).filter_map(|path| Some((place(&path)?, path)));
    let mut found: Vec<((usize, u64), PathBuf)> = placed.collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// What is left of checkpoints that were being removed when a process of an earlier version was killed.
pub fn incomplete(directory: &Path) -> Vec<PathBuf> {
    named(directory).filter(|path| place(path).is_some() && !is_complete(path)).collect()
}

/// Everything in a directory that is not hidden.
fn named(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).map(|entry| entry.path())
}

fn is_complete(path: &Path) -> bool {
    path.join(STATE).is_file() && path.join(TENSORS).is_file()
}

fn failed(path: &Path, file: &str, reason: String) -> CheckpointError {
    CheckpointError { path: path.join(file), reason }
}

fn read(path: &Path, file: &str) -> Result<Vec<u8>, CheckpointError> {
    hankel_io::input::read(&path.join(file)).map_err(|error| failed(path, file, error.to_string()))
}

/// Reads the state of a checkpoint without its tensors.
///
/// # Errors
/// When its file is damaged, or of another step than the folder is called by.
pub fn state(path: &Path) -> Result<RunState, CheckpointError> {
    let failed = |reason| failed(path, STATE, reason);
    let state: RunState = serde_json::from_slice(&read(path, STATE)?).map_err(|error| failed(error.to_string()))?;
    let named = name_of(state.stage, &state.name, state.step);
    if place(path).is_some() && path.file_name().is_some_and(|folder| folder != named.as_str()) {
        return Err(failed(format!("it is that of {named}, not of this folder")));
    }
    Ok(state)
}

/// Reads a checkpoint.
///
/// # Errors
/// When a file is damaged, or of another step than the folder is called by.
pub fn load(path: &Path) -> Result<(RunState, BTreeMap<String, Tensor>), CheckpointError> {
    let (failed, read) = (|file: &str, reason| failed(path, file, reason), |file: &str| read(path, file));
    let state = state(path)?;
    let packed = read(TENSORS)?;
    // Earlier versions wrote none.
    if path.join(CHECKSUM).exists() {
        let noted = read(CHECKSUM)?;
        if noted.trim_ascii() != format!("{:08x}", crc32c::crc32c(&packed)).as_bytes() {
            return Err(failed(TENSORS, format!("it is damaged: it is not what {CHECKSUM} was written for")));
        }
    }
    let file = SafeTensors::deserialize(&packed).map_err(|error| failed(TENSORS, error.to_string()))?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.iter() {
        let tensor = from_little_endian(&view).map_err(|reason| failed(TENSORS, format!("{name}: {reason}")))?;
        tensors.insert(name.to_owned(), tensor);
    }
    Ok((state, tensors))
}

fn from_little_endian(view: &TensorView<'_>) -> Result<Tensor, String> {
    let tensor = match view.dtype() {
        Dtype::F32 => {
            let values = view.data().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
            Tensor::from_vec(values, view.shape())
        }
        Dtype::F64 => {
            let values = view.data().as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect();
            Tensor::from_vec(values, view.shape())
        }
        other => return Err(format!("unexpected type {other:?}")),
    };
    tensor.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(stage: usize, name: &str, step: u64) -> RunState {
        RunState { stage, name: name.to_owned(), step, ..RunState::default() }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn round_trip(
            shapes in proptest::collection::vec((0_usize..5, 0_usize..5, any::<bool>()), 0..5),
            bits in any::<u64>(),
            seconds in any::<f64>().prop_filter("finite", |x| x.is_finite()),
            step in any::<u64>(),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let tensors: BTreeMap<String, Tensor> = shapes.iter().enumerate().map(|(i, &(rows, columns, double))| {
                let value = |j: usize| f64::from_bits(bits.wrapping_mul(j as u64 + 1));
                let tensor = if double {
                    Tensor::from_vec((0..rows * columns).map(value).collect(), [rows, columns])
                } else {
                    Tensor::from_vec((0..rows * columns).map(|j| value(j) as f32).collect(), [rows, columns])
                };
                (format!("parameter/{i}"), tensor.unwrap())
            }).collect();
            let mut saved = at(1, "hrm", step);
            saved.progress.seconds = seconds;
            let path = save(directory.path(), &saved, &tensors, 2).unwrap();
            let (loaded, again) = load(&path).unwrap();
            prop_assert_eq!(loaded, saved);
            prop_assert_eq!(again.len(), tensors.len());
            for (name, tensor) in &tensors {
                prop_assert_eq!(again[name].shape(), tensor.shape());
                let bits = |tensor: &Tensor| tensor.to_f64_vec().iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
                prop_assert_eq!(again[name].dtype(), tensor.dtype());
                prop_assert_eq!(bits(&again[name]), bits(tensor), "same bits");
            }
        }
    }

    /// JSON has no NaN: a state with one is read again, whatever it is of.
    #[test]
    fn figures_that_are_not_finite_are_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut saved = at(1, "hrm", 3);
        let kept = Kept { value: f64::NAN, last: f64::INFINITY, ..Kept::default() };
        saved.progress.curve = vec![(1, 0.5), (2, f64::NAN)];
        saved.progress.window_loss = f64::NAN;
        saved.progress.best = Some(Best { kept: kept.clone(), loss: Some(0.4), waited: 0 });
        let training =
            TrainingResult { curve: vec![(1, f64::INFINITY)], kept: Some(kept), ..TrainingResult::default() };
        saved.rows.push(AdapterResult { training: Some(training), ..AdapterResult::default() });
        let (loaded, _) = load(&save(directory.path(), &saved, &BTreeMap::new(), 2).unwrap()).unwrap();
        assert!(loaded.progress.curve[0] == (1, 0.5) && loaded.progress.curve[1].1.is_nan());
        assert!(loaded.progress.window_loss.is_nan() && loaded.progress.best.unwrap().kept.last.is_nan());
        assert!(loaded.rows[0].training.as_ref().unwrap().curve[0].1.is_nan());
    }

    #[test]
    fn the_newest_complete_ones_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let tensors = BTreeMap::from([("a".to_owned(), Tensor::zeros::<f32>([2]))]);
        for (stage, name, step) in [(0, "pretrain", 999), (1, "a-b", 20), (1, "a-b", 100), (2, "hrm", 5)] {
            save(directory.path(), &at(stage, name, step), &tensors, 3).unwrap();
        }
        fs::create_dir(directory.path().join("02-hrm-step-000009")).unwrap();
        fs::create_dir(directory.path().join(".02-hrm-step-000010.tmp-1-0")).unwrap();
        // Copies that somebody made are neither removed nor resumed from.
        for copy in ["keep-20", "99-mine-step-1", "02-hrm-step-000005 before"] {
            let copy = directory.path().join(copy);
            fs::create_dir(&copy).unwrap();
            for file in [STATE, TENSORS] {
                fs::copy(directory.path().join("02-hrm-step-000005").join(file), copy.join(file)).unwrap();
            }
        }
        save(directory.path(), &at(2, "hrm", 5), &tensors, 3).unwrap();
        assert!(directory.path().join("keep-20").is_dir());
        let names: Vec<String> = list(directory.path())
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["01-a-b-step-000020", "01-a-b-step-000100", "02-hrm-step-000005"]);
    }

    #[test]
    fn evaluations_are_compared_in_the_direction_of_their_metric() {
        let run = |metric: &str, values: &[f64]| {
            let mut progress = StageProgress::default();
            let better = (1..).zip(values).map(|(i, &x)| progress.compare(10 * i, metric, x, None)).collect::<Vec<_>>();
            (better, progress.best)
        };
        let mut tied = StageProgress::default();
        let mut at = |step, loss| tied.compare(step, "accuracy", 0.5, Some(loss));
        assert_eq!([at(1, 7.0), at(2, 6.0), at(3, 6.0), at(4, f64::NAN), at(5, 5.0)], [true, true, false, false, true]);
        assert!(!tied.compare(6, "accuracy", 0.9, Some(f64::INFINITY)));
        assert_eq!(tied.best.map(|best| (best.kept.step, best.loss, best.waited)), Some((5, Some(5.0), 1)));
        let (better, best) = run("accuracy", &[0.5, 0.7, 0.7, f64::NAN, 0.6]);
        assert_eq!(better, [true, true, false, false, false], "the first of two equal ones is kept");
        let best = best.unwrap();
        assert_eq!((best.kept.step, best.kept.value, best.kept.last), (20, 0.7, 0.6));
        assert_eq!((best.kept.evaluations, best.waited), (5, 3));
        let (better, best) = run("loss", &[f64::NAN, 2.0, 2.5, 1.5]);
        assert_eq!(better, [false, true, false, true]);
        assert_eq!(best.map(|best| (best.kept.step, best.waited)), Some((40, 0)));
    }

    #[test]
    fn damage_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let tensors = BTreeMap::from([("a".to_owned(), Tensor::zeros::<f32>([200]))]);
        let path = save(directory.path(), &at(0, "x", 1), &tensors, 1).unwrap();
        let file = path.join(TENSORS);
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, &bytes[..bytes.len() - 9]).unwrap();
        let message = load(&path).unwrap_err().to_string();
        assert!(message.contains("state.safetensors"), "{message}");
        let mut flipped = bytes.clone();
        flipped[bytes.len() - 9] ^= 0x40;
        fs::write(&file, &flipped).unwrap();
        let message = load(&path).unwrap_err().to_string();
        assert!(message.contains("it is damaged"), "{message}");
        fs::remove_file(path.join(CHECKSUM)).unwrap();
        assert!(load(&path).is_ok(), "as earlier versions wrote them");
    }
}
