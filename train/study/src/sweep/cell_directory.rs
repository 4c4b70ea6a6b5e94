//! The directory of a cell, and how far it is.

use super::claim::{Claim, claim, is_claimed};
use crate::rows::{CellFile, cell_file};
use crate::{CELL_FILE, CellId};
use anyhow::{Context, Result};
use hankel_io::Existing;
use hankel_io::lock::{self, Held};
use hankel_trainer::config::{AdapterConfig, Cell, Config, ConfigError, Experiment, first_difference};
use hankel_trainer::fit::Stop;
use hankel_trainer::results::Diverged;
use hankel_trainer::run::{Finder, RunDirectory};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A cell, or one row of it, and its directory.
#[derive(Debug)]
pub struct CellDirectory {
    /// The experiment it belongs to, its directory's name.
    pub experiment: String,
    /// Its name within the experiment.
    pub slug: String,
    /// What it runs, or which of the files for that cannot be used.
    pub config: Result<Config, ConfigError>,
    /// Data that it is run on and that are nowhere.
    pub missing: Option<ConfigError>,
    asks_for_precision: bool,
    id: CellId,
    /// The adapters of the cell, where this is one row of it.
    planned_rows: Vec<String>,
    settings: BTreeMap<String, String>,
    path: PathBuf,
}

/// How far a cell is.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// Nothing of it is there.
    Open,
    /// It was begun and not finished.
    Begun,
    /// It has a result.
    Done,
    /// Its training reached a non-finite value, if only in one row. Running it again would give the same.
    Diverged(Failure),
    /// It could not be run; a sweep tries it again.
    Failed(Failure),
    /// Its directory holds a run of something else, as said: nothing is run until another one is chosen.
    Other(String),
}

/// Contents of `failed.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What was wrong.
    pub error: String,
    /// Stage and step at which a value was not finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diverged: Option<(String, u64)>,
}

/// A cell that no other process runs as long as this lives.
#[derive(Debug)]
pub struct HeldCell {
    // Let go before the lock.
    _claim: Claim,
    _lock: Held,
}

const FAILED: &str = "failed.json";

/// The configuration in `text`, with whole paths: the same files have other names in another directory.
fn at_their_places(text: &str, file: &Path, find: &dyn Fn(&Path) -> PathBuf) -> Result<Config, ConfigError> {
    let place = |path: &Path| {
        let found = find(path);
        found.canonicalize().unwrap_or(found)
    };
    Config::load_of_run(text, &file.display().to_string(), &place, &[])
}

/// What of a result says how a run has ended.
#[derive(Deserialize)]
struct Ending {
    #[serde(default)]
    diverged: Vec<Diverged>,
}

/// What the run in a directory has come to, if it has ended.
pub(super) fn outcome(directory: &Path) -> Option<State> {
    let at = |name: &str| directory.join(name);
    // One that is damaged is written again from the checkpoint.
    let parsed = |text: String| serde_json::from_str::<Ending>(&text).ok();
    let result = hankel_io::input::read_to_string(&at("result.json")).ok().and_then(parsed);
    if let Some(Ending { diverged }) = result.filter(|_| at("config.toml").is_file()) {
        let Some(first) = diverged.first() else { return Some(State::Done) };
        let error = diverged.iter().map(|lost| lost.error.as_str()).collect::<Vec<_>>().join("; ");
        return Some(State::Diverged(Failure { error, diverged: Some((first.name.clone(), first.step)) }));
    }
    let text = hankel_io::input::read_to_string(&at(FAILED)).ok()?;
    // Whatever it was, it is tried again.
    let damaged = |error| Failure { error: format!("{}: {error}", at(FAILED).display()), diverged: None };
    let failure: Failure = serde_json::from_str(&text).unwrap_or_else(damaged);
    Some(if failure.diverged.is_some() { State::Diverged(failure) } else { State::Failed(failure) })
}

/// Whether a run has adapters behind the one that it has failed with, and no result.
fn is_unfinished(config: &Config, directory: &Path, failure: &Failure) -> bool {
    let stage = failure.diverged.as_ref().map(|(stage, _)| stage.as_str());
    let has_more = config.adapter.iter().skip_while(|adapter| Some(&*adapter.name) != stage).nth(1).is_some();
    has_more && directory.join(FAILED).is_file() && !directory.join("result.json").is_file()
}

impl CellDirectory {
    /// The directory of `cell` of an experiment below `root`.
    pub fn new(root: &Path, experiment: &Experiment, cell: Cell) -> Self {
        let directory = experiment.directory_name();
        let path = root.join(&directory).join(&cell.slug);
        let (name, scale) = (experiment.name.clone(), experiment.scale.clone());
        let id = CellId { experiment: name, scale, axes: cell.axes };
        CellDirectory {
            experiment: directory,
            slug: cell.slug,
            config: cell.config,
            missing: cell.missing,
            asks_for_precision: cell.asks_for_precision,
            id,
            planned_rows: Vec::new(),
            settings: cell.settings,
            path,
        }
    }

    /// The rows of the cell, each with a directory below its own; a cell that cannot be used stays as it is.
    #[must_use]
    pub fn by_row(self) -> Vec<CellDirectory> {
        let Ok(config) = &self.config else { return vec![self] };
        let planned_rows: Vec<String> = config.adapter.iter().map(|adapter| adapter.name.clone()).collect();
        let row = |adapter: &AdapterConfig| {
            let row = &adapter.name;
            let own = format!("adapter.{row}");
            let settings = self.settings.iter().filter(|(part, _)| !part.starts_with("adapter.") || **part == own);
            CellDirectory {
                experiment: self.experiment.clone(),
                slug: format!("{}/{row}", self.slug),
                config: Ok(Config { adapter: vec![adapter.clone()], ..config.clone() }),
                missing: self.missing.clone(),
                asks_for_precision: self.asks_for_precision,
                id: self.id.clone(),
                planned_rows: planned_rows.clone(),
                settings: settings.map(|(part, fingerprint)| (part.clone(), fingerprint.clone())).collect(),
                path: self.path.join(row),
            }
        };
        config.adapter.iter().map(row).collect()
    }

    /// Whether it is one row of a cell.
    pub fn is_row(&self) -> bool {
        !self.planned_rows.is_empty()
    }

    /// The directory of the cell, of which it may be a row.
    fn cell_path(&self) -> &Path {
        if self.is_row() { self.path.parent().unwrap_or(&self.path) } else { &self.path }
    }

    /// Says so where there is a run of all rows and rows are to be run by themselves, and the other way round.
    fn divided_otherwise(&self) -> Option<String> {
        let cell = self.cell_path();
        if self.is_row() && cell.join("config.toml").is_file() {
            return Some(format!(
                "{} was begun as one run: leave out --by-row, or choose another --out",
                cell.display()
            ));
        }
        let is_row_of = |adapter: &AdapterConfig| cell.join(&adapter.name).join(CELL_FILE).is_file();
        let is_divided = !self.is_row() && self.config.iter().flat_map(|config| &config.adapter).any(is_row_of);
        is_divided
            .then(|| format!("{} was begun row by row: go on with --by-row, or choose another --out", cell.display()))
    }

    /// Its run directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of its experiment.
    pub(super) fn experiment_path(&self) -> &Path {
        let cell = self.cell_path();
        cell.parent().unwrap_or(cell)
    }

    /// What the sweep asks for, as its directory says it.
    pub(super) fn file(&self) -> CellFile {
        CellFile { id: self.id.clone(), planned_rows: self.planned_rows.clone(), settings: self.settings.clone() }
    }

    fn write_file(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.file()).context("a grid point as JSON")?;
        Ok(hankel_io::write_file(&self.path.join(CELL_FILE), text.as_bytes(), Existing::Replace)?)
    }

    /// Writes again what its directory says of plan and settings, if it is through and an adapter has come or gone since. Where that
    /// cannot be done the directory is as good as before: reports take the rows of all plans together.
    pub(super) fn renew(&self) {
        // What cannot be read is written again, too.
        let is_old = cell_file(&self.path).map_or(true, |known| known.is_some_and(|known| known != self.file()));
        if is_old
            && matches!(self.state(), Ok(State::Done | State::Diverged(_)))
            && let Ok(Ok(_held)) = self.hold()
        {
            let _ = self.write_file();
        }
    }

    /// How far it is.
    ///
    /// # Errors
    /// When what its directory holds cannot be read.
    pub fn state(&self) -> Result<State> {
        if let Some(otherwise) = self.divided_otherwise() {
            return Ok(State::Other(otherwise));
        }
        let at = |name: &str| self.path.join(name);
        let config = match &self.config {
            Ok(config) => config,
            Err(error) => return Ok(State::Failed(Failure { error: error.to_string(), diverged: None })),
        };
        let begun = at("config.toml").is_file();
        if begun {
            let text = hankel_io::input::read_to_string(&at("config.toml"))?;
            let finder = Finder::new(&self.path);
            let own = at_their_places(&text, &at("config.toml"), &|path| finder.find(path))
                .with_context(|| format!("put the file back, or remove {} to run it anew", self.path.display()))?;
            let config = at_their_places(&config.to_toml(), Path::new(&self.slug), &Path::to_owned)?;
            // As with `fit --resume`, a cell may be gone on with on another device, whose products are of another precision when
            // none is asked for; what is stored in doubles stays in doubles.
            let mut here = Config { device: own.device.clone(), gpu_memory: own.gpu_memory, ..config };
            if !self.asks_for_precision && here.precision.dtype() == own.precision.dtype() {
                here.precision = own.precision;
            }
            if own != here {
                let (has, asks) = first_difference(&own.to_toml(), &here.to_toml()).unwrap_or_default();
                return Ok(State::Other(format!(
                    "{} was run with another configuration (it has {has}, the sweep asks for {asks}): choose another --out",
                    self.path.display()
                )));
            }
        }
        Ok(match outcome(&self.path) {
            // Earlier versions ended a run with the first adapter that diverged.
            Some(State::Diverged(failure)) if begun && is_unfinished(config, &self.path, &failure) => State::Begun,
            Some(state) => state,
            None if begun => State::Begun,
            None => State::Open,
        })
    }

    /// Holds the cell for this process until the value is dropped, or says who has it.
    ///
    /// # Errors
    /// When the directory cannot be made or written.
    pub fn hold(&self) -> Result<Result<HeldCell, String>> {
        let Some(lock) = lock::try_hold(&self.path)? else {
            return Ok(Err("another process is running it".to_owned()));
        };
        Ok(claim(&self.path, lock.is_exclusive)?.map(|claim| HeldCell { _claim: claim, _lock: lock }))
    }

    /// Whether another process runs it, as far as claims say. Nothing is held meanwhile, not for a moment: its owner may be about to begin.
    ///
    /// # Errors
    /// When the directory cannot be read or written.
    pub fn is_claimed(&self) -> Result<bool> {
        is_claimed(&self.path)
    }

    /// The run directory, for a new or a resumed run.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn directory(&self) -> Result<RunDirectory> {
        let failed = self.path.join(FAILED);
        if failed.is_file() {
            fs::remove_file(failed).with_context(|| self.path.display().to_string())?;
        }
        self.write_file()?;
        let begun = self.path.join("config.toml").is_file();
        Ok(if begun { RunDirectory::open(&self.path)? } else { RunDirectory::free(&self.path)? })
    }

    /// Records the failure in `failed.json`.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn record(&self, error: &anyhow::Error) -> Result<Failure> {
        let diverged = match error.downcast_ref::<Stop>() {
            Some(Stop::NonFinite(failure)) => Some((failure.stage.clone(), failure.step)),
            _ => None,
        };
        let failure = Failure { error: format!("{error:#}"), diverged };
        let text = serde_json::to_string_pretty(&failure).context("a failure as JSON")?;
        hankel_io::write_file(&self.path.join(FAILED), text.as_bytes(), Existing::Replace)?;
        Ok(failure)
    }
}
