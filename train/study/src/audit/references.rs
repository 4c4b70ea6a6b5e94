//! What is reached without an adapter, and without training: what figures are to be seen against.

use crate::Cell;
use hankel_trainer::format::significant as number;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A paragraph of the page, a sentence for each scale; nothing where neither is on record.
pub(super) fn section(experiment: &str, cells: &[Cell]) -> String {
    let own: Vec<&Cell> = cells.iter().filter(|cell| cell.id.experiment == experiment).collect();
    let scales: BTreeSet<&Option<String>> = own.iter().map(|cell| &cell.id.scale).collect();
    let mut out = String::new();
    for scale in scales {
        let here = own.iter().filter(|cell| cell.id.scale == *scale).filter_map(|cell| cell.result.as_ref());
        let mut found: BTreeMap<&str, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
        for result in here {
            let name = result.task.primary_metric.as_str();
            let of_metric = found.entry(name).or_default();
            let none = result.rows.iter().find(|row| row.kind == "none").and_then(|row| row.validation.get(name));
            let none = none.map(|value| ("without an adapter".to_owned(), value));
            let predictors = result.task.baselines.iter().map(|(name, value)| (format!("`{name}`"), *value));
            for (name, value) in none.into_iter().chain(predictors) {
                of_metric.entry(name).or_default().push(value);
            }
        }
        let scale = scale.as_deref().map_or_else(String::new, |scale| format!(" at scale `{scale}`"));
        for (metric, of_metric) in found.iter().filter(|(_, of_metric)| !of_metric.is_empty()) {
            let range = |(name, values): (&String, &Vec<f64>)| {
                let least = number(values.iter().copied().fold(f64::INFINITY, f64::min));
                let most = number(values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
                if least == most { format!("{name} {least}") } else { format!("{name} {least} to {most}") }
            };
            let ranges: Vec<String> = of_metric.iter().map(range).collect();
            let _ = writeln!(out, "\n{}{scale}: {}.", metric.replace('_', " "), ranges.join(", "));
        }
    }
    if out.is_empty() {
        out
    } else {
        format!("\nTo be seen against, on the validation split, the range over all cells:\n{out}")
    }
}
