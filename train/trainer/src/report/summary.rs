//! The head of the page: what was run, in one screen.

use std::fmt::Write as _;

use super::html::{Text, facts, paragraph, subheading};
use super::run::Run;
use crate::format::{bytes, capitalised, duration, metric_name, score, thousands};
use crate::results::RunResult;

/// The title of the page.
pub(super) fn title(runs: &[Run]) -> String {
    match runs {
        [run] => run.name.clone(),
        _ => format!("Comparison of {} runs", runs.len()),
    }
}

/// The header: title, what the runs were, and notes on what is missing.
pub(super) fn header(title: &str, runs: &[Run]) -> String {
    let mut out = format!("<h1>{}</h1>\n", Text(title));
    for run in runs {
        if runs.len() > 1 {
            out += &subheading(&run.name);
        }
        out += &run_header(run);
    }
    out
}

/// What a run was and what is missing of it, in HTML.
pub fn run_header(run: &Run) -> String {
    let mut out = String::new();
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
    out
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
