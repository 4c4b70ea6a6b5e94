//! The tables of an experiment, one for each metric: means over seeds of every row at every point of the grid.

use super::experiment::{Experiment, Group};
use crate::Cell;
use crate::quantity::quantity;
use crate::statistics::{Estimate, Summary};
use hankel_trainer::format::{counted, difference, metric_name, score, significant, thousands};
use hankel_trainer::report::html::{Cell as Html, Text, paragraph, table};
use hankel_trainer::results::{RunResult, metric};
use std::fmt::Write as _;

/// Untrained predictors that are shown with the rows.
const PREDICTORS: [&str; 4] = ["constant", "window_1", "window_4", "window_8"];
/// A table with more lines than this is folded.
const LONG: usize = 24;
/// More cells or rows than this that came to nothing are folded.
const MANY: usize = 8;

/// Facts and table, and what is folded below the figures.
pub(super) fn section(experiment: &Experiment) -> (String, String) {
    let groups = experiment.groups(&[]);
    let results: Vec<_> = experiment.runs.iter().filter_map(|run| run.cell.result.as_ref()).collect();
    let seconds = results.iter().fold(0.0, |sum, result| sum + result.wall_time_seconds);
    let diverged = experiment.cells().iter().filter(|cell| cell.has_diverged()).count();
    let mut facts = format!(
        "{} at {} of the grid, {} in all.",
        counted(experiment.runs.len(), "cell"),
        counted(groups.len(), "point"),
        hankel_trainer::format::duration(seconds)
    );
    if diverged > 0 {
        let _ = write!(facts, " {diverged} came to values that are not finite.");
    }
    let incomplete = experiment.cells().iter().filter(|cell| !cell.missing_rows().is_empty()).count();
    if incomplete > 0 {
        let _ = write!(facts, " Rows are not run yet in {}.", counted(incomplete, "cell"));
    }
    let facts = paragraph(facts) + &losses(experiment);
    let mut html = String::new();
    let mut total = 0;
    for (metric, part) in experiment.by_metric() {
        let runs = part.runs.iter().filter_map(|run| run.cell.result.as_ref());
        let is_tested = runs.flat_map(|result| &result.rows).any(|row| row.test.is_some());
        let lines: Vec<Vec<Html>> =
            part.groups(&[]).iter().flat_map(|group| lines(&part, group, metric, is_tested)).collect();
        total += lines.len();
        html += &table(&headers(metric, is_tested), &lines).replacen("<table>", "<table class=\"grid\">", 1);
    }
    if total > LONG {
        (facts, format!("<details><summary>All numbers</summary>{html}</details>\n"))
    } else {
        (facts + &html, String::new())
    }
}

/// The cells and rows that came to nothing, with what was said of each, and cells that lack rows.
fn losses(experiment: &Experiment) -> String {
    let of_cell = |cell: &Cell| -> Vec<String> {
        let at = cell.id.describe(&[]);
        let at = if at.is_empty() { at } else { format!("{at}: ") };
        let missing = cell.missing_rows();
        let lacks = (!missing.is_empty()).then(|| format!("{} not run yet", missing.join(", ")));
        let said = cell.losses().into_iter().chain(lacks);
        said.map(|words| format!("<li>{}</li>\n", Text(format!("{at}{words}")))).collect()
    };
    let items: Vec<String> = experiment.cells().into_iter().flat_map(of_cell).collect();
    let list = format!("<ul class=\"notes\">\n{}</ul>\n", items.concat());
    match items.len() {
        0 => String::new(),
        count if count > MANY => format!("<details><summary>Which they are</summary>{list}</details>\n"),
        _ => list,
    }
}

fn headers(metric: &str, is_tested: bool) -> Vec<Html> {
    let of = |split: &str| Html::number(format!("{split} {}", metric_name(metric))).with_note("mean ± sd");
    let mut headers = vec![Html::text("row"), of("validation"), Html::number("to none").with_note("validation, 95 %")];
    if is_tested {
        headers.push(of("test"));
    }
    headers.extend([
        Html::number("runs"),
        Html::number("parameters"),
        Html::number("states or rank").with_note("mean per layer"),
        Html::number("s / step"),
    ]);
    headers
}

fn lines(experiment: &Experiment, group: &Group, metric: &str, is_tested: bool) -> Vec<Vec<Html>> {
    let predictors = PREDICTORS.into_iter().filter(|_| metric == metric::ACCURACY);
    let rows = experiment.rows().into_iter().map(|row| row.first.name.as_str());
    rows.chain(predictors).filter_map(|name| line(group, name, metric, is_tested)).collect()
}

/// `0.5120 ± 0.0100`.
fn mean_and_sd(summary: Summary) -> String {
    score(summary.mean) + &summary.sd.map_or_else(String::new, |sd| format!(" ± {}", score(sd)))
}

/// A metric of a row on the test split.
fn tested(result: &RunResult, name: &str, metric: &str) -> Option<f64> {
    result.rows.iter().find(|row| row.name == name)?.test.as_ref()?.get(metric)
}

fn line(group: &Group, name: &str, metric: &str, is_tested: bool) -> Option<Vec<Html>> {
    let results = || group.runs.iter().filter_map(|run| run.cell.result.as_ref());
    let of = |what: &str| Summary::of(&results().filter_map(|result| quantity(result, name, what)).collect::<Vec<_>>());
    let figure = of(metric)?;
    let pairs: Vec<(f64, f64)> = results()
        .filter_map(|result| {
            let none = result.rows.iter().find(|row| row.kind == "none")?;
            Some((quantity(result, name, metric)?, none.validation.get(metric)?))
        })
        .collect();
    let is_none = results().any(|result| result.rows.iter().any(|row| row.name == name && row.kind == "none"));
    let to_none = match (Estimate::paired(&pairs), &pairs[..]) {
        _ if is_none => Html::number("–"),
        (Some(e), _) => Html::number(difference(e.summary.mean)).with_note(&format!(
            "{} to {}",
            difference(e.interval.0),
            difference(e.interval.1)
        )),
        (None, [(own, none)]) => Html::number(difference(own - none)),
        _ => Html::number("–"),
    };
    let optional = |value: Option<Summary>, write: fn(f64) -> String| {
        Html::number(value.map_or_else(|| "–".to_owned(), |summary| write(summary.mean)))
    };
    let name_cell = Html::text(name.replace("window_", "window ")).with_note(&group.label);
    let mut cells = vec![name_cell, Html::number(mean_and_sd(figure)), to_none];
    if is_tested {
        let figures: Vec<f64> = results().filter_map(|result| tested(result, name, metric)).collect();
        cells.push(Html::number(Summary::of(&figures).map_or_else(|| "–".to_owned(), mean_and_sd)));
    }
    cells.extend([
        Html::number(figure.n),
        optional(of("parameters"), |mean| thousands(mean.round() as u64)),
        optional(of("order").filter(|order| order.mean > 0.0), |mean| format!("{mean:.1}")),
        optional(of("seconds_per_step"), significant),
    ]);
    Some(cells)
}
