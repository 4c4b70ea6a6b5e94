//! How many runs an experiment was to have: the grid of its file, which is committed before the results.

use crate::Cell;
use hankel_trainer::config::{ConfigError, Experiment, PlanText};
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
    /// What its file says of hypotheses, tests and stopping, if it does.
    pub text: Option<PlanText>,
}

/// An experiment that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file.
    #[error(transparent)]
    File(#[from] hankel_io::Error),
    /// The folder.
    #[error("cannot read {}: {reason}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// What it says.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// The experiments of a directory at the scales of which there are `cells`, or at their own where there are none.
///
/// # Errors
/// When one cannot be read.
pub fn plans(directory: &Path, cells: &[Cell]) -> Result<Vec<Plan>, PlanError> {
    let mut plans = Vec::new();
    for path in experiment_files(directory)? {
        let text = hankel_io::input::read_to_string(&path)?;
        let load = |overrides: &[String]| Experiment::load(&text, &path.display().to_string(), overrides);
        let loaded = load(&[])?;
        let own = cells.iter().filter(|cell| cell.id.experiment == loaded.name);
        let mut scales: BTreeSet<Option<String>> = own.map(|cell| cell.id.scale.clone()).collect();
        if scales.is_empty() {
            scales.insert(loaded.scale.clone());
        }
        for scale in scales {
            let chosen: Vec<String> = scale.iter().map(|scale| format!("scale={scale}")).collect();
            let (experiment, text) = (loaded.name.clone(), loaded.plan.clone());
            plans.push(Plan { experiment, cells: load(&chosen)?.size(), scale, text });
        }
    }
    Ok(plans)
}

/// The experiment files of a directory, by name.
///
/// # Errors
/// When the directory cannot be read.
pub fn experiment_files(directory: &Path) -> Result<Vec<PathBuf>, PlanError> {
    let fail = |reason| PlanError::Folder { path: directory.to_owned(), reason };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CellId;

    #[test]
    fn more_and_fewer_runs_than_planned_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = "name = \"e\"\n[sweep]\nscale = \"small\"\n[sweep.grid]\nseed = [0, 1]\n[sweep.scales.small]\n[task]\nkind = \"dfa\"\n";
        fs::write(directory.path().join("e.toml"), file).unwrap();
        let cell = |seed: usize| {
            let axes = vec![("seed".to_owned(), seed.to_string())];
            let id = CellId { experiment: "e".into(), scale: Some("small".into()), axes };
            Cell { id, diverged: None, result: None }
        };
        let deviation = |count: usize| {
            let cells: Vec<Cell> = (0..count).map(cell).collect();
            plans(directory.path(), &cells).unwrap()[0].deviation(&cells)
        };
        assert_eq!(deviation(0).as_deref(), Some("0 of the 2 runs planned at scale `small` are there"));
        assert_eq!(deviation(1).as_deref(), Some("1 of the 2 runs planned at scale `small` are there"));
        assert_eq!(deviation(2), None);
        assert_eq!(deviation(3).as_deref(), Some("1 runs more than the 2 planned at scale `small`"));
    }
}
