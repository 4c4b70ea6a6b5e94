//! The figures of the page: the differences between rows that claims are about, at every scale that was run.

use crate::claims::Outcome;
use crate::measure::{Group, Measured};
use hankel_plots::{Axis, Estimated, ForestChart};
use std::fmt::Write as _;

/// Scales in the order of the legend.
const SCALES: [&str; 3] = ["small", "paper", "full"];

/// What differences are of: file, title and axis, and the quantities that are drawn together.
const KINDS: [(&str, &str, &str, &[&str]); 3] = [
    ("reproduction_accuracy", "Differences in accuracy", "accuracy of the row less that of the other", &["accuracy"]),
    (
        "reproduction_bits",
        "Differences in bits",
        "bits per symbol of the row less those of the other: below 0 the row is better",
        &["bits_per_character", "bits_per_event", "label_smoothed_bits_per_character"],
    ),
    (
        "reproduction_loss",
        "Differences in loss",
        "loss of the row less that of the other: below 0 the row is better",
        &["loss"],
    ),
];

/// The charts by the names of their files.
pub(super) fn charts(outcomes: &[Outcome]) -> Vec<(String, ForestChart)> {
    let chart = |&(name, title, axis, of): &(&str, &str, &str, &[&str])| {
        let rows: Vec<Estimated> = outcomes.iter().flat_map(|outcome| estimates(outcome, of)).collect();
        let empty = ForestChart::new(title, Axis::new(axis), SCALES).subtitle(
            "Mean, 95 % interval over units. Outlines: a row still learns, is no better than none, or another scale decides.",
        );
        (!rows.is_empty()).then(|| (format!("{name}.svg"), rows.into_iter().fold(empty, ForestChart::row)))
    };
    KINDS.iter().filter_map(chart).collect()
}

/// The differences in one of the quantities `of` that a claim is about, at every scale.
fn estimates(outcome: &Outcome, of: &[&str]) -> Vec<Estimated> {
    let (claim, measure) = (outcome.claim, &outcome.claim.measure);
    let is_difference = !measure.against.is_empty() && measure.against_of.is_none() && measure.is_plain();
    if !is_difference || !of.contains(&measure.of.as_str()) {
        return Vec::new();
    }
    let rows = |scale: &Option<String>, measured: &Measured, hollow: bool| -> Vec<Estimated> {
        let Some(group) = SCALES.iter().position(|known| Some(*known) == scale.as_deref()) else { return Vec::new() };
        let row = |figures: &Group| {
            let label = match figures.label.as_str() {
                "" => claim.id.clone(),
                label => format!("{}, {label}", claim.id),
            };
            let (mean, interval) = (figures.summary.mean, figures.estimate(0.0)?.interval);
            Some(Estimated { label, mean, interval, group, hollow })
        };
        measured.groups.iter().filter_map(row).collect()
    };
    let mut all = rows(&outcome.scale, &outcome.measured, !outcome.verdict.is_decided());
    all.extend(outcome.elsewhere.iter().flat_map(|(scale, measured)| rows(scale, measured, true)));
    all
}

/// The part of the page that shows them.
pub(super) fn section(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    for (file, _) in charts(outcomes) {
        let title = KINDS.iter().find(|kind| file.starts_with(kind.0)).map_or("", |kind| kind.1);
        let _ = write!(out, "\n![{title}, with intervals](images/{file})\n");
    }
    out
}
