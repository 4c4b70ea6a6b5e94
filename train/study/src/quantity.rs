//! Figures of a row of a run.

use crate::statistics::{Summary, spearman};
use hankel_models::adapters::Exactness;
use hankel_trainer::results::{AdapterResult, LayerResult, RunResult, metric};

/// Loss of a truncated adapter, as a share of that before, at which it still does what it did.
const MORE_LOSS: f64 = 1.01;
/// The task's metric over examples as long as those of training, where those of the test split are longer.
pub(crate) const AS_TRAINED: &str = "as_trained";

/// A quantity of a row: a metric; `order`, `gate`, `contribution`, `input_alignment` (means over layers), `order_of_layer_0`, `largest_pole`,
/// `parameters`, `seconds_per_step`; `error_over_bound`, the largest measured error of a truncated layer over its certified bound,
/// 0 where nothing was discarded and nothing is off; `SCAN_absolute_error` and `SCAN_relative_error` of `fft`, `sequential` and `chunked`, the largest
/// over layers. `least_order` is the lowest mean order of the row and of its truncations by rule `order` whose loss is at most 1 % more;
/// `bound_and_loss` Spearman's correlation, over its truncations, of the certified bound with the loss. `as_trained` is the task's metric on the
/// validation split. (`diverged` is of cells.)
pub(crate) fn quantity(result: &RunResult, row: &str, name: &str) -> Option<f64> {
    // Predictors without training stand among the rows.
    if let Some(value) = result.task.baselines.get(row) {
        return (name == result.task.primary_metric).then_some(*value);
    }
    let row = result.rows.iter().find(|candidate| candidate.name == row)?;
    let truncations = || result.rows.iter().filter(|other| other.truncated_from.as_ref() == Some(&row.name));
    let mean = |value: fn(&LayerResult) -> Option<f64>| {
        Summary::of(&row.layers.iter().filter_map(value).collect::<Vec<_>>()).map(|summary| summary.mean)
    };
    match name {
        "order" => mean(|layer| Some(layer.order as f64)),
        "order_of_layer_0" => row.layers.iter().find(|layer| layer.layer == 0).map(|layer| layer.order as f64),
        "gate" => mean(|layer| layer.gate.map(f64::abs)),
        "contribution" => mean(|layer| layer.contribution),
        "input_alignment" => mean(|layer| layer.input_alignment),
        "largest_pole" => row.layers.iter().filter_map(|layer| layer.spectral_radius).reduce(f64::max),
        "least_order" => {
            let most = MORE_LOSS * row.validation.get(metric::LOSS)?;
            let within = |other: &&AdapterResult| other.validation.get(metric::LOSS).is_some_and(|loss| loss <= most);
            // Orders that were asked for. One that a threshold left would be compared with itself.
            let asked =
                |other: &&AdapterResult| other.truncation_rule.as_ref().is_some_and(|rule| rule.starts_with("order"));
            let orders =
                truncations().filter(asked).filter(within).filter_map(|other| quantity(result, &other.name, "order"));
            orders.chain(quantity(result, &row.name, "order")).reduce(f64::min)
        }
        "bound_and_loss" => {
            let bound = |row: &AdapterResult| row.layers.iter().map(|layer| layer.error_bound).sum::<Option<f64>>();
            let points = truncations().filter_map(|other| Some((bound(other)?, other.validation.get(metric::LOSS)?)));
            spearman(&points.collect::<Vec<_>>())
        }
        // Where figures are of the test split, the scores of the other one stand in its place.
        AS_TRAINED => row.test.as_ref().unwrap_or(&row.validation).get(&result.task.primary_metric),
        "parameters" => Some(row.parameters.adapter as f64),
        "seconds_per_step" => seconds_per_step(row),
        "error_over_bound" => {
            // An error that could not be measured is not within its bound.
            let share = |layer: &LayerResult| match (layer.hinf_error.unwrap_or(f64::NAN), layer.error_bound?) {
                (0.0, 0.0) => Some(0.0),
                (error, bound) => Some(error / bound),
            };
            row.layers.iter().filter_map(share).reduce(larger)
        }
        error if error.ends_with("_error") => {
            let (scan, kind) = error.strip_suffix("_error")?.split_once('_')?;
            let errors = row.layers.iter().filter_map(|layer| layer.exactness.as_ref());
            errors.filter_map(|exactness| error_of(exactness, scan, kind)).reduce(larger)
        }
        metric => row.validation.get(metric),
    }
}

/// What no figure of a quantity can go beyond.
pub(crate) fn range(results: &[&RunResult], row: &str, name: &str) -> (f64, f64) {
    // Files of results have the singular values once, with the row that was truncated.
    let whole = |result: &&RunResult| -> Option<usize> {
        let own = result.rows.iter().find(|found| found.name == row)?;
        let parent = own.derived_from().and_then(|parent| result.rows.iter().find(|found| found.name == parent));
        [Some(own), parent]
            .into_iter()
            .flatten()
            .flat_map(|row| &row.layers)
            .map(|l| l.hankel_singular_values.len())
            .max()
    };
    match name {
        "bound_and_loss" => (-1.0, 1.0),
        "order" | "order_of_layer_0" | "least_order" => {
            let states = results.iter().filter_map(whole).filter(|states| *states > 0).max();
            (0.0, states.map_or(f64::INFINITY, |states| states as f64))
        }
        "gate" | "largest_pole" | metric::LOSS => (0.0, f64::INFINITY),
        metric::ACCURACY | "exact_match" | AS_TRAINED => (0.0, 1.0),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    }
}

fn error_of(exactness: &Exactness, scan: &str, kind: &str) -> Option<f64> {
    let deviation = match scan {
        "fft" => exactness.fft,
        "sequential" => exactness.sequential,
        "chunked" => exactness.chunked,
        _ => return None,
    };
    match kind {
        "absolute" => Some(deviation.absolute),
        "relative" => Some(deviation.relative),
        _ => None,
    }
}

/// The larger one; NaN if one is NaN.
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// Seconds of an optimizer step, evaluation apart.
pub(crate) fn seconds_per_step(row: &AdapterResult) -> Option<f64> {
    row.training.as_ref().filter(|training| training.steps > 0).map(|t| t.seconds / t.steps as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::result;
    use hankel_trainer::results::Scores;
    use std::collections::BTreeMap;

    #[test]
    fn what_truncations_say_of_their_row() {
        let mut result = result();
        let row = |name: &str, from: Option<&str>, order: usize, bound: Option<f64>, loss: f64| AdapterResult {
            name: name.into(),
            truncated_from: from.map(Into::into),
            truncation_rule: from.map(|_| format!("order = {order}")),
            layers: vec![LayerResult { order, error_bound: bound, ..LayerResult::default() }],
            validation: Scores { metrics: BTreeMap::from([("loss".into(), loss)]), ..Scores::default() },
            ..AdapterResult::default()
        };
        result.rows = vec![
            row("h", None, 32, None, 1.0),
            row("h-8", Some("h"), 8, Some(0.1), 1.005),
            row("h-4", Some("h"), 4, Some(0.5), 1.009),
            row("h-2", Some("h"), 2, Some(0.9), 1.2),
            row("g-1", Some("g"), 1, Some(9.0), 0.1),
        ];
        assert_eq!(quantity(&result, "h", "least_order"), Some(4.0));
        assert_eq!(quantity(&result, "h", "bound_and_loss"), Some(1.0));
        result.rows[2].validation.metrics.insert("loss".into(), 1.3);
        assert_eq!(quantity(&result, "h", "least_order"), Some(8.0));
        assert_eq!(quantity(&result, "h", "bound_and_loss"), Some(0.5));
        assert_eq!(quantity(&result, "h-2", "least_order"), Some(2.0));
        assert_eq!(quantity(&result, "h-2", "bound_and_loss"), None);
    }
}
