//! What sweeps.md says that runs cost, by what was measured.

use super::{entry, number, page, performance, root, says, step};
use crate::{Cell, claims, read_results};
use hankel_trainer::format::thousands;
use std::path::Path;

/// Where results are committed.
fn results() -> Vec<Cell> {
    read_results(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results")).unwrap()
}

/// The mean of what the rows of a cell took together, in seconds, over the cells of an experiment at scale `paper`.
fn seconds_of_a_cell(experiment: &str) -> f64 {
    let cells = results();
    let of_it =
        cells.iter().filter(|cell| cell.id.experiment == experiment && cell.id.scale.as_deref() == Some("paper"));
    let seconds: Vec<f64> = of_it
        .map(|cell| {
            let rows = &cell.result.as_ref().unwrap().rows;
            rows.iter().filter_map(|row| row.training.as_ref()).map(|training| training.seconds).sum()
        })
        .collect();
    seconds.iter().sum::<f64>() / seconds.len() as f64
}

/// The middle of what a token takes, in seconds, over the cells of an experiment at a scale: in the training of a row, or in that of the backbone.
fn token(experiment: &str, scale: &str, row: Option<&str>) -> f64 {
    let cells = results();
    let results =
        cells.iter().filter(|cell| cell.id.experiment == experiment && cell.id.scale.as_deref() == Some(scale));
    let mut seconds: Vec<f64> = results
        .map(|cell| {
            let result = cell.result.as_ref().unwrap();
            let (seconds, tokens) = if let Some(row) = row {
                let training = result.rows.iter().find(|found| found.name == row).unwrap().training.as_ref().unwrap();
                (training.seconds, training.tokens)
            } else {
                let pretraining = result.backbone.pretrain.as_ref().unwrap();
                (pretraining.seconds, pretraining.tokens)
            };
            seconds / tokens as f64
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    f64::midpoint(seconds[(seconds.len() - 1) / 2], seconds[seconds.len() / 2])
}

/// Hours of a core that sweeps of scale `paper` took which are complete.
#[test]
fn hours_of_paper_are_its_results() {
    let page = page("sweeps.md");
    let cells = results();
    let names = "data dfa dfa_released frozen_gates gates initialisation maestro_pretrained memory modes ordering orders parity rank selective sites svd threshold";
    let hours = |name: &str, scale: &str| {
        let own = cells.iter().filter(|cell| cell.id.experiment == name && cell.id.scale.as_deref() == Some(scale));
        let seconds = own.map(|cell| {
            let result = cell.result.as_ref().unwrap();
            result.wall_time_seconds * result.environment.threads as f64
        });
        seconds.sum::<f64>() / 3600.0
    };
    let of_paper: Vec<String> =
        names.split(' ').map(|name| format!("`{name}` {:.1} h", hours(name, "paper"))).collect();
    let (last, others) = of_paper.split_last().unwrap();
    let said = format!(
        "on machines shared with others: {} and {last}; `dfa` at scale `paper-seeds` took {:.1} h.",
        others.join(", "),
        hours("dfa", "paper-seeds")
    );
    assert!(page.contains(&said), "{said}");
}

/// What the sweeps of scale `paper` cost, by the middle of what a token took in cells on one core.
#[test]
fn costs_of_paper_are_its_cells() {
    let page = page("sweeps.md");
    // Of a cell, in seconds per million tokens; a backbone is trained once for all cells that share it.
    let line = |cells: u32, rows: u32, tokens: f64, seconds: f64, pretrained: Option<(u32, f64, f64)>| {
        let pretraining =
            pretrained.map_or_else(String::new, |(backbones, tokens, _)| format!(" {backbones} x {tokens:.1}"));
        let seconds_of_backbones = pretrained.map_or(0.0, |(backbones, _, seconds)| f64::from(backbones) * seconds);
        let hours = (f64::from(cells) * seconds + seconds_of_backbones) * 1e6 / 3600.0;
        let line = format!("| {cells} | {rows} | {tokens:.1} |{pretraining} | {hours:.1} h |");
        assert!(page.lines().any(|found| found.ends_with(&line)), "not on the page: {line}");
    };
    let [none, hrm] = ["none", "hrm"].map(|row| token("selective", "paper", Some(row)));
    for (cells, rows, tokens) in [
        (14, 5, 16.4),
        (12, 2, 16.4),
        (12, 1, 4.1),
        (12, 2, 4.1),
        (12, 3, 4.1),
        (5, 6, 4.1),
        (5, 11, 6.4),
        (10, 3, 6.4),
        (10, 4, 6.4),
        (24, 2, 6.4),
        (5, 5, 6.4),
        (3, 5, 4.1),
    ] {
        line(cells, rows, tokens, tokens * (none + f64::from(rows) * hrm), None);
    }
    for (experiment, cells, rows, tokens) in
        [("dfa_released", 5, 2, 18.5), ("memory", 120, 3, 0.5), ("memory_washout", 120, 2, 1.0)]
    {
        line(cells, rows, tokens, seconds_of_a_cell(experiment) / 1e6, None);
    }
    let rows = ["hrm", "lora"].map(|row| token("enwik8_pretrained", "small", Some(row)));
    let (adapter, pretraining) = (f64::midpoint(rows[0], rows[1]), token("enwik8_pretrained", "small", None));
    line(32, 1, 8.2, 8.2 * (none + adapter), None);
    for (cells, rows, tokens, backbones, before) in [(5, 1, 10.2, 5, 2.0), (3, 8, 4.1, 1, 49.2), (6, 8, 4.1, 3, 49.2)] {
        let seconds = tokens * f64::from(rows) * adapter;
        line(cells, rows, tokens, seconds, Some((backbones, before, before * pretraining)));
    }
}

/// What the language studies cost in sweeps.md, by the measured step.
#[test]
fn costs_of_language_are_its_step() {
    let page = page("sweeps.md");
    let token = step(entry(&performance("smollm2-step")["sections"][0], "ours, LoRA")) / 2048.0;
    for (tokens, steps, rows) in
        [(700, 1000, 18), (8192, 400, 90), (16384, 400, 90), (1350, 2000, 18), (528, 1000, 960)]
    {
        let hours = token * (tokens * steps) as f64 / 3600.0;
        let all = hours * f64::from(rows);
        let line = format!("| {} | {} | {hours:.1} h | {rows} | {all:.0} h |", thousands(tokens), thousands(steps));
        assert!(page.lines().any(|found| found.ends_with(&line)), "not on the page: {line}");
    }
}

/// What enwik8 costs in sweeps.md, by the measured steps.
#[test]
fn costs_of_enwik8_are_its_steps() {
    let page = page("sweeps.md");
    let (mut total, mut on_card) = (0.0, 0.0);
    for (section, epochs) in performance("steps")["sections"].as_array().unwrap().iter().zip([25, 40, 40]) {
        let [hrm, lora] = ["ours, HRM", "ours, LoRA"].map(|name| entry(section, name));
        let batch = number(&lora["settings"]["batch"]);
        let steps = 10_000 * epochs / 32;
        // A step of 32 sequences is several of the measured ones.
        let [hrm, lora] = [hrm, lora].map(|entry| steps as f64 * step(entry) * 32.0 / batch / 3600.0);
        let cell = hrm + 3.0 * lora;
        total += 9.0 * cell;
        let length = section["entries"][0]["settings"]["steps"].as_u64().unwrap();
        let tokens = (steps * 32 * length) as f64;
        let [fast, slow] = ["hrm", "lora"].map(|row| tokens / on_a_card(&format!("tiny_gpt {row} T={length} B=32 ")));
        let nine = 9.0 * (fast + 3.0 * slow) / 3600.0;
        on_card += nine;
        let (cells, steps) = (9.0 * cell, thousands(steps));
        says(
            &page,
            &format!("| {length} | {steps} | {hrm:.1} h | {lora:.1} h | {cell:.0} h | {cells:.0} h | {nine:.1} h |"),
        );
    }
    assert!(page.contains(&format!("{total:.0} hours of two cores in all, or {on_card:.0} of an H200")));
}

/// Tokens a second of the first line on a card that begins so.
pub(super) fn on_a_card(beginning: &str) -> f64 {
    let lines = std::fs::read_to_string(root().join("docs/results/performance/h200.txt")).unwrap();
    let line = lines.lines().find(|line| line.trim_start().starts_with(beginning)).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let unit = words.iter().position(|word| *word == "tokens/s").unwrap();
    words[unit - 1].replace(',', "").parse().unwrap()
}

/// What Mistral-7B costs in sweeps.md: five epochs of five rows on six cells of every task, by the measured step of a random model.
#[test]
fn costs_of_mistral_are_its_step() {
    let page = page("sweeps.md");
    let speed = on_a_card("hrm  step 3/3  loss 23.1919");
    assert!(page.contains(&format!("{} tokens a second with an HRM", thousands(speed as u64))));
    for (task, sequences) in [("QuALITY", 2_523), ("QMSum", 1_257), ("NarrativeQA", 32_747)] {
        let row = 5.0 * sequences as f64 * 4096.0 / speed / 3600.0;
        let needs = |id: &str, words: &str| {
            let claims = claims::all();
            let own: Vec<_> = claims.iter().filter(|claim| claim.id.starts_with(id)).collect();
            assert!(!own.is_empty() && own.iter().all(|claim| claim.needs.contains(words)), "{id}: {words}");
        };
        if task == "QuALITY" {
            let hours = format!("{:.0} hours", 3.0 * row);
            assert!(page.contains(&format!("three cells of one row on QuALITY, {hours} in all")));
            needs("gates-mistral", &format!("of {hours} of an H200"));
            needs("gates-contribution", &format!("of {hours} of an H200"));
        }
        let (cell, all, sequences) = (5.0 * row, 30.0 * row, thousands(sequences));
        let hours = thousands(all.round() as u64);
        needs(&task.to_lowercase(), &format!("of which {task} takes {hours} hours of an H200"));
        says(&page, &format!("| {task} | {sequences} | {row:.1} h | {cell:.0} h | {all:.0} h |"));
    }
}
