//! When the difference of two rows says anything: both beat the model without an adapter, and both have come to the end of their training.

use super::Verdict;
use super::convergence::converged;
use crate::Cell;
use crate::measure::{Combine, Measure};
use crate::quantity::quantity;
use crate::statistics::Summary;
use hankel_trainer::results::{AdapterResult, RunResult, metric};

/// The row without an adapter.
const NONE: &str = "none";

/// Why the comparison that `measure` makes on `cells` says nothing, if that is so.
pub(super) fn problem(measure: &Measure, cells: &[&Cell]) -> Option<Verdict> {
    if measure.against.is_empty() || measure.combine == Combine::Ratio {
        return None;
    }
    let results: Vec<&RunResult> = cells.iter().filter_map(|cell| cell.result.as_ref()).collect();
    let sides = || measure.row.iter().chain(&measure.against);
    // A row against no adapter, or against a predictor without training, is itself the question.
    let untrained = |name: &String| name == NONE || results.iter().any(|r| r.task.baselines.contains_key(name));
    if sides().any(untrained) {
        return None;
    }
    let mut names: Vec<&String> = Vec::new();
    for name in sides() {
        // A row may be compared with itself at another point.
        if !names.contains(&name) && results.iter().any(|r| row(r, name).is_some()) {
            names.push(name);
        }
    }
    let is_score = |result: &RunResult| {
        names.iter().any(|name| {
            result.rows.iter().any(|row| row.name == **name && row.validation.metrics.contains_key(&measure.of))
        })
    };
    if !results.iter().any(|result| is_score(result)) {
        return None;
    }
    let drowned: Vec<String> = names.iter().filter_map(|name| no_better(measure, name, &results)).collect();
    if !drowned.is_empty() {
        return Some(Verdict::NoComparison(drowned.join("; ")));
    }
    let learning: Vec<String> = names.iter().filter_map(|name| still_learning(name, &results)).collect();
    (!learning.is_empty()).then(|| Verdict::NotConverged(learning.join("; ")))
}

fn row<'a>(result: &'a RunResult, name: &str) -> Option<&'a AdapterResult> {
    result.rows.iter().find(|row| row.name == name)
}

/// Says so if the row is no better than the model without an adapter, on average over the cells.
fn no_better(measure: &Measure, name: &str, results: &[&RunResult]) -> Option<String> {
    let sign = if metric::larger_is_better(&measure.of) { 1.0 } else { -1.0 };
    let gain = |result: &&RunResult| {
        Some(sign * (quantity(result, name, &measure.of)? - quantity(result, NONE, &measure.of)?))
    };
    match Summary::of(&results.iter().filter_map(gain).collect::<Vec<_>>()) {
        Some(gain) if gain.mean > 0.0 => None,
        Some(_) => Some(format!("{name} is no better than no adapter")),
        None => Some(format!("no row without an adapter tells what {name} is worth")),
    }
}

/// Says so, and in how many runs, if a training of the row was stopped while its loss fell, or if a result does not tell.
fn still_learning(name: &str, results: &[&RunResult]) -> Option<String> {
    let level = |result: &&RunResult| {
        let own = row(result, name)?;
        let trained = own.derived_from().map_or(Some(own), |parent| row(result, parent));
        let loss = |row: &AdapterResult| row.validation.get(metric::LOSS);
        let gained = row(result, NONE).and_then(loss).zip(loss(own)).map(|(none, own)| none - own);
        let verdict = trained.and_then(|row| row.training.as_ref()).zip(gained);
        Some(verdict.and_then(|(training, gained)| converged(&training.curve, training.steps, gained)))
    };
    let levels: Vec<Option<bool>> = results.iter().filter_map(level).collect();
    let number = |of: Option<bool>| levels.iter().filter(|level| **level == of).count();
    match (number(Some(false)), number(None)) {
        (0, 0) => None,
        (0, _) => Some(format!("no curve of {name} is on record")),
        (learning, _) => Some(format!("{name} was still learning in {learning} of {} runs", levels.len())),
    }
}
