//! The head of the page: what was run, in one screen.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::format::{bytes, capitalised, duration, metric_name, score, thousands};
use super::html::{Text, facts, paragraph, subheading};
use super::run::Run;
use crate::results::RunResult;

/// The title of the page.
pub(super) fn title(runs: &[Run]) -> String {
    let experiments: BTreeSet<&str> =
        runs.iter().filter_map(|run| Some(run.cell.as_ref()?.place.experiment.as_str())).collect();
    match runs {
        [run] => run.name.clone(),
        _ if experiments.len() == 1 => experiments.first().map(|name| (*name).to_owned()).unwrap_or_default(),
        _ if !experiments.is_empty() => format!("{} experiments", experiments.len()),
        _ => format!("Comparison of {} runs", runs.len()),
    }
}

/// The header: title, what the runs were, and notes on what is missing.
pub(super) fn header(runs: &[Run]) -> String {
    let mut out = format!("<h1>{}</h1>\n", Text(title(runs)));
    let single = runs.len() == 1;
    let cells: Vec<&RunResult> =
        runs.iter().filter(|run| !single && run.cell.is_some()).filter_map(|run| run.result.as_ref()).collect();
    if !cells.is_empty() {
        out += &facts(&study_facts(&cells));
    }
    for run in runs.iter().filter(|run| single || run.cell.is_none()) {
        if runs.len() > 1 {
            out += &subheading(&run.name);
        }
        if let Some(result) = &run.result {
            if !result.task.description.is_empty() {
                writeln!(out, "<p class=\"lede\">{}</p>", Text(&result.task.description)).expect("writing to a string");
            }
            out += &paragraph(headline(run, result));
            out += &facts(&run_facts(result));
        }
        if !run.notes.is_empty() {
            out += "<ul class=\"notes\">\n";
            for note in &run.notes {
                writeln!(out, "<li>{}</li>", Text(note)).expect("writing to a string");
            }
            out += "</ul>\n";
        }
    }
    out
}

/// What is common to the cells of sweeps: software, hardware, data.
fn study_facts(results: &[&RunResult]) -> Vec<(String, String)> {
    let distinct = |of: fn(&RunResult) -> String| {
        let values: BTreeSet<String> = results.iter().map(|result| of(result)).collect();
        values.into_iter().filter(|value| !value.is_empty()).collect::<Vec<_>>().join("; ")
    };
    let software = distinct(|result| {
        let commit = result.environment.commit.as_ref();
        format!("hankel {}{}", result.environment.hankel, commit.map_or_else(String::new, |c| format!(", commit {c}")))
    });
    let machine = distinct(|result| {
        let e = &result.environment;
        format!("{}, {} threads, device {}, {}", e.cpu, e.threads, e.device, e.precision)
    });
    let data = distinct(|result| {
        result
            .data
            .iter()
            .map(|file| format!("{} (SHA-256 {:.12}…)", file.path, file.sha256))
            .collect::<Vec<_>>()
            .join("; ")
    });
    let seconds: f64 = results.iter().map(|result| result.wall_time_seconds).sum();
    let out = [
        ("Runs", results.len().to_string()),
        ("Wall time of all", duration(seconds)),
        ("Software", software),
        ("Machine", machine),
        ("Data", data),
    ];
    out.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The primary metric of every row in one sentence, without a verdict.
fn headline(run: &Run, result: &RunResult) -> String {
    let primary = &result.task.primary_metric;
    let figures: Vec<String> = run
        .rows()
        .iter()
        .filter_map(|row| Some(format!("{} {}", row.name, score(row.validation.get(primary)?))))
        .collect();
    if figures.is_empty() {
        return "No row has been evaluated.".to_owned();
    }
    let name = capitalised(&metric_name(primary));
    format!("{name} on validation: {}.", figures.join(", "))
}

fn run_facts(result: &RunResult) -> Vec<(String, String)> {
    let backbone = &result.backbone;
    let task = &result.task;
    let mut out = vec![
        (
            "Task",
            format!("{}, T = {}, vocabulary {}", task.kind, task.sequence_length, thousands(task.vocabulary as u64)),
        ),
        (
            "Backbone",
            format!(
                "{} ({}), {} layers, width {}, {} parameters",
                backbone.kind,
                backbone.source,
                backbone.layers,
                backbone.d_model,
                thousands(backbone.parameters)
            ),
        ),
        ("Seed", result.seed.to_string()),
        ("Wall time", duration(result.wall_time_seconds)),
    ];
    if let Some(peak) = result.peak_memory_bytes {
        let own = result
            .peak_anonymous_bytes
            .map_or_else(String::new, |own| format!(", {} without mapped files", bytes(own)));
        out.push(("Peak memory", bytes(peak) + &own));
    }
    if let Some(peak) = result.peak_device_bytes {
        out.push(("Peak memory of tensors on the GPU", bytes(peak)));
    }
    let environment = &result.environment;
    out.push(("Device", format!("{}, {} threads, {}", environment.device, environment.threads, environment.precision)));
    out.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
