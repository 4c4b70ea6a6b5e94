//! Learning curves: means over seeds with a band of one standard deviation.

use super::{Experiment, Group};
use crate::report::figure::Figure;
use crate::report::format::{file_stem, metric_label, metric_name};
use crate::results::{Event, PRETRAIN, Split};
use crate::statistics::Summary;
use hankel_plots::{Axis, Ink, Series, XyChart};
use std::collections::BTreeMap;

/// Points of the grid that are drawn.
const DRAWN: usize = 4;
/// More rows than this are not told apart.
const ROWS: usize = 7;

pub(super) fn figures(experiment: &Experiment) -> Vec<Figure> {
    let groups = experiment.groups(&[]);
    groups.iter().take(DRAWN).filter_map(|group| figure(experiment, group)).collect()
}

fn figure(experiment: &Experiment, group: &Group) -> Option<Figure> {
    let names = experiment.rows(false);
    let primary = experiment.primary();
    let at = if group.label.is_empty() { String::new() } else { format!(" · {}", group.label) };
    let mut chart = XyChart::new(format!("Validation {} while training{at}", metric_name(primary)))
        .x(Axis::new("optimizer step").integers())
        .y(Axis::new(metric_label(primary)));
    let mut drawn = 0;
    for (slot, name) in names.iter().enumerate().filter(|(_, name)| **name != PRETRAIN) {
        let mut values: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for event in group.runs.iter().flat_map(|run| &run.events) {
            let Event::Eval { stage, step, split: Split::Validation, scores, .. } = event else { continue };
            if stage == name {
                values.entry(*step).or_default().extend(scores.get(primary));
            }
        }
        let means: Vec<(f64, Summary)> =
            values.iter().filter_map(|(step, values)| Some((*step as f64, Summary::of(values)?))).collect();
        if means.len() < 2 || drawn == ROWS {
            continue;
        }
        drawn += 1;
        let deviations: Vec<f64> = means.iter().map(|(_, summary)| summary.sd.unwrap_or(0.0)).collect();
        let line =
            Series::line(*name, means.iter().map(|(step, summary)| (*step, summary.mean))).deviations(&deviations);
        chart = chart.series(line.ink(Ink::Slot(slot)));
    }
    let name = format!("{}-curves-{}", experiment.stem(), file_stem(&group.label));
    let caption = "Mean over seeds, band: one standard deviation. On the sequences that are looked at during training.";
    (drawn > 0).then(|| Figure::xy(name, caption, chart))
}
