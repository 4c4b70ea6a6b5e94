//! The report of experiments: cells of sweeps, repeated over seeds, as means with their deviations.

mod axes;
mod claims;
mod curves;
mod figures;
mod layers;
mod table;

use super::Section;
use super::run::Run;
use crate::study::{Cell, SEED};

pub(super) use claims::section as claims;

/// Cells that differ in nothing but the seed.
struct Group<'a> {
    /// What it is on the grid: `length 64, protocol frozen`.
    label: String,
    runs: Vec<&'a Run>,
}

/// The cells of an experiment at one scale.
struct Experiment<'a> {
    /// Its name with the scale.
    name: String,
    runs: Vec<&'a Run>,
}

impl<'a> Experiment<'a> {
    fn all(runs: &'a [Run]) -> Vec<Self> {
        let mut experiments: Vec<Experiment> = Vec::new();
        for run in runs {
            let Some(cell) = &run.cell else { continue };
            let name = cell.place.directory();
            match experiments.iter_mut().find(|experiment| experiment.name == name) {
                Some(experiment) => experiment.runs.push(run),
                None => experiments.push(Experiment { name, runs: vec![run] }),
            }
        }
        for experiment in &mut experiments {
            experiment.runs.sort_by_key(|run| run.cell.as_ref().map(|cell| cell.place.order()));
        }
        experiments
    }

    fn cells(&self) -> Vec<&'a Cell> {
        self.runs.iter().filter_map(|run| run.cell.as_ref()).collect()
    }

    /// Its cells, those that differ in the seed and in the axes `along` taken together, in order of appearance.
    fn groups(&self, along: &[&str]) -> Vec<Group<'a>> {
        let but: Vec<&str> = along.iter().copied().chain([SEED]).collect();
        let varying: Vec<String> =
            crate::study::measure::axes(&self.cells()).into_iter().map(|(name, _)| name).collect();
        let mut groups: Vec<Group> = Vec::new();
        for &run in &self.runs {
            let Some(cell) = &run.cell else { continue };
            let fixed =
                cell.place.axes.iter().map(|(name, _)| name.as_str()).filter(|name| !varying.iter().any(|v| v == name));
            let hidden: Vec<&str> = but.iter().copied().chain(fixed).collect();
            let label = cell.place.describe(&hidden);
            match groups.iter_mut().find(|group| group.label == label) {
                Some(group) => group.runs.push(run),
                None => groups.push(Group { label, runs: vec![run] }),
            }
        }
        groups
    }

    /// Names of rows, as they first appear: full ones only, or all.
    fn rows(&self, truncated: bool) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        let rows = self.runs.iter().flat_map(|run| run.rows());
        for row in rows.filter(|row| truncated || row.derived_from().is_none()) {
            if !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        names
    }

    /// The metric by which rows are compared.
    fn primary(&self) -> &'a str {
        self.runs.iter().find_map(|run| run.result.as_ref()).map_or("loss", |result| &result.task.primary_metric)
    }

    /// The beginning of its figures' names.
    fn stem(&self) -> String {
        super::format::file_stem(&self.name)
    }
}

/// A section per experiment, and before them what compares experiments.
pub(super) fn sections(runs: &[Run]) -> Vec<Section> {
    let experiments = Experiment::all(runs);
    let mut sections = vec![figures::across(&experiments)];
    for experiment in &experiments {
        let (html, details) = table::section(experiment);
        let mut drawn = curves::figures(experiment);
        drawn.extend(axes::figures(experiment));
        drawn.extend(figures::of(experiment));
        drawn.extend(layers::figures(experiment));
        sections.push(Section { title: experiment.name.clone(), html, figures: drawn, details });
    }
    sections
}
