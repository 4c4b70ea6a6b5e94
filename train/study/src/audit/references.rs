//! What is reached without an adapter, by the backbone trained further, and without training: what figures are to be seen against.

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
            let rows = [("none", "without an adapter"), ("full", "the backbone trained further")];
            let rows = rows.into_iter().filter_map(|(kind, told)| {
                let row = result.rows.iter().find(|row| row.kind == kind)?;
                Some((told.to_owned(), row.validation.get(name)?))
            });
            let predictors = result.task.baselines.iter().map(|(name, value)| (format!("`{name}`"), *value));
            for (name, value) in rows.chain(predictors) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CellId;
    use crate::testing::result;
    use hankel_trainer::results::AdapterResult;

    #[test]
    fn rows_without_an_adapter_are_told_with_their_range() {
        let cell = |none: f64, full: f64| {
            let row = |kind: &str, accuracy: f64| {
                let mut row = AdapterResult { name: "x".into(), kind: kind.into(), ..AdapterResult::default() };
                row.validation.metrics.insert("accuracy".into(), accuracy);
                row
            };
            let mut result = result();
            result.task.primary_metric = "accuracy".into();
            result.task.baselines = BTreeMap::from([("window_1".into(), 0.5)]);
            result.rows = vec![row("none", none), row("hrm", 0.9), row("full", full)];
            let id = CellId { experiment: "e".into(), scale: Some("small".into()), axes: Vec::new() };
            Cell { id, result: Some(result), ..Cell::default() }
        };
        let told = section("e", &[cell(0.25, 0.75), cell(0.5, 0.75)]);
        let expected = "accuracy at scale `small`: `window_1` 0.5000, the backbone trained further 0.7500, without an adapter 0.2500 to 0.5000.";
        assert!(told.contains(expected), "{told}");
        assert_eq!(section("other", &[cell(0.25, 0.75)]), "");
    }
}
