//! When the difference of two rows says anything: both beat the model without an adapter, and both have come to the end of their training.

use super::Verdict;
use super::convergence::{is_level, still_to_fall};
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

/// Says so if the trainings of the row were stopped while its loss fell, on average over the runs, or if a result does not tell. A single run
/// decides nothing: the line through a few evaluations is noisy, and among many runs there would always be one.
fn still_learning(name: &str, results: &[&RunResult]) -> Option<String> {
    let run = |result: &&RunResult| {
        let own = row(result, name)?;
        let trained = own.derived_from().map_or(Some(own), |parent| row(result, parent));
        let loss = |row: &AdapterResult| row.validation.get(metric::LOSS);
        let gained = row(result, NONE).and_then(loss).zip(loss(own)).map(|(none, own)| none - own);
        let to_fall = trained
            .and_then(|row| row.training.as_ref())
            .and_then(|training| still_to_fall(&training.curve, training.steps));
        Some(to_fall.zip(gained))
    };
    let runs: Vec<Option<(f64, f64)>> = results.iter().filter_map(run).collect();
    let known: Vec<(f64, f64)> = runs.iter().copied().flatten().collect();
    let (to_fall, gained) = known.iter().fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    if !known.is_empty() && !is_level(to_fall, gained) {
        let learning = known.iter().filter(|(to_fall, gained)| !is_level(*to_fall, *gained)).count();
        return Some(format!("{name} was still learning in {learning} of {} runs", runs.len()));
    }
    (known.len() < runs.len()).then(|| format!("no curve of {name} is on record"))
}
