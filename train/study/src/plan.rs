//! Which runs an experiment was to have: the grid of its file, which is committed before the results.

use crate::Cell;
use hankel_trainer::config::{ConfigError, Experiment, PlanText};
use hankel_trainer::format::counted;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A rate below this leaves an adapter as it is drawn.
const NO_RATE: f64 = 1e-9;

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
    /// Whether several adapters are trained, all of a cell at one learning rate: none at its own best one.
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

/// Whether several adapters of an experiment are trained at a scale, and neither is any given a rate of its own nor has the grid several. The rate
/// of a backbone that is trained further (`full`), of `none` and of a control that is left as it was drawn is no adapter's.
fn shares_rate(document: &toml::Table, scale: Option<&str>) -> bool {
    let table = |of: &toml::Table, key: &str| of.get(key).and_then(toml::Value::as_table).cloned().unwrap_or_default();
    let sweep = table(document, "sweep");
    let chosen = scale.map(|scale| table(&table(&sweep, "scales"), scale)).unwrap_or_default();
    let grids = [table(&sweep, "grid"), table(&chosen, "grid"), chosen.clone()];
    let has_rates = grids.iter().any(|grid| grid.get("train.lr").is_some_and(toml::Value::is_array));
    let adapters = document.get("adapter").and_then(toml::Value::as_array).cloned().unwrap_or_default();
    let adapters: Vec<toml::Table> = adapters.iter().filter_map(toml::Value::as_table).cloned().collect();
    let only = chosen.get("only").and_then(toml::Value::as_array);
    let name = |adapter: &toml::Table| {
        let text = |key: &str| adapter.get(key)?.as_str().map(str::to_owned);
        text("name").or_else(|| text("kind")).unwrap_or_default()
    };
    let own = |adapter: &toml::Table| {
        let own = table(adapter, "train").remove("lr");
        chosen.get(&format!("adapter.{}.train.lr", name(adapter))).cloned().or(own)
    };
    let is_trained = |adapter: &&toml::Table| {
        let kind = adapter.get("kind").and_then(toml::Value::as_str).unwrap_or_default();
        let is_drawn = own(adapter).and_then(|lr| lr.as_float()).is_some_and(|lr| lr < NO_RATE);
        let is_chosen = only.is_none_or(|only| only.iter().any(|one| one.as_str() == Some(&name(adapter))));
        !["none", "full"].contains(&kind) && !is_drawn && is_chosen
    };
    let trained: Vec<&toml::Table> = adapters.iter().filter(is_trained).collect();
    trained.len() > 1 && !has_rates && trained.iter().all(|adapter| own(adapter).is_none())
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
    pub fn deviation(&self, cells: &[Cell]) -> Option<String> {
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

    /// Rates of `none`, of a backbone trained further and of what is left as drawn are no rates of adapters; a row's own one, and a grid, are.
    #[test]
    fn a_shared_rate_is_that_of_the_adapters() {
        let shares = |scale: &str, hrm: &str| {
            let text = format!(
                "[sweep.scales.a]\n{scale}\n[[adapter]]\nkind = \"none\"\n[[adapter]]\nkind = \"full\"\n[adapter.train]\nlr = 1e-3\n\
                 [[adapter]]\nkind = \"hrm\"\n{hrm}\n[[adapter]]\nkind = \"lora\"\n[[adapter]]\nkind = \"hrm\"\nname = \"drawn\"\n[adapter.train]\nlr = 1e-12\n"
            );
            shares_rate(&text.parse().unwrap(), Some("a"))
        };
        assert!(shares("\"adapter.none.train.lr\" = 3e-2\n\"train.lr\" = 1e-2", ""));
        assert!(!shares("\"adapter.hrm.train.lr\" = 1e-2", ""));
        assert!(!shares("", "[adapter.train]\nlr = 1e-2"));
        assert!(!shares("\"train.lr\" = [1e-3, 1e-2]", ""));
        assert!(!shares("only = [\"none\", \"hrm\", \"full\", \"drawn\"]", ""));
    }

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
