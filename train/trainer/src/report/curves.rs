//! Loss and evaluation curves.

use hankel_plots::{Axis, Ink, Series, XyChart};

use super::Section;
use super::figure::Figure;
use super::run::Run;
use crate::format::{metric_label, metric_name};
use crate::results::{Event, PRETRAIN, Split, metric};
use hankel_models::adapters::kinds;
use std::collections::BTreeMap;

type Points = Vec<(f64, f64)>;

/// Looks that lines can have.
pub const SLOTS: usize = 35;

/// The slot that a name has wherever it is drawn: kinds of adapters have the first ones, other names one by a hash (FNV-1a).
fn own_slot(name: &str) -> usize {
    let kinds = kinds();
    if let Some(place) = kinds.iter().position(|kind| kind.name() == name) {
        return place % SLOTS;
    }
    let first = (kinds.len() + 1).min(SLOTS - 1);
    if name == "none" {
        first - 1
    } else {
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        first + (hash % (SLOTS - first) as u64) as usize
    }
}

/// The palette slot of an adapter, the same in every chart of every report; only where two names of a report would look alike
/// the one behind takes the next free slot.
pub(super) fn ink(runs: &[Run], name: &str) -> Ink {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        let rows = run.rows().iter().filter(|row| row.derived_from().is_none()).map(|row| row.name.as_str());
        let stages = run
            .events
            .iter()
            .filter_map(|e| if let Event::Step { stage, .. } = e { Some(stage.as_str()) } else { None });
        for name in rows.chain(stages).filter(|name| *name != PRETRAIN) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    slots(&names, &[]).get(name).map_or(Ink::Muted, |slot| Ink::Slot(*slot))
}

/// The palette slots of adapters by their names, the same whatever report they are in; only where two of `names` would look alike the
/// one behind takes the next free slot. Those that were `derived` from them come after all of these.
pub fn slots<'a>(names: &[&'a str], derived: &[&'a str]) -> BTreeMap<&'a str, usize> {
    let sorted = |names: &[&'a str]| {
        let mut names = names.to_vec();
        names.sort_unstable();
        names
    };
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    for name in sorted(names).into_iter().chain(sorted(derived)) {
        let own = own_slot(name);
        let mut free = (own..own + SLOTS).map(|slot| slot % SLOTS).filter(|slot| !taken.values().any(|t| t == slot));
        let slot = free.next().unwrap_or(own);
        taken.insert(name, slot);
    }
    taken
}

/// File name of a figure: with the number of the run when there are several.
pub(super) fn figure_name(runs: &[Run], index: usize, name: &str) -> String {
    if runs.len() > 1 { format!("run-{}-{name}", index + 1) } else { name.to_owned() }
}

/// Title of a figure: with the name of the run when there are several.
pub(super) fn figure_title(runs: &[Run], index: usize, title: &str) -> String {
    if runs.len() > 1 { format!("{title} · {}", runs[index].name) } else { title.to_owned() }
}

/// Loss curves and evaluations of every run.
pub(super) fn section(runs: &[Run]) -> Section {
    let mut figures = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        let (pretraining, stages): (Vec<_>, Vec<_>) =
            losses(run).into_iter().partition(|(stage, _)| stage.as_str() == PRETRAIN);
        let title = |text: &str| figure_title(runs, i, text);
        if !stages.is_empty() {
            let chart = loss_chart(title("Training loss"), runs, &stages);
            figures.push(Figure::xy(figure_name(runs, i, "training-loss"), caption(&stages), chart));
        }
        figures.extend(evaluations(runs, i));
        if !pretraining.is_empty() {
            let chart = loss_chart(title("Loss while the backbone is trained"), runs, &pretraining);
            figures.push(Figure::xy(figure_name(runs, i, "pretraining-loss"), caption(&pretraining), chart));
        }
    }
    Section { title: "Curves".into(), figures, ..Section::default() }
}

/// Logged losses by stage, in the order in which the stages appear.
fn losses(run: &Run) -> Vec<(String, Points)> {
    let mut out: Vec<(String, Points)> = Vec::new();
    for event in &run.events {
        if let Event::Step { stage, step, loss, .. } = event {
            let point = (*step as f64, *loss);
            match out.iter_mut().find(|(name, _)| name == stage) {
                Some((_, points)) => points.push(point),
                None => out.push((stage.clone(), vec![point])),
            }
        }
    }
    for (_, points) in &mut out {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    out
}

/// How many logged values the bold line averages: about a twenty-fifth of the longest curve, an odd number, and one in short runs.
fn window(curves: &[(String, Points)]) -> usize {
    let longest = curves.iter().map(|(_, points)| points.len()).max().unwrap_or(0);
    if longest < 50 { 1 } else { (longest / 25) | 1 }
}

fn caption(curves: &[(String, Points)]) -> String {
    match window(curves) {
        1 => "The loss as logged.".to_owned(),
        n => format!("Pale: the loss as logged. Bold: its mean over {n} logged values."),
    }
}

fn loss_chart(title: String, runs: &[Run], curves: &[(String, Points)]) -> XyChart {
    let window = window(curves);
    let mut chart =
        XyChart::new(title).x(Axis::new("optimizer step").integers()).y(Axis::new(metric_label(metric::LOSS)));
    for (stage, points) in curves {
        let ink = if stage == PRETRAIN { Ink::Slot(0) } else { ink(runs, stage) };
        let label = if stage == PRETRAIN { "" } else { stage };
        if window == 1 {
            chart = chart.series(Series::line(label, points.clone()).named(stage).ink(ink));
        } else {
            let logged = Series::line("", points.clone()).named(format!("{stage}, as logged"));
            chart = chart
                .series(logged.ink(ink).faint())
                .series(Series::line(label, mean_over(points, window)).named(stage).ink(ink));
        }
    }
    chart
}

/// The mean of the `window` values around each value, fewer at the ends. Values that are not finite are passed over.
fn mean_over(points: &[(f64, f64)], window: usize) -> Points {
    let mean = |i: usize| {
        // As far to the left as to the right, so that the ends are not bent.
        let reach = (window / 2).min(i).min(points.len() - 1 - i);
        let near = points[i - reach..=i + reach].iter().map(|p| p.1).filter(|v| v.is_finite());
        let (sum, n) = near.fold((0.0, 0), |(sum, n), v| (sum + v, n + 1));
        (points[i].0, sum / f64::from(n))
    };
    (0..points.len()).map(mean).collect()
}

/// The primary metric over the steps, for stages that were evaluated more than once.
fn evaluations(runs: &[Run], index: usize) -> Option<Figure> {
    let run = &runs[index];
    let primary = match &run.result {
        Some(result) => result.task.primary_metric.clone(),
        None => metric::LOSS.to_owned(),
    };
    let mut curves: Vec<(&str, Points)> = Vec::new();
    for event in &run.events {
        let Event::Eval { stage, step, split: Split::Validation, scores, .. } = event else { continue };
        let Some(value) = scores.get(&primary).filter(|_| stage != PRETRAIN) else { continue };
        let point = (*step as f64, value);
        match curves.iter_mut().find(|(name, _)| name == stage) {
            // The final evaluation, on all sequences, may be of a step that was evaluated before.
            Some((_, points)) => match points.iter_mut().find(|known| known.0 == point.0) {
                Some(known) => *known = point,
                None => points.push(point),
            },
            None => curves.push((stage, vec![point])),
        }
    }
    curves.retain(|(_, points)| points.len() > 1);
    if curves.is_empty() {
        return None;
    }
    let drawn: Vec<String> = curves.iter().map(|(stage, _)| (*stage).to_owned()).collect();
    let title = figure_title(runs, index, &format!("Validation {}", metric_name(&primary)));
    let mut chart = XyChart::new(title).x(Axis::new("optimizer step").integers()).y(Axis::new(metric_label(&primary)));
    for (stage, mut points) in curves {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart = chart.series(Series::line_and_points(stage, points).ink(ink(runs, stage)));
    }
    // The row without adapter is a line where it has no curve of its own.
    if let Some(none) = run.baseline().filter(|none| !drawn.contains(&none.name))
        && let Some(value) = none.validation.get(&primary)
    {
        chart = chart.horizontal_line(value, &none.name);
    }
    Some(Figure::xy(figure_name(runs, index, "validation"), "", chart))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_looks_the_same_whatever_is_drawn_beside_it() {
        let run = |names: &[&str]| {
            let step = |stage: &&str| Event::Step {
                stage: (*stage).to_owned(),
                step: 1,
                loss: 1.0,
                learning_rate: 0.0,
                gradient_norm: 0.0,
                tokens: 1,
                tokens_per_second: 1.0,
                seconds: 1.0,
                device_bytes: None,
                communication: None,
            };
            Run { events: names.iter().map(step).collect(), ..Run::default() }
        };
        let (one, other) = ([run(&["hrm", "none", "lora-4"])], [run(&["lora-4"]), run(&["lora", "hrm"])]);
        for name in ["hrm", "lora-4"] {
            assert_eq!(ink(&one, name), ink(&other, name), "{name}");
        }
        let many: Vec<String> = (0..30).map(|i| format!("lora-{i}")).collect();
        let runs = [run(&many.iter().map(String::as_str).collect::<Vec<_>>())];
        let mut inks: Vec<String> = many.iter().map(|name| format!("{:?}", ink(&runs, name))).collect();
        inks.sort();
        inks.dedup();
        assert_eq!(inks.len(), many.len(), "no two look alike");
        assert_eq!(ink(&one, "absent"), Ink::Muted);
    }

    #[test]
    fn the_mean_keeps_a_straight_line_straight() {
        let line: Points = (0..60).map(|i| (f64::from(i), 3.0 - 0.5 * f64::from(i))).collect();
        for window in [3, 5, 13] {
            for (got, expected) in mean_over(&line, window).iter().zip(&line) {
                assert!((got.1 - expected.1).abs() < 1e-12, "window {window}");
            }
        }
        let gap = [(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0)];
        assert_eq!(mean_over(&gap, 3)[1], (1.0, 2.0));
    }

    /// The caption names as many values as are averaged.
    #[test]
    fn the_window_is_what_the_caption_says() {
        for length in [50, 60, 100, 200, 1000] {
            let mut line: Points = (0..length).map(|i| (f64::from(i), 0.0)).collect();
            line[25].1 = 1.0;
            let curves = [("hrm".to_owned(), line.clone())];
            let window = window(&curves);
            assert!((mean_over(&line, window)[25].1 - 1.0 / window as f64).abs() < 1e-12, "{length}: {window}");
            assert!(caption(&curves).contains(&format!("over {window} logged values")));
        }
    }
}
