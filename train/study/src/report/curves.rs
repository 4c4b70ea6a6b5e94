//! Learning curves: means over seeds with a band of one standard deviation.

use super::experiment::{Experiment, Group, figures_of};
use super::rows::{Row, share};
use crate::statistics::Summary;
use hankel_plots::{Axis, Series, XyChart};
use hankel_trainer::format::{metric_label, metric_name};
use hankel_trainer::report::Figure;
use hankel_trainer::results::{Event, Split};
use std::collections::BTreeMap;

/// Points of the grid that are drawn, of those with the same metric.
const DRAWN: usize = 12;

pub(super) fn figures(experiment: &Experiment) -> Vec<Figure> {
    let of = |(metric, part): &(&str, Experiment)| {
        figures_of(&part.groups(&[]), DRAWN, |group| of_group(experiment, group, metric))
    };
    experiment.by_metric().iter().flat_map(of).collect()
}

fn of_group(experiment: &Experiment, group: &Group, metric: &str) -> Vec<Figure> {
    let trained = experiment.rows().into_iter().filter(|row| row.first.derived_from().is_none());
    let lines: Vec<(Row, Vec<(f64, Summary)>)> =
        trained.filter_map(|row| Some((row, curve(group, &row.first.name, metric)?))).collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let mut figures = Vec::new();
    for part in share(lines.iter().map(|(row, _)| *row).collect()) {
        let title = format!("Validation {} while training{}{}", metric_name(metric), group.title(), part.title);
        let mut chart =
            XyChart::new(title).x(Axis::new("optimizer step").integers()).y(Axis::new(metric_label(metric)));
        for (row, line) in &lines {
            let Some(ink) = part.ink(row) else { continue };
            let deviations: Vec<f64> = line.iter().map(|(_, summary)| summary.sd.unwrap_or(f64::NAN)).collect();
            let line = Series::line(&row.first.name, line.iter().map(|(step, summary)| (*step, summary.mean)));
            chart = chart.series(line.deviations(&deviations).ink(ink));
        }
        let name = experiment.figure_name(&["curves", &group.label, &part.file]);
        let caption = "Mean over seeds, band: one standard deviation. On the sequences that are scored during training, the last point on the whole split.";
        figures.push(Figure::xy(name, caption, chart));
    }
    figures
}

/// A metric over the steps of a stage; when it was evaluated more than once.
fn curve(group: &Group, name: &str, metric: &str) -> Option<Vec<(f64, Summary)>> {
    let mut values: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for event in group.runs.iter().flat_map(|run| &run.events) {
        let Event::Eval { stage, step, split: Split::Validation, scores, .. } = event else { continue };
        if stage == name {
            values.entry(*step).or_default().extend(scores.get(metric));
        }
    }
    let means: Vec<(f64, Summary)> =
        values.iter().filter_map(|(step, values)| Some((*step as f64, Summary::of(values)?))).collect();
    (means.len() > 1).then_some(means)
}
