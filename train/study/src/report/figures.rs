//! Figures of truncation thresholds and sizes, and what compares experiments: the decay of Hankel singular values.

use super::experiment::{Experiment, Group, figures_of};
use crate::quantity::{larger, quantity};
use crate::statistics::Summary;
use hankel_plots::{Axis, Ink, Scale, Series, XyChart};
use hankel_trainer::format::{metric_label, metric_name};
use hankel_trainer::report::Figure;
use hankel_trainer::report::Section;
use hankel_trainer::results::AdapterResult;
use std::collections::{BTreeMap, BTreeSet};

/// Points of the grid that are drawn one by one, of those with the same metric.
const DRAWN: usize = 12;

/// The decay of the Hankel singular values in every task.
pub(super) fn across(experiments: &[Experiment]) -> Section {
    let mut chart = XyChart::new("Hankel singular values of trained adapters")
        .x(Axis::new("index i").integers())
        .y(Axis::new("σᵢ / σ₁").scale(Scale::Log10));
    let mut sources: Vec<&str> = Vec::new();
    for (slot, (task, experiment, line)) in decays(experiments).into_iter().enumerate() {
        // Bytes can be of any file; the experiment says of which.
        let label = if experiment.is_named("enwik8") { "enwik8" } else { task };
        chart = chart.series(Series::line_and_points(label, line).ink(Ink::Slot(slot)));
        if !sources.contains(&experiment.name.as_str()) {
            sources.push(&experiment.name);
        }
    }
    if sources.is_empty() {
        return Section::default();
    }
    let caption = format!(
        "Of gate · C relative to the largest of each layer: geometric mean over layers, seeds and the points of the grid with the most \
         states, of the first HRM adapter with positive poles. From {}.",
        sources.join(", ")
    );
    let figures = vec![Figure::xy("singular-values-by-task", caption, chart.horizontal_line(0.01, "ε = 0.01"))];
    Section { title: "Decay of the Hankel singular values".into(), figures, ..Section::default() }
}

/// Tasks in order of appearance, each with its decay in the experiment that is named after it, or the first that has one.
fn decays<'a>(experiments: &'a [Experiment]) -> Vec<(&'a str, &'a Experiment<'a>, Vec<(f64, f64)>)> {
    let mut tasks: Vec<&str> = Vec::new();
    for result in experiments.iter().flat_map(|experiment| &experiment.runs).filter_map(|run| run.cell.result.as_ref())
    {
        if !tasks.contains(&result.task.kind.as_str()) {
            tasks.push(&result.task.kind);
        }
    }
    let of = |task| {
        let home = match task {
            "bytes" => "enwik8",
            "quality" | "qmsum" | "narrativeqa" => "longbench",
            task => task,
        };
        let (own, others): (Vec<_>, Vec<_>) =
            experiments.iter().partition(|experiment: &&Experiment| experiment.is_named(home));
        own.into_iter().chain(others).find_map(|experiment| Some((task, experiment, decay(experiment, task)?)))
    };
    tasks.into_iter().filter_map(of).collect()
}

fn decay(experiment: &Experiment, task: &str) -> Option<Vec<(f64, f64)>> {
    // The settings of a row name its poles where they are not positive.
    let counts = |row: &&AdapterResult| {
        row.kind == "hrm"
            && row.derived_from().is_none()
            && !row.settings.contains(" poles")
            && row.layers.iter().any(|layer| !layer.hankel_singular_values.is_empty())
    };
    let runs =
        experiment.runs.iter().filter(|run| run.cell.result.as_ref().is_some_and(|result| result.task.kind == task));
    let rows = runs.flat_map(|run| run.rows()).filter(counts);
    let name = &rows.clone().next()?.name;
    let mut logs: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let layers = rows.filter(|row| row.name == *name).flat_map(|row| &row.layers);
    // A mean over systems of different sizes would jump where the smaller ones end.
    let most = layers.clone().map(|layer| layer.hankel_singular_values.len()).max();
    for layer in layers.filter(|layer| Some(layer.hankel_singular_values.len()) == most) {
        let Some(largest) = layer.hankel_singular_values.first().filter(|largest| **largest > 0.0) else { continue };
        for (i, value) in layer.hankel_singular_values.iter().enumerate() {
            logs.entry(i + 1).or_default().push((value / largest).ln());
        }
    }
    let mean = |(i, values): (&usize, &Vec<f64>)| Some((*i as f64, Summary::of(values)?.mean.exp()));
    Some(logs.iter().filter_map(mean).collect()).filter(|line: &Vec<_>| !line.is_empty())
}

/// Thresholds and sizes of an experiment.
pub(super) fn of(experiment: &Experiment) -> Vec<Figure> {
    let mut out = Vec::new();
    out.extend(thresholds(experiment, "order", "Order left by the threshold", "mean order per layer"));
    for (metric, part) in experiment.by_metric() {
        let title = format!("What the threshold costs in validation {}", metric_name(metric));
        let label = format!("{}, truncated less full", metric_label(metric));
        out.extend(thresholds(&part, metric, &title, &label));
        out.extend(figures_of(&part.groups(&[]), DRAWN, |group| {
            sizes(experiment, group, metric).into_iter().collect()
        }));
    }
    out.extend(exactness(experiment));
    out
}

/// Largest errors of the evaluations of the recurrence over the length of the sequences.
fn exactness(experiment: &Experiment) -> Option<Figure> {
    let mut chart = XyChart::new("Errors of the recurrence against double precision")
        .x(Axis::new("length").scale(Scale::Log2))
        .y(Axis::new("largest error").scale(Scale::Log10));
    let mut drawn = 0;
    for (slot, (what, label)) in ERRORS.into_iter().enumerate() {
        let mut lengths: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for result in experiment.runs.iter().filter_map(|run| run.cell.result.as_ref()) {
            let errors = result.rows.iter().filter_map(|row| quantity(result, &row.name, what));
            lengths.entry(result.task.sequence_length).or_default().extend(errors);
        }
        let worst = |(length, errors): (&usize, &Vec<f64>)| {
            Some((*length as f64, errors.iter().copied().reduce(larger).filter(|error| *error > 0.0)?))
        };
        let line: Vec<(f64, f64)> = lengths.iter().filter_map(worst).collect();
        drawn += line.len();
        chart = chart.series(Series::line_and_points(label, line).ink(Ink::Slot(slot)));
    }
    let chart = chart.horizontal_line(5e-6, "5e-6");
    let caption = "The largest over layers, random sequences and seeds: absolute, and relative to the largest output of the sequence.";
    (drawn > 0).then(|| Figure::xy(experiment.figure_name(&["exactness"]), caption, chart))
}

/// What is drawn of exactness.
const ERRORS: [(&str, &str); 6] = [
    ("fft_absolute_error", "FFT, absolute"),
    ("sequential_absolute_error", "step by step, absolute"),
    ("chunked_absolute_error", "in chunks, absolute"),
    ("fft_relative_error", "FFT, relative"),
    ("sequential_relative_error", "step by step, relative"),
    ("chunked_relative_error", "in chunks, relative"),
];

/// The value of `epsilon = 0.01` in a rule.
fn epsilon(row: &AdapterResult) -> Option<f64> {
    let value = row.truncation_rule.as_deref()?.strip_prefix("epsilon = ")?;
    value.parse().ok()
}

/// A quantity over the thresholds of truncated rows, a line per point of the grid and adapter; when there are three thresholds or more.
fn thresholds(experiment: &Experiment, what: &str, title: &str, label: &str) -> Option<Figure> {
    let axis = Axis::new("threshold ε of σᵢ / σ₁").scale(Scale::Log10);
    let mut chart = XyChart::new(title).x(axis).y(Axis::new(label));
    let mut drawn = 0;
    let rows = experiment.runs.iter().flat_map(|run| run.rows());
    let full: BTreeSet<&str> =
        rows.filter(|row| epsilon(row).is_some()).filter_map(|row| row.truncated_from.as_deref()).collect();
    let (groups, is_one) = (experiment.groups(&[]), full.len() < 2);
    let lines = groups.iter().flat_map(|group| full.iter().map(move |full| (group, *full)));
    for (slot, (group, full)) in lines.enumerate() {
        let mut points: Vec<(f64, Vec<f64>)> = Vec::new();
        for run in &group.runs {
            let Some(result) = &run.cell.result else { continue };
            for row in result.rows.iter().filter(|row| row.truncated_from.as_deref() == Some(full)) {
                let Some(threshold) = epsilon(row) else { continue };
                let own = quantity(result, &row.name, what);
                let value =
                    if what == "order" { own } else { own.zip(quantity(result, full, what)).map(|(a, b)| a - b) };
                match points.iter_mut().find(|(x, _)| *x == threshold) {
                    Some((_, values)) => values.extend(value),
                    None => points.push((threshold, value.into_iter().collect())),
                }
            }
        }
        if points.len() < 3 {
            continue;
        }
        drawn += 1;
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let line: Vec<(f64, Summary)> =
            points.iter().filter_map(|(x, values)| Some((*x, Summary::of(values)?))).collect();
        let deviations: Vec<f64> = line.iter().map(|(_, summary)| summary.sd.unwrap_or(f64::NAN)).collect();
        let of_group = if group.label.is_empty() { "all cells" } else { &group.label };
        let name = if is_one { of_group.to_owned() } else { format!("{full}, {of_group}") };
        let series = Series::line_and_points(&name, line.iter().map(|(x, summary)| (*x, summary.mean)));
        chart = chart.series(series.deviations(&deviations).ink(Ink::Slot(slot)));
    }
    let caption = "Mean over layers and seeds ± one standard deviation over seeds.";
    (drawn > 0).then(|| Figure::xy(experiment.figure_name(&["threshold", what]), caption, chart))
}

/// The primary metric over rank or state dimension; when a kind of adapter comes in three sizes or more, each of them once. Rows that share
/// ranks out among their layers have no size.
fn sizes(experiment: &Experiment, group: &Group, metric: &str) -> Option<Figure> {
    let mut kinds: BTreeMap<&str, BTreeMap<u64, Vec<f64>>> = BTreeMap::new();
    let rows: Vec<&AdapterResult> = group.runs.iter().flat_map(|run| run.rows()).collect();
    for row in rows.iter().filter(|row| row.derived_from().is_none()) {
        if let Some(size) = common_size(&row.name, &rows) {
            kinds.entry(&row.kind).or_default().entry(size).or_default().extend(row.validation.get(metric));
        }
    }
    // Two rows of one size differ in something else, and a mean over them would be of neither.
    let is_twice = |kind: &str| {
        let of_kind = rows.iter().filter(|row| row.kind == kind && row.derived_from().is_none());
        let mut named: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
        for row in of_kind {
            named.entry(common_size(&row.name, &rows).unwrap_or(0)).or_default().insert(&row.name);
        }
        named.iter().any(|(size, names)| *size > 0 && names.len() > 1)
    };
    kinds.retain(|kind, sizes| sizes.len() > 2 && !is_twice(kind));
    if kinds.is_empty() {
        return None;
    }
    let mut chart = XyChart::new(format!("Validation {} by size{}", metric_name(metric), group.title()))
        .x(Axis::new("rank, or number of states").scale(Scale::Log2))
        .y(Axis::new(metric_label(metric)));
    for (slot, (kind, sizes)) in kinds.iter().enumerate() {
        let line: Vec<(f64, Summary)> =
            sizes.iter().filter_map(|(size, values)| Some((*size as f64, Summary::of(values)?))).collect();
        let deviations: Vec<f64> = line.iter().map(|(_, summary)| summary.sd.unwrap_or(f64::NAN)).collect();
        let series = Series::line_and_points(*kind, line.iter().map(|(x, summary)| (*x, summary.mean)));
        chart = chart.series(series.deviations(&deviations).ink(Ink::Slot(slot)));
    }
    let name = experiment.figure_name(&["sizes", &group.label]);
    Some(Figure::xy(name, "Mean over seeds ± one standard deviation.", chart))
}

/// The rank or state dimension of a row, if it is the same in all layers and runs.
fn common_size(name: &str, rows: &[&AdapterResult]) -> Option<u64> {
    let layers = rows.iter().filter(|row| row.name == name).flat_map(|row| &row.layers);
    let mut orders = layers.map(|layer| layer.order as u64);
    let first = orders.next().filter(|order| *order > 0)?;
    orders.all(|order| order == first).then_some(first)
}
