//! Figures of rows along the axes of the grid: lines where its values are numbers, bars where they are names.

use super::CellRun;
use super::experiment::{Experiment, Group, figures_of};
use super::rows::{Row, Share, share};
use crate::quantity::quantity;
use crate::statistics::Summary;
use hankel_plots::{Axis, BarChart, Ink, Scale, Series, XyChart};
use hankel_trainer::format::{capitalised, metric_label, metric_name};
use hankel_trainer::report::Figure;
use hankel_trainer::results::metric;

/// Points of the other axes for which one axis is drawn.
const DRAWN: usize = 12;
const CAPTION: &str = "Mean over seeds ± one standard deviation.";
/// The quantity that is not measured on a split.
const SECONDS: &str = "seconds_per_step";
/// Growth of the steps between values from which on they stand at equal ratios.
const GROWTH: f64 = 3.0;

pub(super) fn figures(experiment: &Experiment) -> Vec<Figure> {
    let mut out = Vec::new();
    for (metric, part) in experiment.by_metric() {
        for (axis, values) in part.axes() {
            let groups = part.groups(&[&axis]);
            out.extend(figures_of(&groups, DRAWN, |group| {
                Along { experiment, group, axis: &axis, values: &values, what: metric }.figures()
            }));
        }
    }
    for (axis, values) in experiment.axes().iter().filter(|(axis, _)| axis == "length") {
        out.extend(figures_of(&experiment.groups(&[axis]), DRAWN, |group| {
            Along { experiment, group, axis, values, what: SECONDS }.figures()
        }));
    }
    out
}

/// A quantity along an axis.
struct Along<'a> {
    experiment: &'a Experiment<'a>,
    /// Cells with all values of the axis.
    group: &'a Group<'a>,
    axis: &'a str,
    values: &'a [String],
    what: &'a str,
}

impl Along<'_> {
    fn figures(&self) -> Vec<Figure> {
        let is_known = |row: &Row| self.values.iter().any(|value| self.at(&row.first.name, value).is_some());
        let rows: Vec<Row> = self.experiment.rows().into_iter().filter(is_known).collect();
        if rows.is_empty() {
            return Vec::new();
        }
        let number = |value: &String| value.parse().ok().filter(|v: &f64| *v > 0.0);
        match self.values.iter().map(number).collect::<Option<Vec<f64>>>() {
            Some(numbers) => share(rows).iter().map(|part| self.lines(part, &numbers)).collect(),
            None => share(rows).iter().map(|part| self.bars(part)).collect(),
        }
    }

    fn at(&self, row: &str, value: &str) -> Option<Summary> {
        let is_here = |run: &&&CellRun| run.cell.id.axis(self.axis) == Some(value);
        let here = self.group.runs.iter().filter(is_here);
        Summary::of(&here.filter_map(|run| quantity(run.cell.result.as_ref()?, row, self.what)).collect::<Vec<_>>())
    }

    fn axis_words(&self) -> String {
        self.axis.replace('-', " ")
    }

    fn title(&self, part: &Share) -> String {
        let what = metric_name(self.what);
        let what = if self.what == SECONDS { capitalised(&what) } else { format!("Validation {what}") };
        format!("{what} by {}{}{}", self.axis_words(), self.group.title(), part.title)
    }

    fn name(&self, part: &Share) -> String {
        self.experiment.figure_name(&[self.what, "by", self.axis, &self.group.label, &part.file])
    }

    fn bars(&self, part: &Share) -> Figure {
        let mut chart = BarChart::new(self.title(part), self.values.iter().cloned())
            .x_label(self.axis_words())
            .y(Axis::new(metric_label(self.what)));
        for row in &part.rows {
            let summaries: Vec<Option<Summary>> =
                self.values.iter().map(|value| self.at(&row.first.name, value)).collect();
            let means = summaries.iter().map(|s| s.map_or(f64::NAN, |s| s.mean));
            let deviations = summaries.iter().map(|s| s.and_then(|s| s.sd).unwrap_or(f64::NAN));
            chart = chart.inked_bars(&row.first.name, means, Ink::Slot(row.slot)).deviations(deviations);
        }
        Figure::bar(self.name(part), CAPTION, chart)
    }

    fn lines(&self, part: &Share, numbers: &[f64]) -> Figure {
        let mut points: Vec<(f64, &String)> = numbers.iter().copied().zip(self.values).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let line_of = |row: &str| -> Vec<(f64, Summary)> {
            points.iter().filter_map(|(x, value)| Some((*x, self.at(row, value)?))).collect()
        };
        let mut chart =
            XyChart::new(self.title(part)).x(axis_of(self.axis_words(), &points)).y(Axis::new(metric_label(self.what)));
        for row in &part.rows {
            let line = line_of(&row.first.name);
            let deviations: Vec<f64> = line.iter().map(|(_, summary)| summary.sd.unwrap_or(f64::NAN)).collect();
            let line = Series::line_and_points(&row.first.name, line.iter().map(|(x, summary)| (*x, summary.mean)));
            chart = chart.series(line.deviations(&deviations).ink(Ink::Slot(row.slot)));
        }
        if self.what == metric::ACCURACY {
            for window in ["window_1", "window_4"] {
                let line: Vec<(f64, f64)> = line_of(window).iter().map(|(x, summary)| (*x, summary.mean)).collect();
                if line.is_empty() {
                    continue;
                }
                let label = window.replace('_', " ");
                // Both are grey: only one has points.
                let line =
                    if window == "window_1" { Series::line(label, line) } else { Series::line_and_points(label, line) };
                chart = chart.series(line.ink(Ink::Muted));
            }
        }
        Figure::xy(self.name(part), CAPTION, chart)
    }
}

/// An axis of sorted values, with a tick at each where there is room.
fn axis_of(words: String, points: &[(f64, &String)]) -> Axis {
    let step = |pair: &[(f64, &String)]| pair[1].0 - pair[0].0;
    let ends = points.windows(2).next().zip(points.windows(2).next_back());
    let grows = ends.is_some_and(|(first, last)| step(last) > GROWTH * step(first));
    let scale = if points.iter().all(|(x, _)| x.log2().round().exp2() == *x) {
        Scale::Log2
    } else if grows {
        Scale::Log10
    } else {
        Scale::Linear
    };
    Axis::new(words).scale(scale).ticks(points.iter().map(|(x, value)| (*x, value.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_suit_their_values() {
        for (values, scale) in [
            (&["64", "128", "256"][..], "Log2"),
            (&["0.001", "0.003", "0.01", "0.03"], "Log10"),
            (&["100", "200", "300"], "Linear"),
            (&["0.5", "0.9", "0.99"], "Linear"),
        ] {
            let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
            let points: Vec<(f64, &String)> = values.iter().map(|value| (value.parse().unwrap(), value)).collect();
            let axis = format!("{:?}", axis_of("rate".to_owned(), &points));
            assert!(axis.contains(&format!("scale: {scale}")), "{axis}");
            assert!(values.iter().all(|value| axis.contains(&format!("{value:?}"))), "{axis}");
        }
    }
}
