//! What is needed to run it again: configuration, data, software and hardware.

use super::Section;
use super::html::{Cell, Text, facts, subheading, table};
use super::run::Run;
use crate::format::{bytes, duration, score, thousands};
use crate::results::{RunResult, metric};

/// Facts of every run and, folded, its configuration.
pub(super) fn section(runs: &[Run]) -> Section {
    let mut html = String::new();
    for run in runs {
        if runs.len() > 1 {
            html += &subheading(&run.name);
        }
        if let Some(result) = &run.result {
            html += &facts(&environment(result));
            if !result.data.is_empty() {
                html += &data(result);
            }
        }
        if let Some(config) = &run.config {
            html += "<details><summary>Resolved configuration</summary><pre><code>";
            html += &Text(config).to_string();
            html += "</code></pre></details>\n";
        }
    }
    Section { title: "Provenance".into(), html, ..Section::default() }
}

fn environment(result: &RunResult) -> Vec<(String, String)> {
    let e = &result.environment;
    let mut out = vec![
        ("Software", format!("hankel {}", e.hankel)),
        ("Platform", e.platform.clone()),
        ("Processor", format!("{}, {} threads", e.cpu, e.threads)),
        ("Instruction sets", e.cpu_features.join(" ")),
        ("Main memory", e.memory_bytes.map_or_else(String::new, bytes)),
    ];
    if let Some(pretrain) = &result.backbone.pretrain {
        let loss = pretrain
            .validation
            .get(metric::LOSS)
            .map_or_else(String::new, |v| format!(", validation loss {}", score(v)));
        let by = pretrain.shared_by.as_ref().map_or_else(String::new, |cell| format!(", by the cell {cell}"));
        out.push((
            "Pretraining",
            format!("{} steps in {}{loss}{by}", thousands(pretrain.steps), duration(pretrain.seconds)),
        ));
    }
    let scans: Vec<String> =
        result.rows.iter().filter_map(|row| Some(format!("{}: {}", row.name, row.scan.as_ref()?))).collect();
    out.push(("Recurrence by", scans.join(", ")));
    out.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn data(result: &RunResult) -> String {
    let rows: Vec<Vec<Cell>> = result
        .data
        .iter()
        .map(|file| {
            let hash = format!("<code class=\"hash\">{}</code>", Text(&file.sha256));
            vec![Cell::text(&file.path), Cell::number(bytes(file.bytes)), Cell::html(hash)]
        })
        .collect();
    table(&[Cell::text("data"), Cell::number("size"), Cell::text("SHA-256")], &rows)
}
