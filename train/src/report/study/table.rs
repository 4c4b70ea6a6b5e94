//! The table of an experiment: means over seeds of every row at every point of the grid.

use super::{Experiment, Group};
use crate::report::format::{difference, metric_name, score, significant, thousands};
use crate::report::html::{Cell as Html, paragraph, table};
use crate::results::metric;
use crate::statistics::{Estimate, Summary};
use crate::study::measure::quantity;
use std::fmt::Write as _;

/// Predictors without training that are shown beside the rows.
const PREDICTORS: [&str; 4] = ["constant", "window_1", "window_4", "window_8"];
/// A table with more lines than this is folded.
const LONG: usize = 24;

/// Facts and table, and what is folded below the figures.
pub(super) fn section(experiment: &Experiment) -> (String, String) {
    let groups = experiment.groups(&[]);
    let results: Vec<_> = experiment.runs.iter().filter_map(|run| run.result.as_ref()).collect();
    let seconds: f64 = results.iter().map(|result| result.wall_time_seconds).sum();
    let diverged = experiment.cells().iter().filter(|cell| cell.diverged.is_some()).count();
    let mut facts = format!(
        "{} cells at {} points of the grid, {} in all.",
        experiment.runs.len(),
        groups.len(),
        crate::report::format::duration(seconds)
    );
    if diverged > 0 {
        let _ = write!(facts, " {diverged} came to values that are not finite.");
    }
    let lines: Vec<Vec<Html>> = groups.iter().flat_map(|group| lines(experiment, group)).collect();
    let primary = metric_name(experiment.primary());
    let headers = [
        Html::text("row"),
        Html::text("at"),
        Html::number("parameters"),
        Html::number("runs"),
        Html::number(&primary).with_note("mean ± sd"),
        Html::number("to none").with_note("95 %"),
        Html::number("order").with_note("mean"),
        Html::number("s / step"),
    ];
    let long = lines.len() > LONG;
    let html = table(&headers, &lines);
    if long {
        (paragraph(facts), format!("<details><summary>All figures</summary>{html}</details>\n"))
    } else {
        (paragraph(facts) + &html, String::new())
    }
}

fn lines(experiment: &Experiment, group: &Group) -> Vec<Vec<Html>> {
    let predictors = PREDICTORS.into_iter().filter(|_| experiment.primary() == metric::ACCURACY);
    let names = experiment.rows(true).into_iter().chain(predictors);
    names.filter_map(|name| line(experiment, group, name)).collect()
}

fn line(experiment: &Experiment, group: &Group, name: &str) -> Option<Vec<Html>> {
    let primary = experiment.primary();
    let results = || group.runs.iter().filter_map(|run| run.result.as_ref());
    let of = |what: &str| Summary::of(&results().filter_map(|result| quantity(result, name, what)).collect::<Vec<_>>());
    let figure = of(primary)?;
    let sd = figure.sd.map_or_else(String::new, |sd| format!(" ± {}", score(sd)));
    let pairs: Vec<(f64, f64)> = results()
        .filter_map(|result| {
            let none = result.rows.iter().find(|row| row.kind == "none")?;
            Some((quantity(result, name, primary)?, none.validation.get(primary)?))
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
    Some(vec![
        Html::text(name.replace("window_", "window ")),
        Html::text(&group.label),
        optional(of("parameters"), |mean| thousands(mean.round() as u64)),
        Html::number(figure.n),
        Html::number(score(figure.mean) + &sd),
        to_none,
        optional(of("order").filter(|order| order.mean > 0.0), |mean| format!("{mean:.1}")),
        optional(of("seconds_per_step"), significant),
    ])
}
