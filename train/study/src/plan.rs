//! How many runs an experiment was to have: the grid of its file, which is committed before the results.

use crate::Cell;
use hankel_trainer::config::{ConfigError, Experiment};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The size of an experiment at a scale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Name of the experiment.
    pub experiment: String,
    /// The scale.
    pub scale: Option<String>,
    /// Cells of its grid.
    pub cells: usize,
}

/// An experiment that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file.
    #[error(transparent)]
    File(#[from] hankel_io::Error),
    /// The folder.
    #[error("cannot read {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What it says.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// The experiments of a directory at the scales of which there are `cells`.
///
/// # Errors
/// When one cannot be read.
pub fn plans(directory: &Path, cells: &[Cell]) -> Result<Vec<Plan>, PlanError> {
    let mut plans = Vec::new();
    for path in experiment_files(directory)? {
        let text = hankel_io::input::read_to_string(&path)?;
        let load = |overrides: &[String]| Experiment::load(&text, &path.display().to_string(), overrides);
        let experiment = load(&[])?.name;
        let own = cells.iter().filter(|cell| cell.id.experiment == experiment);
        for scale in own.map(|cell| cell.id.scale.clone()).collect::<BTreeSet<_>>() {
            let chosen: Vec<String> = scale.iter().map(|scale| format!("scale={scale}")).collect();
            plans.push(Plan { experiment: experiment.clone(), cells: load(&chosen)?.size(), scale });
        }
    }
    Ok(plans)
}

/// The experiment files of a directory, by name.
///
/// # Errors
/// When the directory cannot be read.
pub fn experiment_files(directory: &Path) -> Result<Vec<PathBuf>, PlanError> {
    let fail = |source| PlanError::Folder { path: directory.to_owned(), source };
    let entries = fs::read_dir(directory).map_err(fail)?;
    let mut files = entries.map(|entry| Ok(entry.map_err(fail)?.path())).collect::<Result<Vec<_>, PlanError>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    Ok(files)
}

impl Plan {
    /// The difference between the plan and what there is, in words; `None` where they agree.
    pub(crate) fn deviation(&self, cells: &[Cell]) -> Option<String> {
        let is_own = |cell: &&Cell| cell.id.experiment == self.experiment && cell.id.scale == self.scale;
        let found = cells.iter().filter(is_own).count();
        let planned = self.cells;
        let scale = self.scale.as_ref().map_or_else(String::new, |scale| format!(" at scale `{scale}`"));
        match found.cmp(&planned) {
            std::cmp::Ordering::Less => Some(format!("{found} of the {planned} runs planned{scale} are there")),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => {
                Some(format!("{} runs more than the {planned} planned{scale}", found - planned))
            }
        }
    }
}
