//! The cells of an experiment, and how they are grouped over the grid.

use super::CellRun;
use crate::{Cell, SEED, measure};
use hankel_trainer::format::file_stem;
use hankel_trainer::report::Figure;

/// Cells that differ in nothing but the seed.
pub(super) struct Group<'a> {
    /// What it is on the grid: `length 64, protocol frozen`.
    pub label: String,
    pub runs: Vec<&'a CellRun>,
}

impl Group<'_> {
    /// What a title says of it.
    pub(super) fn title(&self) -> String {
        if self.label.is_empty() { String::new() } else { format!(" · {}", self.label) }
    }
}

/// The cells of an experiment at one scale, or those of them that are compared by the same metric.
pub(super) struct Experiment<'a> {
    /// Its name with the scale.
    pub name: String,
    pub runs: Vec<&'a CellRun>,
    /// Axes along which the cells of the whole experiment differ.
    varying: Vec<String>,
}

impl<'a> Experiment<'a> {
    pub(super) fn all(runs: &'a [CellRun]) -> Vec<Self> {
        let mut experiments: Vec<Experiment> = Vec::new();
        for run in runs {
            let name = run.cell.id.directory();
            match experiments.iter_mut().find(|experiment| experiment.name == name) {
                Some(experiment) => experiment.runs.push(run),
                None => experiments.push(Experiment { name, runs: vec![run], varying: Vec::new() }),
            }
        }
        for experiment in &mut experiments {
            experiment.runs.sort_by_key(|run| run.cell.id.order());
            experiment.varying = experiment.axes().into_iter().map(|(name, _)| name).collect();
        }
        experiments
    }

    /// Whether its name without the scale is `name`.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.cells().first().is_some_and(|cell| cell.id.experiment == name)
    }

    pub(super) fn cells(&self) -> Vec<&'a Cell> {
        self.runs.iter().map(|run| &run.cell).collect()
    }

    /// Axes with several values, and these.
    pub(super) fn axes(&self) -> Vec<(String, Vec<String>)> {
        measure::axes(&self.cells())
    }

    /// Its finished cells by the metric that their rows are compared by: a grid over tasks can have several.
    pub(super) fn by_metric(&self) -> Vec<(&'a str, Self)> {
        let mut parts: Vec<(&str, Experiment)> = Vec::new();
        for &run in &self.runs {
            let Some(result) = &run.cell.result else { continue };
            let metric = result.task.primary_metric.as_str();
            if let Some((_, part)) = parts.iter_mut().find(|(own, _)| *own == metric) {
                part.runs.push(run);
            } else {
                let part = Experiment { name: self.name.clone(), runs: vec![run], varying: self.varying.clone() };
                parts.push((metric, part));
            }
        }
        parts
    }

    /// Its cells, those that differ in the seed and in the axes `along` taken together, in order of appearance.
    pub(super) fn groups(&self, along: &[&str]) -> Vec<Group<'a>> {
        let but: Vec<&str> = along.iter().copied().chain([SEED]).collect();
        let mut groups: Vec<Group> = Vec::new();
        for &run in &self.runs {
            let names = run.cell.id.axes.iter().map(|(name, _)| name.as_str());
            let fixed = names.filter(|name| !self.varying.iter().any(|own| own == name));
            let hidden: Vec<&str> = but.iter().copied().chain(fixed).collect();
            let label = run.cell.id.describe(&hidden);
            match groups.iter_mut().find(|group| group.label == label) {
                Some(group) => group.runs.push(run),
                None => groups.push(Group { label, runs: vec![run] }),
            }
        }
        groups
    }

    /// The name of a figure: the experiment's, and what the figure shows.
    pub(super) fn figure_name(&self, parts: &[&str]) -> String {
        let named = parts.iter().filter(|part| !part.is_empty()).map(|part| file_stem(part));
        [file_stem(&self.name)].into_iter().chain(named).collect::<Vec<_>>().join("-")
    }
}

/// The figures of up to `most` groups; the last of them says how many groups have theirs left out.
pub(super) fn figures_of(groups: &[Group], most: usize, figures: impl Fn(&Group) -> Vec<Figure>) -> Vec<Figure> {
    let all: Vec<Vec<Figure>> = groups.iter().map(figures).filter(|figures| !figures.is_empty()).collect();
    let left_out = all.len().saturating_sub(most);
    let mut drawn: Vec<Figure> = all.into_iter().take(most).flatten().collect();
    if let Some(last) = drawn.last_mut().filter(|_| left_out > 0) {
        let points = if left_out == 1 { "1 more point".to_owned() } else { format!("{left_out} more points") };
        last.caption = format!("{} {points} of the grid: not drawn.", last.caption);
    }
    drawn
}
