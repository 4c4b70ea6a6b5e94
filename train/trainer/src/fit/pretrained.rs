//! A backbone that another run has pretrained as this one would: cells of a sweep that differ in what comes after share it.

use crate::config::Config;
use crate::results::{DataFile, Event, PRETRAIN, RunResult, TrainingResult};
use crate::run::{RunDirectory, checkpoint};
use std::path::{Path, PathBuf};

/// Times that a run is read whose checkpoint is replaced meanwhile.
const TRIES: usize = 3;

/// What a run has pretrained, and what it wrote of it.
#[derive(Debug)]
pub struct Pretrained {
    /// The directory of the weights.
    pub(super) backbone: PathBuf,
    /// Its figures, with the name of the run.
    pub(super) result: TrainingResult,
    /// The lines of its curves.
    pub(super) events: Vec<Event>,
    /// The files of data that it is of, as far as they are on record.
    pub(super) data: Vec<DataFile>,
}

impl Pretrained {
    /// What the run in `directory`, which is told as `name`, has pretrained; `None` if it has not got so far, or what it wrote cannot be read.
    pub fn of_run(directory: &Path, name: &str) -> Option<Self> {
        let run = RunDirectory::open(directory).ok()?;
        let (result, data) = (0..TRIES).find_map(|_| figures(&run))?;
        let backbone = run.backbone();
        let name = result.shared_by.clone().unwrap_or_else(|| name.to_owned());
        let result = TrainingResult { shared_by: Some(name), ..result };
        let lines = hankel_io::input::read_to_string(&run.metrics()).unwrap_or_default();
        let events =
            lines.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(is_of_pretraining).collect();
        backbone.is_dir().then_some(Pretrained { backbone, result, events, data })
    }
}

/// The figures of the pretraining of a run that is finished, or of its newest checkpoint, and the files of its data.
fn figures(run: &RunDirectory) -> Option<(TrainingResult, Vec<DataFile>)> {
    if let Ok(text) = hankel_io::input::read_to_string(&run.result()) {
        let result: RunResult = serde_json::from_str(&text).ok()?;
        return Some((result.backbone.pretrain?, result.data));
    }
    let state = checkpoint::state(&checkpoint::list(&run.checkpoints()).pop()?).ok()?;
    Some((state.pretrain?, state.data))
}

/// Whether a line is of what the pretraining learnt. Its checkpoints are not in other runs.
fn is_of_pretraining(event: &Event) -> bool {
    let (Event::Stage { stage, .. } | Event::Step { stage, .. } | Event::Eval { stage, .. }) = event else {
        return false;
    };
    stage == PRETRAIN
}

impl Config {
    /// Whether a run of `other`, resolved as this is, pretrains the same backbone to the last bit.
    pub fn pretrains_as(&self, other: &Config) -> bool {
        let (Some(own), Some(others)) = (&self.pretrain, &other.pretrain) else { return false };
        own.train == others.train
            && self.pretrain_task() == other.pretrain_task()
            && self.backbone == other.backbone
            && (self.longest(), self.seed, self.precision) == (other.longest(), other.seed, other.precision)
            && self.device == other.device
    }
}
