//! When figures say anything: rows that are compared both beat the model without an adapter and what a predictor makes of one symbol, and rows
//! that are judged have come to the end of their training. Both hold at every point of the grid, on average over the units that repeat each other
//! there.

use super::convergence::{STILL_TO_GAIN, is_level, still_to_fall};
use super::{Expect, Finding, Verdict};
use crate::Cell;
use crate::measure::{self, Combine, Group, Measure};
use crate::quantity::{AS_TRAINED, quantity};
use crate::rates::RATE;
use crate::statistics::{Estimate, Summary};
use hankel_trainer::format::significant as number;
use hankel_trainer::results::{AdapterResult, RunResult, Scores, metric};
use std::fmt;

/// The row without an adapter.
const NONE: &str = "none";
/// The predictors without training that see one symbol, as a model without memory does: where one is on record, rows have to beat it.
const ONE_SYMBOL: [&str; 2] = ["window_1", "order_1"];
/// The best constant answer, which stands for them where a task has nothing else.
const CONSTANT: &str = "constant";
/// What training makes of a row, beside its scores. More steps could move it to either side.
const OF_TRAINING: [&str; 9] = [
    "order",
    "order_of_layer_0",
    "least_order",
    "gate",
    "contribution",
    "input_alignment",
    "largest_pole",
    "error_over_bound",
    "bound_and_loss",
];

/// The runs of one point of the grid.
struct Point<'a> {
    label: String,
    results: Vec<&'a RunResult>,
}

/// Why the comparison of two trained rows that `measure` makes on `cells`, with these `groups`, says nothing, if that is so. Of several rivals the
/// chosen ones have to beat no adapter; all have to have converged, since any might come to be chosen.
pub(super) fn problem(measure: &Measure, groups: &[Group], cells: &[&Cell]) -> Option<Verdict> {
    let points = points(measure, cells);
    // A row against no adapter, or against a predictor without training, is itself the question.
    if measure.combine == Combine::Ratio || untrained(measure, &points).next().is_some() || !is_score(measure, &points)
    {
        return None;
    }
    let names = trained(measure, &points);
    if measure.against.is_empty() || names.is_empty() {
        return None;
    }
    let is_chosen = |name: &&str| groups.iter().flat_map(|group| &group.sides).flatten().any(|side| side.0 == *name);
    let chosen: Vec<&str> = names.iter().map(|name| name.as_str()).filter(is_chosen).collect();
    // What truncation costs, or one way of it beside another, is a question of what was trained: however much it ruins.
    let made_of: Vec<&str> = chosen.iter().map(|name| trained_as(name, &points)).collect();
    let judged: Vec<&str> = match made_of[..] {
        [first, ..] if made_of.iter().all(|other| *other == first) => vec![first],
        _ => chosen,
    };
    // What is forgotten is a cost: what it was paid for is the loss.
    let of = if measure.of == metric::FORGETTING { metric::LOSS } else { &measure.of };
    let gains: Vec<Vec<Gain>> = judged.iter().map(|name| gains(of, name, NONE, &points)).collect();
    let unknown: Vec<String> = judged
        .iter()
        .zip(&gains)
        .filter(|(_, gains)| gains.is_empty())
        .map(|(name, _)| format!("no row without an adapter tells what {name} is worth"))
        .collect();
    if !unknown.is_empty() {
        return Some(Verdict::NotMeasured(unknown.join("; ")));
    }
    let drowned: Vec<String> = judged
        .iter()
        .zip(&gains)
        .filter_map(|(name, gains)| {
            let gain = gains.iter().find(|gain| gain.mean <= 0.0)?;
            Some(format!("{name} is no better than no adapter{gain}"))
        })
        .collect();
    let beaten = || judged.iter().filter_map(|name| beaten(name, &points)).collect();
    let drowned: Vec<String> = if drowned.is_empty() { beaten() } else { drowned };
    if !drowned.is_empty() {
        return Some(Verdict::NoComparison(drowned.join("; ")));
    }
    learning(&names, &points, gain_or_loss).map(Verdict::NotConverged)
}

/// Why the finding on one trained row, by itself or against something untrained, can change with more training, if it can: the row still
/// learns, and more training would not move its figure further to the side on which it is. Where the row gains next to nothing, its loss
/// takes the place of the gain. The same goes for ratios, slopes and correlations, and for what training makes of a row (its order, its
/// gate). Such a row also has to be better than no adapter: otherwise its order or gate serves no purpose.
pub(super) fn unfinished(
    measure: &Measure,
    expect: Expect,
    findings: &[(&Group, Finding)],
    cells: &[&Cell],
) -> Option<Verdict> {
    let points = points(measure, cells);
    let plain = measure.is_plain();
    let alone = measure.against.is_empty() || untrained(measure, &points).next().is_some();
    let names = trained(measure, &points);
    // With more steps a run can still diverge.
    if measure.of == measure::DIVERGED && findings.iter().any(|(group, _)| group.summary.mean < 1.0) {
        return learning(&names, &points, gain_or_loss).map(Verdict::NotConverged);
    }
    if matches!(expect, Expect::EachWithin(..) | Expect::AtMost(_)) {
        return None;
    }
    if OF_TRAINING.contains(&&measure.of[..]) {
        let mut rows = names.iter().filter(|name| plain && measure.row.contains(name));
        let drowned = |name: &&&String| {
            let trained = trained_as(name, &points);
            let gain = gains(metric::LOSS, trained, NONE, &points).into_iter().find(|gain| gain.mean <= 0.0)?;
            Some(Verdict::NoComparison(format!("{trained} is no better than no adapter{gain}")))
        };
        return rows
            .find_map(|name| drowned(&name))
            .or_else(|| learning(&names, &points, gain_or_loss).map(Verdict::NotConverged));
    }
    let is_compared = !alone && measure.combine != Combine::Ratio;
    if is_compared || !is_score(measure, &points) {
        return None;
    }
    if !plain {
        return learning(&names, &points, gain_unless_little).map(Verdict::NotConverged);
    }
    let better = if metric::larger_is_better(&measure.of) { 1.0 } else { -1.0 };
    let moves = if measure.row.iter().any(|row| names.contains(&row)) { better } else { -better };
    let is_final = |(group, finding): &(&Group, Finding)| stands(expect, *finding, group.summary.mean, moves);
    let refutes = |(_, finding): &(&Group, Finding)| matches!(finding, Finding::Contrary | Finding::Outside);
    // One point is enough against a claim.
    if findings.iter().all(is_final) || findings.iter().any(|found| refutes(found) && is_final(found)) {
        return None;
    }
    learning(&names, &points, gain_unless_little).map(Verdict::NotConverged)
}

/// Which of these rows were still learning when training ended, over cells that repeat each other in `units`.
pub(crate) fn still_learning(names: &[String], cells: &[Cell], units: &[String]) -> Option<String> {
    let points = points_of(&cells.iter().collect::<Vec<_>>(), units);
    learning(&names.iter().collect::<Vec<_>>(), &points, gain_unless_little)
}

/// What a fall is held against: the gain over no adapter. A control that learns nothing has none.
fn gain_or_loss(gained: f64, loss: f64) -> f64 {
    if gained > 0.0 { gained } else { loss }
}

/// The same for a row by itself, which may be meant to gain nothing: of a gain that is hardly one, the noise of evaluations is a large share.
fn gain_unless_little(gained: f64, loss: f64) -> f64 {
    if gained > STILL_TO_GAIN * loss { gained } else { loss }
}

/// Whether a finding stands when the figure goes on in the direction `moves`.
fn stands(expect: Expect, finding: Finding, mean: f64, moves: f64) -> bool {
    match (finding, expect) {
        // Computed, or refuted by one value.
        (_, Expect::EachWithin(..) | Expect::AtMost(_)) => true,
        (Finding::Shown, Expect::Above(_)) | (Finding::Contrary, Expect::Below(_)) => moves > 0.0,
        (Finding::Shown, Expect::Below(_)) | (Finding::Contrary, Expect::Above(_)) => moves < 0.0,
        (Finding::Outside, Expect::Within(low, high)) => (mean > high && moves > 0.0) || (mean < low && moves < 0.0),
        _ => false,
    }
}

/// The cells that a measure is about, by the point of the grid that they repeat.
fn points<'a>(measure: &Measure, cells: &[&'a Cell]) -> Vec<Point<'a>> {
    points_of(&measure::concerned(measure, cells), &measure.units)
}

fn points_of<'a>(cells: &[&'a Cell], units: &[String]) -> Vec<Point<'a>> {
    let repeated: Vec<&str> = units.iter().map(String::as_str).chain([RATE]).collect();
    let mut points: Vec<Point> = Vec::new();
    for &cell in cells {
        let Some(result) = &cell.result else { continue };
        let label = cell.id.describe(&repeated);
        match points.iter_mut().find(|point| point.label == label) {
            Some(point) => point.results.push(result),
            None => points.push(Point { label, results: vec![result] }),
        }
    }
    if let [only] = &mut points[..] {
        only.label.clear();
    }
    points
}

impl Point<'_> {
    /// ` at length 64`; nothing if it is the only one.
    fn place(&self) -> String {
        if self.label.is_empty() { String::new() } else { format!(" at {}", self.label) }
    }
}

/// The rows on either side that are not trained: that without an adapter, and predictors.
fn untrained<'a>(measure: &'a Measure, points: &[Point]) -> impl Iterator<Item = &'a String> {
    let baselines: Vec<String> =
        points.iter().flat_map(|point| &point.results).flat_map(|r| r.task.baselines.keys()).cloned().collect();
    let sides = measure.row.iter().chain(&measure.against);
    sides.filter(move |name| *name == NONE || baselines.contains(name))
}

/// The rows on either side that are trained and there. A row may be compared with itself at another point.
fn trained<'a>(measure: &'a Measure, points: &[Point]) -> Vec<&'a String> {
    let not: Vec<&String> = untrained(measure, points).collect();
    let is_there = |name: &str| points.iter().flat_map(|point| &point.results).any(|r| row(r, name).is_some());
    let mut names: Vec<&String> = Vec::new();
    for name in measure.row.iter().chain(&measure.against) {
        if !names.contains(&name) && !not.contains(&name) && is_there(name) {
            names.push(name);
        }
    }
    names
}

/// Whether the measure is of what training improves: of a metric.
fn is_score(measure: &Measure, points: &[Point]) -> bool {
    let sides = || measure.row.iter().chain(&measure.against);
    let is_metric = |row: &AdapterResult| measure.of == AS_TRAINED || row.validation.metrics.contains_key(&measure.of);
    points
        .iter()
        .flat_map(|point| &point.results)
        .any(|result| sides().any(|name| row(result, name).is_some_and(is_metric)))
}

fn row<'a>(result: &'a RunResult, name: &str) -> Option<&'a AdapterResult> {
    result.rows.iter().find(|row| row.name == name)
}

/// The scores of the validation split: where figures are of the test split, they stand in its place.
fn validation(row: &AdapterResult) -> &Scores {
    row.test.as_ref().unwrap_or(&row.validation)
}

/// What a row gains over another at a point: the mean over runs, and its interval where there are two.
struct Gain {
    place: String,
    mean: f64,
    interval: Option<(f64, f64)>,
}

impl Gain {
    fn of(gains: &[f64], point: &Point) -> Option<Self> {
        let mean = Summary::of(gains)?.mean;
        Some(Gain { place: point.place(), mean, interval: Estimate::of(gains).map(|estimate| estimate.interval) })
    }
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (gain {}", self.place, number(self.mean))?;
        let Some((low, high)) = self.interval else { return f.write_str(")") };
        write!(f, ", {} to {})", number(low), number(high))
    }
}

/// What a row gains over `other`, at every point where both are.
fn gains(of: &str, name: &str, other: &str, points: &[Point]) -> Vec<Gain> {
    let sign = if metric::larger_is_better(of) { 1.0 } else { -1.0 };
    let gain = |result: &&RunResult| Some(sign * (quantity(result, name, of)? - quantity(result, other, of)?));
    let at = |point: &Point| Gain::of(&point.results.iter().filter_map(gain).collect::<Vec<_>>(), point);
    points.iter().filter_map(at).collect()
}

/// Says, if so, that a row is no better than a predictor that sees one symbol, or than the best constant where a task has no such
/// predictor. They are compared in the task's primary metric on the validation split, as the predictors are recorded.
fn beaten(name: &str, points: &[Point]) -> Option<String> {
    let gain = |result: &RunResult, baseline: &str| {
        let of = &result.task.primary_metric;
        let own = validation(row(result, name)?).get(of)?;
        let sign = if metric::larger_is_better(of) { 1.0 } else { -1.0 };
        Some(sign * (own - result.task.baselines.get(baseline)?))
    };
    let by = |baseline: &str| {
        points.iter().find_map(|point| {
            let gains: Vec<f64> = point.results.iter().filter_map(|result| gain(result, baseline)).collect();
            Gain::of(&gains, point).filter(|gain| gain.mean <= 0.0)
        })
    };
    let mut tasks = points.iter().flat_map(|point| &point.results).map(|result| &result.task.baselines);
    let sees_one = tasks.any(|baselines| ONE_SYMBOL.iter().any(|name| baselines.contains_key(*name)));
    let baselines: &[&str] = if sees_one { &ONE_SYMBOL } else { &[CONSTANT] };
    let (baseline, gain) = baselines.iter().find_map(|baseline| Some((baseline, by(baseline)?)))?;
    Some(format!("{name} is no better than `{baseline}`{gain}"))
}

/// The row that was trained: itself, or what it was made from.
fn trained_as<'a>(name: &'a str, points: &[Point<'a>]) -> &'a str {
    let mut results = points.iter().flat_map(|point| &point.results);
    results.find_map(|result| row(result, name)).and_then(AdapterResult::derived_from).unwrap_or(name)
}

/// Why the agreement of two quantities says nothing, if so: every figure of one agrees with every figure of the other, even across runs.
pub(super) fn any_would_agree(measure: &Measure, expect: Expect, cells: &[&Cell]) -> Option<String> {
    let (Combine::Ratio, Some(against_of), Expect::Within(low, high)) = (measure.combine, &measure.against_of, expect)
    else {
        return None;
    };
    let points = points(measure, cells);
    let ends = |names: &[String], of: &str| {
        let results = points.iter().flat_map(|point| &point.results);
        let figures = results.flat_map(|result| names.iter().filter_map(|name| quantity(result, name, of)));
        figures.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), figure| (low.min(figure), high.max(figure)))
    };
    let (own, other) = (ends(&measure.row, &measure.of), ends(&measure.against, against_of));
    let agree = own.0 / other.1 >= low && own.1 / other.0 <= high;
    agree.then(|| {
        format!(
            "all figures of the one are within {} to {}, those of the other within {} to {}, so that any two agree, of other runs too",
            own.0, own.1, other.0, other.1
        )
    })
}

/// Why the staying of a row within the range that is claimed says nothing, if the `control` does not leave it at every point, on the side that
/// is better.
pub(super) fn control_stays(measure: &Measure, expect: Expect, control: &str, cells: &[&Cell]) -> Option<String> {
    let of_it = Measure { row: vec![control.to_owned()], ..measure.clone() };
    let found = measure::measure(&of_it, cells);
    if found.groups.is_empty() || !found.missing.is_empty() {
        let places = if found.missing.is_empty() { String::new() } else { format!(" at {}", found.missing.join("; ")) };
        return Some(format!("no figures of {control}, the control, are on record{places}"));
    }
    let is_better = |mean: f64| match expect {
        Expect::Within(low, high) => {
            if metric::larger_is_better(&measure.of) {
                mean > high
            } else {
                mean < low
            }
        }
        _ => false,
    };
    let leaves = |group: &&Group| expect.evaluate(group) == Finding::Outside && is_better(group.summary.mean);
    let group = found.groups.iter().find(|group| !leaves(group))?;
    let place = if group.label.is_empty() { String::new() } else { format!(" at {}", group.label) };
    let interval = match group.estimate(0.0) {
        Some(Estimate { interval: (low, high), .. }) => format!("{} to {}", number(low), number(high)),
        None => "a single run".to_owned(),
    };
    let mean = number(group.summary.mean);
    Some(format!("{control}, the control, is not shown to do better than the range either{place} ({mean}, {interval})"))
}

/// Says which row that the measure names is missing from some runs, if one is. A row that diverged is not missing.
pub(super) fn missing(measure: &Measure, control: Option<&String>, cells: &[&Cell]) -> Option<String> {
    let cells: Vec<(&Cell, &RunResult)> =
        measure::concerned(measure, cells).into_iter().filter_map(|cell| Some((cell, cell.result.as_ref()?))).collect();
    let is_there = |name: &str, (cell, result): &(&Cell, &RunResult)| {
        let made_of = cells.iter().find_map(|(_, result)| row(result, name)?.derived_from());
        let lost = |name: &str| cell.diverged_rows.contains_key(name);
        let is_known = row(result, name).is_some() || result.task.baselines.contains_key(name);
        is_known || lost(name) || made_of.is_some_and(lost)
    };
    // The row of one cell may be compared with that of another, which has other rows.
    let sides = if measure.against_where.is_empty() { &measure.against[..] } else { &[] };
    measure.row.iter().chain(sides).chain(control).find_map(|name| {
        let with_it = cells.iter().filter(|cell| is_there(name, cell)).count();
        (with_it < cells.len()).then(|| format!("{with_it} of {} runs have {name}", cells.len()))
    })
}

/// Says which trainings were stopped while their loss still fell, on average over the runs of a point, or have too few evaluations to
/// tell. `scale(gain over no adapter, loss)` is what the fall is compared with. A single run decides nothing: the line through a few
/// evaluations is noisy, and among many runs one would always seem to fall.
fn learning(names: &[&String], points: &[Point], scale: fn(f64, f64) -> f64) -> Option<String> {
    let mut found: Vec<String> = Vec::new();
    let mut unknown_rows: Vec<&str> = Vec::new();
    for name in names {
        // Runs that still learn and runs in all, at the points where they do on average.
        let (mut learning, mut runs, mut places) = (0, 0, Vec::new());
        let mut unknown = false;
        for point in points {
            let with_it = point.results.iter().filter(|result| row(result, name).is_some());
            let of_point: Vec<Option<Progress>> = with_it.map(|result| progress(name, result)).collect();
            let known: Vec<Progress> = of_point.iter().copied().flatten().collect();
            unknown |= known.len() < of_point.len();
            let mean = |of: fn(&Progress) -> f64| known.iter().map(of).sum::<f64>() / known.len() as f64;
            let beside = scale(mean(|run| run.gained), mean(|run| run.loss));
            // A loss that rises in one run makes up for none that falls in another.
            if !known.is_empty() && !is_level(mean(|run| run.to_fall.max(0.0)), beside) {
                learning += known.iter().filter(|run| !is_level(run.to_fall, beside)).count();
                runs += of_point.len();
                places.push(point.place());
            }
        }
        let place = match &places[..] {
            [place] => place.clone(),
            several if several.len() == points.len() => String::new(),
            several => format!(" at {} of {} points", several.len(), points.len()),
        };
        if !places.is_empty() {
            found.push(format!("{name} was still learning in {learning} of {runs} runs{place}"));
        }
        if unknown {
            unknown_rows.push(name);
        }
    }
    if !unknown_rows.is_empty() {
        found
            .push(format!("fewer than two evaluations of {} are on record in the last fifth", unknown_rows.join(", ")));
    }
    (!found.is_empty()).then(|| found.join("; "))
}

/// The end of a training.
#[derive(Clone, Copy)]
struct Progress {
    /// How far the loss is about to fall.
    to_fall: f64,
    /// What it gained over no adapter; NaN where there is no row without one.
    gained: f64,
    loss: f64,
}

/// How the training of a row, or of the one that it was made from, ended, on the validation split; `None` where nothing tells.
fn progress(name: &str, result: &RunResult) -> Option<Progress> {
    let own = row(result, name)?;
    let trained = own.derived_from().map_or(Some(own), |parent| row(result, parent))?;
    let training = trained.training.as_ref()?;
    let loss = |row: &AdapterResult| validation(row).get(metric::LOSS);
    let without = row(result, NONE).and_then(loss).unwrap_or(f64::NAN);
    let own = loss(trained)?;
    // A control that is not trained.
    if training.steps <= 1 {
        return Some(Progress { to_fall: 0.0, gained: 1.0, loss: 1.0 });
    }
    let to_fall = still_to_fall(&training.curve, training.steps)?;
    (!own.is_nan()).then_some(Progress { to_fall, gained: without - own, loss: own })
}
