//! The report of experiments: cells of sweeps, repeated over seeds, as means with their deviations.

mod axes;
mod claims;
mod curves;
mod figures;
mod layers;
mod rows;
mod table;
#[cfg(test)]
mod tests;

use super::Section;
use super::figure::Figure;
use super::format::file_stem;
use super::run::Run;
use crate::study::{Cell, SEED, measure};

pub(super) use claims::section as claims;

/// Cells that differ in nothing but the seed.
struct Group<'a> {
    /// What it is on the grid: `length 64, protocol frozen`.
    label: String,
    runs: Vec<&'a Run>,
}

impl Group<'_> {
    /// What a title says of it.
    fn title(&self) -> String {
        if self.label.is_empty() { String::new() } else { format!(" · {}", self.label) }
    }
}

/// The cells of an experiment at one scale, or those of them that are compared by the same metric.
struct Experiment<'a> {
    /// Its name with the scale.
    name: String,
    runs: Vec<&'a Run>,
    /// Axes along which the cells of the whole experiment differ.
    varying: Vec<String>,
}

impl<'a> Experiment<'a> {
    fn all(runs: &'a [Run]) -> Vec<Self> {
        let mut experiments: Vec<Experiment> = Vec::new();
        for run in runs {
            let Some(cell) = &run.cell else { continue };
            let name = cell.place.directory();
            match experiments.iter_mut().find(|experiment| experiment.name == name) {
                Some(experiment) => experiment.runs.push(run),
                None => experiments.push(Experiment { name, runs: vec![run], varying: Vec::new() }),
            }
        }
        for experiment in &mut experiments {
            experiment.runs.sort_by_key(|run| run.cell.as_ref().map(|cell| cell.place.order()));
            experiment.varying = experiment.axes().into_iter().map(|(name, _)| name).collect();
        }
        experiments
    }

    /// Whether its name without the scale is `name`.
    fn is_named(&self, name: &str) -> bool {
        self.cells().first().is_some_and(|cell| cell.place.experiment == name)
    }

    fn cells(&self) -> Vec<&'a Cell> {
        self.runs.iter().filter_map(|run| run.cell.as_ref()).collect()
    }

    /// Axes with several values, and these.
    fn axes(&self) -> Vec<(String, Vec<String>)> {
        measure::axes(&self.cells())
    }

    /// Its finished cells by the metric that their rows are compared by: a grid over tasks can have several.
    fn by_metric(&self) -> Vec<(&'a str, Self)> {
        let mut parts: Vec<(&str, Experiment)> = Vec::new();
        for &run in &self.runs {
            let Some(result) = &run.result else { continue };
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
    fn groups(&self, along: &[&str]) -> Vec<Group<'a>> {
        let but: Vec<&str> = along.iter().copied().chain([SEED]).collect();
        let mut groups: Vec<Group> = Vec::new();
        for &run in &self.runs {
            let Some(cell) = &run.cell else { continue };
            let names = cell.place.axes.iter().map(|(name, _)| name.as_str());
            let fixed = names.filter(|name| !self.varying.iter().any(|own| own == name));
            let hidden: Vec<&str> = but.iter().copied().chain(fixed).collect();
            let label = cell.place.describe(&hidden);
            match groups.iter_mut().find(|group| group.label == label) {
                Some(group) => group.runs.push(run),
                None => groups.push(Group { label, runs: vec![run] }),
            }
        }
        groups
    }

    /// The name of a figure: the experiment's, and what the figure shows.
    fn figure_name(&self, parts: &[&str]) -> String {
        let named = parts.iter().filter(|part| !part.is_empty()).map(|part| file_stem(part));
        [file_stem(&self.name)].into_iter().chain(named).collect::<Vec<_>>().join("-")
    }
}

/// The figures of up to `most` groups; the last of them says how many groups have theirs left out.
fn figures_of(groups: &[Group], most: usize, figures: impl Fn(&Group) -> Vec<Figure>) -> Vec<Figure> {
    let all: Vec<Vec<Figure>> = groups.iter().map(figures).filter(|figures| !figures.is_empty()).collect();
    let left_out = all.len().saturating_sub(most);
    let mut drawn: Vec<Figure> = all.into_iter().take(most).flatten().collect();
    if let Some(last) = drawn.last_mut().filter(|_| left_out > 0) {
        let points = if left_out == 1 { "1 more point".to_owned() } else { format!("{left_out} more points") };
        last.caption = format!("{} {points} of the grid: not drawn.", last.caption);
    }
    drawn
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
