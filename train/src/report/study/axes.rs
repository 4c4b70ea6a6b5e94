//! Figures of rows along the axes of the grid: lines where its values are numbers, bars where they are names.

use super::{Experiment, Group};
use crate::report::figure::Figure;
use crate::report::format::{file_stem, metric_label, metric_name};
use crate::results::metric;
use crate::statistics::Summary;
use crate::study::measure::{axes, quantity};
use hankel_plots::{Axis, BarChart, Ink, Scale, Series, XyChart};

/// Figures of one quantity along one axis, for the first points of the other axes.
const DRAWN: usize = 3;
/// Rows that are told apart in one figure.
const ROWS: usize = 7;

pub(super) fn figures(experiment: &Experiment) -> Vec<Figure> {
    let mut out = Vec::new();
    for (axis, values) in axes(&experiment.cells()) {
        for group in experiment.groups(&[&axis]).iter().take(DRAWN) {
            out.extend(along(experiment, group, &axis, &values, experiment.primary()));
        }
        if axis == "length" {
            out.extend(along(
                experiment,
                &Group { label: String::new(), runs: experiment.runs.clone() },
                &axis,
                &values,
                "seconds_per_step",
            ));
        }
    }
    out
}

/// Of a group that holds all values of `axis`.
fn along(experiment: &Experiment, group: &Group, axis: &str, values: &[String], what: &str) -> Option<Figure> {
    let all = experiment.rows(true);
    let rows = if all.len() <= ROWS { all } else { experiment.rows(false) };
    let at = |row: &str, value: &str| {
        let here = group.runs.iter().filter(|run| run.cell.as_ref().is_some_and(|c| c.place.axis(axis) == Some(value)));
        let figures = here.filter_map(|run| quantity(run.result.as_ref()?, row, what));
        Summary::of(&figures.collect::<Vec<_>>())
    };
    let words = if what == "seconds_per_step" { "seconds per step".to_owned() } else { metric_name(what) };
    let label = if what == "seconds_per_step" { "seconds per step".to_owned() } else { metric_label(what) };
    let axis_words = axis.replace('-', " ");
    let place = if group.label.is_empty() { String::new() } else { format!(" · {}", group.label) };
    let title = format!("{}{} by {axis_words}{place}", words[..1].to_uppercase(), &words[1..]);
    let name = format!("{}-{}-by-{}-{}", experiment.stem(), file_stem(what), file_stem(axis), file_stem(&group.label));
    let caption = "Mean over seeds ± one standard deviation.";
    let numbers: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok().filter(|v: &f64| *v > 0.0)).collect();
    let rows: Vec<&str> =
        rows.into_iter().filter(|row| values.iter().any(|value| at(row, value).is_some())).take(ROWS).collect();
    if rows.is_empty() {
        return None;
    }
    let Some(numbers) = numbers else {
        let mut chart = BarChart::new(title, values.iter().cloned()).x_label(axis_words).y(Axis::new(label));
        for (slot, row) in rows.iter().enumerate() {
            let summaries: Vec<Option<Summary>> = values.iter().map(|value| at(row, value)).collect();
            let means = summaries.iter().map(|s| s.map_or(f64::NAN, |s| s.mean));
            let deviations = summaries.iter().map(|s| s.and_then(|s| s.sd).unwrap_or(0.0));
            chart = chart.inked_bars(*row, means, Ink::Slot(slot)).deviations(deviations);
        }
        return Some(Figure::bar(name, caption, chart));
    };
    let mut points: Vec<(f64, &String)> = numbers.into_iter().zip(values).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut chart = XyChart::new(title).x(Axis::new(axis_words).scale(Scale::Log2)).y(Axis::new(label));
    for (slot, row) in rows.iter().enumerate() {
        let line: Vec<(f64, Summary)> = points.iter().filter_map(|(x, value)| Some((*x, at(row, value)?))).collect();
        let deviations: Vec<f64> = line.iter().map(|(_, summary)| summary.sd.unwrap_or(0.0)).collect();
        let line = Series::line_and_points(*row, line.iter().map(|(x, summary)| (*x, summary.mean)));
        chart = chart.series(line.deviations(&deviations).ink(Ink::Slot(slot)));
    }
    if what == metric::ACCURACY {
        for window in ["window_1", "window_4"] {
            let line: Vec<(f64, f64)> =
                points.iter().filter_map(|(x, value)| Some((*x, at(window, value)?.mean))).collect();
            if !line.is_empty() {
                chart = chart.series(Series::line(window.replace('_', " "), line).ink(Ink::Muted));
            }
        }
    }
    Some(Figure::xy(name, caption, chart))
}
