//! Studies: sweeps over grids of configurations, what their cells measured, and what that says about the paper's claims.
//!
//! A sweep leaves in each cell's run directory which experiment it belongs to and its grid point ([`CellId`],
//! `cell.json`). [`Cell`] is that with the run's result; cells are gathered from run directories or read from the files of
//! `docs/results`, one line of JSON each, and everything else (tables, claims, the audit) is computed from them.

#![warn(unreachable_pub)]

pub mod audit;
mod bootstrap;
pub mod claims;
pub mod experiment_header;
mod files;
mod measure;
mod plan;
pub mod report;
mod run_directories;
mod statistics;
pub mod sweep;
#[cfg(test)]
mod testing;

pub use files::{FileError, read_results, write_results};
pub use plan::{Plan, PlanError, experiment_files, plans};

use hankel_trainer::results::RunResult;
use serde::{Deserialize, Serialize};

/// Name of the file in a cell's run directory.
pub const CELL_FILE: &str = "cell.json";
/// The axis over which repetitions differ.
pub const SEED: &str = "seed";
/// The scale that shows that an experiment runs, and nothing else.
pub const SMOKE: &str = "smoke";

/// The experiment and grid point of a cell: contents of `cell.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellId {
    /// Name of the experiment.
    pub experiment: String,
    /// Its scale, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<String>,
    /// The axes of the grid by their short names, and this cell's value of each.
    pub axes: Vec<(String, String)>,
}

/// A cell and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Its experiment and grid point.
    #[serde(flatten)]
    pub id: CellId,
    /// Why training stopped, when it reached a non-finite value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diverged: Option<String>,
    /// The figures; absent when it diverged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RunResult>,
}

impl CellId {
    /// This cell's value of an axis.
    pub fn axis(&self, name: &str) -> Option<&str> {
        self.axes.iter().find(|(axis, _)| axis == name).map(|(_, value)| value.as_str())
    }

    /// The axes other than those in `but` in a few words: `length 64, protocol frozen`; empty when there are none.
    pub fn describe(&self, but: &[&str]) -> String {
        let others = self.axes.iter().filter(|(name, _)| !but.contains(&name.as_str()));
        others.map(|(name, value)| format!("{} {value}", name.replace('-', " "))).collect::<Vec<_>>().join(", ")
    }

    /// What cells of an experiment are sorted by: numbers by size, before words.
    pub fn order(&self) -> Vec<(u64, String)> {
        let of = |value: &str| {
            let number = value.parse::<f64>().ok().filter(|number| *number >= 0.0);
            // The bits of numbers that are not negative are in their order.
            (number.map_or(u64::MAX, f64::to_bits), value.to_owned())
        };
        self.axes.iter().map(|(_, value)| of(value)).collect()
    }

    /// Name of the directory of its experiment at this scale.
    pub fn directory(&self) -> String {
        self.scale.as_ref().map_or_else(|| self.experiment.clone(), |scale| format!("{}-{scale}", self.experiment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// `train audit` was run after the last change of results, claims or words.
    #[test]
    fn pages_are_what_the_results_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let cells = read_results(&root.join("docs/results")).unwrap();
        let claims = claims::all();
        let page = fs::read_to_string(root.join("docs/reproduction.md")).unwrap();
        let plans = plans(&root.join("train/experiments/paper"), &cells).unwrap();
        assert!(
            page == audit::audit(&claims, &cells, &plans),
            "docs/reproduction.md is not up to date: run `train audit`"
        );
        for entry in fs::read_dir(root.join("train/experiments/paper")).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let rewritten = experiment_header::rewrite(&text, &claims, &cells).unwrap();
            assert!(rewritten == Some(text), "the head of {} is not up to date: run `train audit`", path.display());
        }
    }
}
