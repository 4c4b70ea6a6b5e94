//! Which runs an experiment was to have: the grid of its file, which is committed before the results.

use crate::Cell;
use hankel_trainer::config::{ConfigError, Experiment, PlanText};
use hankel_trainer::format::counted;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The runs of an experiment at a scale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Name of the experiment.
    pub experiment: String,
    /// The scale.
    pub scale: Option<String>,
    /// The cells of its grid: axes and values.
    pub cells: BTreeSet<Vec<(String, String)>>,
    /// What its file says of hypotheses, tests and stopping, if it does.
    pub text: Option<PlanText>,
    /// Whether several rows are trained, all of a cell at one learning rate: no row at its own best one.
    pub shares_rate: bool,
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
        let document: toml::Table = text.parse().unwrap_or_default();
        let loaded = load(&[])?;
        let own = cells.iter().filter(|cell| cell.id.experiment == loaded.name);
        let mut scales: BTreeSet<Option<String>> = own.map(|cell| cell.id.scale.clone()).collect();
        if scales.is_empty() {
            scales.insert(loaded.scale.clone());
        }
        for scale in scales {
            let chosen: Vec<String> = scale.iter().map(|scale| format!("scale={scale}")).collect();
            let (experiment, text) = (loaded.name.clone(), loaded.plan.clone());
            let cells = load(&chosen)?.cells()?.into_iter().map(|cell| sorted(cell.axes)).collect();
            let shares_rate = shares_rate(&document, scale.as_deref());
            plans.push(Plan { experiment, scale, cells, text, shares_rate });
        }
    }
    Ok(plans)
}

/// Whether several rows of an experiment are trained at a scale, and neither is any given a rate of its own nor has the grid several.
fn shares_rate(document: &toml::Table, scale: Option<&str>) -> bool {
    let table = |of: &toml::Table, key: &str| of.get(key).and_then(toml::Value::as_table).cloned().unwrap_or_default();
    let sweep = table(document, "sweep");
    let chosen = scale.map(|scale| table(&table(&sweep, "scales"), scale)).unwrap_or_default();
    let grids = [table(&sweep, "grid"), table(&chosen, "grid"), chosen.clone()];
    let has_rates = grids.iter().any(|grid| grid.get("train.lr").is_some_and(toml::Value::is_array));
    let given = chosen.keys().any(|key| key.starts_with("adapter.") && key.ends_with(".train.lr"));
    let adapters = document.get("adapter").and_then(toml::Value::as_array).cloned().unwrap_or_default();
    let adapters: Vec<toml::Table> = adapters.iter().filter_map(toml::Value::as_table).cloned().collect();
    let only = chosen.get("only").and_then(toml::Value::as_array);
    let is_trained = |adapter: &&toml::Table| {
        let kind = adapter.get("kind").and_then(toml::Value::as_str);
        let name = adapter.get("name").and_then(toml::Value::as_str).or(kind);
        kind != Some("none") && only.is_none_or(|only| only.iter().any(|one| one.as_str() == name))
    };
    let own = adapters.iter().any(|adapter| table(adapter, "train").contains_key("lr"));
    adapters.iter().filter(is_trained).count() > 1 && !has_rates && !given && !own
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
        let found = self.found(cells);
        let there = self.cells.iter().filter(|planned| found.contains(*planned)).count();
        let (planned, more) = (self.cells.len(), found.len() - there);
        let scale = self.scale.as_ref().map_or_else(String::new, |scale| format!(" at scale `{scale}`"));
        let missing = (there < planned).then(|| format!("{there} of the {planned} runs planned{scale} are there"));
        let unplanned = (more > 0).then(|| format!("{} beside those planned{scale}", counted(more, "run")));
        let parts: Vec<String> = [missing, unplanned].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Whether this run was planned.
    pub(crate) fn has(&self, cell: &Cell) -> bool {
        self.cells.contains(&sorted(cell.id.axes.clone()))
    }

    /// Whether every run that was planned is there, if only as one that diverged.
    pub(crate) fn is_complete(&self, cells: &[Cell]) -> bool {
        self.cells.is_subset(&self.found(cells))
    }

    fn found(&self, cells: &[Cell]) -> BTreeSet<Vec<(String, String)>> {
        let own = cells.iter().filter(|cell| cell.id.experiment == self.experiment && cell.id.scale == self.scale);
        own.map(|cell| sorted(cell.id.axes.clone())).collect()
    }
}

fn sorted(mut axes: Vec<(String, String)>) -> Vec<(String, String)> {
    axes.sort();
    axes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CellId;

    #[test]
    fn more_and_fewer_runs_than_planned_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = "name = \"e\"\n[sweep]\nscale = \"small\"\n[sweep.grid]\nseed = [0, 1]\n[sweep.scales.small]\n[task]\nkind = \"dfa\"\n[[adapter]]\nkind = \"none\"\n";
        fs::write(directory.path().join("e.toml"), file).unwrap();
        let cell = |seed: usize| {
            let axes = vec![("seed".to_owned(), seed.to_string())];
            let id = CellId { experiment: "e".into(), scale: Some("small".into()), axes };
            Cell { id, ..Cell::default() }
        };
        let deviation = |count: usize| {
            let cells: Vec<Cell> = (0..count).map(cell).collect();
            plans(directory.path(), &cells).unwrap()[0].deviation(&cells)
        };
        assert_eq!(deviation(0).as_deref(), Some("0 of the 2 runs planned at scale `small` are there"));
        assert_eq!(deviation(1).as_deref(), Some("1 of the 2 runs planned at scale `small` are there"));
        assert_eq!(deviation(2), None);
        assert_eq!(deviation(3).as_deref(), Some("1 run beside those planned at scale `small`"));
        let other: Vec<Cell> = [0, 7].map(cell).into();
        let plan = &plans(directory.path(), &other).unwrap()[0];
        let told = "1 of the 2 runs planned at scale `small` are there; 1 run beside those planned at scale `small`";
        assert!(plan.deviation(&other).as_deref() == Some(told) && !plan.is_complete(&other));
    }
}
