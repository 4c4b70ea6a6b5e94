//! The tables of adapters.md of how an adapter should begin.

use super::{number, page, root, says};
use crate::statistics::holm;
use hankel_trainer::format::thousands;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

/// Validation and test loss by rate and seed.
type Losses = BTreeMap<String, BTreeMap<u64, [f64; 2]>>;

/// The rows of a file with the numbers of their parameters. A cell that diverged has none, a loss that is not finite counts as infinite.
fn read(name: &str) -> BTreeMap<String, (u64, Losses)> {
    let text = fs::read_to_string(root().join("docs/results/starts").join(name)).unwrap();
    let mut rows: BTreeMap<String, (u64, Losses)> = BTreeMap::new();
    for line in text.lines() {
        let cell: Value = serde_json::from_str(line).unwrap();
        let rate = cell["axes"].as_array().unwrap().iter().find(|axis| axis[0] == "lr");
        let rate = rate.map_or("", |axis| axis[1].as_str().unwrap());
        for row in cell["result"]["rows"].as_array().into_iter().flatten() {
            let loss = |split: &str| row[split]["metrics"]["loss"].as_f64().unwrap_or(f64::INFINITY);
            let of_row = rows.entry(row["name"].as_str().unwrap().to_owned()).or_default();
            of_row.0 = row["parameters"]["adapter"].as_u64().unwrap();
            let seed = cell["result"]["seed"].as_u64().unwrap();
            of_row.1.entry(rate.to_owned()).or_default().insert(seed, ["validation", "test"].map(loss));
        }
    }
    rows
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    values.sum::<f64>() / n
}

/// Every row at the rate of its least mean validation loss in the first file; test losses of the second, or of the same.
#[test]
fn starts_are_their_results() {
    let page = page("adapters.md");
    for (rates, seeds) in
        [("stories260k.jsonl", None), ("tiny_gpt.jsonl", None), ("smollm2-rates.jsonl", Some("smollm2-seeds.jsonl"))]
    {
        let (rates, seeds) = (read(rates), seeds.map(read));
        let best = |row: &str| {
            let of = |losses: &BTreeMap<u64, [f64; 2]>| mean(losses.values().map(|loss| loss[0]));
            rates[row].1.iter().min_by(|a, b| of(a.1).total_cmp(&of(b.1))).unwrap()
        };
        let tested = |row: &str| -> Vec<f64> {
            let losses = seeds.as_ref().map_or_else(|| best(row).1, |seeds| seeds[row].1.values().next().unwrap());
            losses.values().map(|loss| loss[1]).collect()
        };
        let default = tested("default");
        for (row, (parameters, _)) in &rates {
            let losses = tested(row);
            assert_eq!(losses.len(), 3, "{row}");
            let least = losses.iter().copied().fold(f64::INFINITY, f64::min);
            let most = losses.iter().copied().fold(0.0, f64::max);
            let rate = if *parameters == 0 { "" } else { best(row).0 };
            let differences: Vec<f64> = losses.iter().zip(&default).map(|(own, other)| own - other).collect();
            let middle = mean(differences.iter().copied());
            // The quantile 0.975 of Student's t with two degrees of freedom.
            let half = 4.303 * (differences.iter().map(|d| (d - middle).powi(2)).sum::<f64>() / 6.0).sqrt();
            let apart = if row == "default" {
                String::new()
            } else {
                format!("{middle:+.3} ({:+.3} to {:+.3})", middle - half, middle + half)
            };
            let line = format!(
                "| {row} | {} | {rate} | {:.3} | {least:.3} to {most:.3} | {apart} |",
                thousands(*parameters),
                mean(losses.iter().copied())
            );
            says(&page, &line);
        }
    }
}

/// A short memory against the default start on the small models, among all differences from it: Student's t with two degrees of freedom, and
/// Holm's correction.
#[test]
fn a_short_memory_is_not_told_apart_among_all_rows() {
    let p = ["stories260k.jsonl", "tiny_gpt.jsonl"].map(|file| {
        let rows = read(file);
        let tested = |row: &str| -> Vec<f64> {
            let of = |losses: &BTreeMap<u64, [f64; 2]>| mean(losses.values().map(|loss| loss[0]));
            let (_, best) = rows[row].1.iter().min_by(|a, b| of(a.1).total_cmp(&of(b.1))).unwrap();
            best.values().map(|loss| loss[1]).collect()
        };
        let names: Vec<&String> = rows.keys().filter(|name| *name != "default").collect();
        assert_eq!(names.len(), 12);
        let default = tested("default");
        let p = names.iter().map(|name| {
            let differences: Vec<f64> = tested(name).iter().zip(&default).map(|(own, other)| own - other).collect();
            let middle = mean(differences.iter().copied());
            let error = (differences.iter().map(|d| (d - middle).powi(2)).sum::<f64>() / 6.0).sqrt();
            let t = (middle / error).abs();
            1.0 - t / (2.0 + t * t).sqrt()
        });
        let corrected = holm(&p.collect::<Vec<_>>());
        corrected[names.iter().position(|name| *name == "c0-short").unwrap()]
    });
    let said = format!("over twelve comparisons (p = {:.2} and {:.2})", p[0], p[1]);
    assert!(page("adapters.md").contains(&said), "{said}");
}

/// What the page says of the loss before the first step, and after 50, beside the model alone.
#[test]
fn first_steps_are_their_result() {
    let text = fs::read_to_string(root().join("docs/results/starts/first-steps.jsonl")).unwrap();
    let runs: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let page = page("adapters.md").replace('\n', " ");
    // Losses after 50 steps, and that of the model alone, of the runs on a model.
    let after = |model: &str| -> (Vec<f64>, f64) {
        let of_model: Vec<&Value> =
            runs.iter().filter(|run| run["model"].as_str().unwrap().starts_with(model)).collect();
        let mut losses: Vec<f64> = of_model.iter().map(|run| number(&run["after"]["default"])).collect();
        losses.sort_by(f64::total_cmp);
        (losses, number(&of_model[0]["after"]["none"]))
    };
    assert!(runs.iter().all(|run| run["before"]["default"] == run["before"]["none"]));
    let (llama, tiny, smollm2) = (after("stories260k"), after("tiny_gpt"), after("SmolLM2"));
    assert!(llama.0.iter().all(|loss| *loss < llama.1) && smollm2.0.iter().all(|loss| *loss < smollm2.1));
    assert_eq!(tiny.0.iter().filter(|loss| **loss < tiny.1).count(), 2);
    for sentence in [
        format!("on the llama ({:.2} to {:.2} vs {:.2})", llama.0[0], llama.0[2], llama.1),
        format!("{:.2} vs {:.2} on the validation split with seed 1", smollm2.0[0], smollm2.1),
        format!("with two of three on TinyGPT ({:.2} to {:.2} vs {:.2};", tiny.0[0], tiny.0[2], tiny.1),
    ] {
        assert!(page.contains(&sentence), "{sentence}");
    }
}
