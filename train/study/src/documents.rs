//! What pages of docs/ say in figures stands in the files of results that they name.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// The products of one row in performance.md: before and after, and the bandwidth after.
#[test]
fn products_of_one_row_are_their_result() {
    let page = page("performance.md");
    let text = fs::read_to_string(root().join("docs/results/performance/few-rows.json")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = result["rows"].as_array().unwrap();
    let of = |format: &str, code: &str| {
        let one = rows.iter().find(|row| row["type"] == format && row["rows"] == 1 && row["code"] == code);
        one.map(|row| (row["milliseconds"].as_f64().unwrap(), row["weight_gb_per_s"].as_f64().unwrap()))
    };
    let lines: Vec<String> = page
        .lines()
        .filter(|line| line.starts_with("| ") && line.matches(" ms |").count() == 2 && line.matches('|').count() == 5)
        .filter(|line| of(line[2..].split(' ').next().unwrap(), "before").is_some())
        .map(str::to_owned)
        .collect();
    assert!(lines.len() >= 10, "{lines:?}");
    for line in lines {
        let format = line[2..].split(' ').next().unwrap();
        let ((before, _), (after, bandwidth)) = (of(format, "before").unwrap(), of(format, "after").unwrap());
        let printed: Vec<f64> = line.split([' ', '|']).skip(2).filter_map(|word| word.parse().ok()).collect();
        // The file has two decimals, the page one.
        let near = |(printed, exact): (&f64, f64)| (printed - exact).abs() < 0.0501;
        assert!(
            printed.len() == 3 && printed.iter().zip([before, after, bandwidth]).all(near),
            "{line}: {before} {after} {bandwidth}"
        );
    }
}

/// The table of truncation under weights in truncation.md: means over all seeds of the file.
#[test]
fn truncation_under_weights_is_its_result() {
    let page = page("truncation.md");
    let text = fs::read_to_string(root().join("docs/results/weighted/small.jsonl")).unwrap();
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mean = |task: &str, order: u64, method: &str| {
        let asked = |row: &&serde_json::Value| {
            row["task"] == task && row["method"] == method && (method == "full" || row["order"] == order)
        };
        let values: Vec<f64> = rows.iter().filter(asked).map(|row| row["value"].as_f64().unwrap()).collect();
        assert_eq!(values.len(), 3, "{task} {order} {method}");
        values.iter().sum::<f64>() / 3.0
    };
    let columns = [("bytes", 16), ("bytes", 8), ("automaton", 8), ("automaton", 4), ("automaton", 2)];
    for (name, method) in [
        ("full adapter", "full"),
        ("`bt`", "bt"),
        ("`svd`", "svd"),
        ("`modal`", "modal"),
        ("`energy`", "energy"),
        ("`hankel`", "hankel"),
        ("`h2`", "h2"),
        ("empirical Gramians", "empirical"),
        ("`--weight`", "weighted"),
        ("`--weight`, `--gramians enns`", "enns"),
        ("`--weight`, `--method h2`", "weighted-h2"),
    ] {
        let figures = columns.map(|(task, order)| format!("{:.4}", mean(task, order, method)));
        let line = format!("| {name} | {} |", figures.join(" | "));
        assert!(page.lines().any(|found| found.replace("**", "") == line), "not in truncation.md: {line}");
    }
}

/// The table of states shared out over layers in truncation.md: what is lost against the full adapter of the same seed, mean over seeds.
#[test]
fn states_shared_out_are_their_result() {
    let page = page("truncation.md");
    let text = fs::read_to_string(root().join("docs/results/budget/small.jsonl")).unwrap();
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let value = |task: &str, way: &str, budget: u64, seed: u64| {
        let asked = |row: &&serde_json::Value| {
            row["task"] == task && row["way"] == way && row["budget"] == budget && row["seed"] == seed
        };
        rows.iter().find(asked).unwrap()["value"].as_f64().unwrap()
    };
    for (share, name) in [(2, "a half"), (4, "a quarter"), (8, "an eighth"), (16, "a sixteenth")] {
        let mut figures = Vec::new();
        for (task, states) in [("automaton", 32), ("text", 128)] {
            for way in ["even", "bounds", "task"] {
                let lost = |seed| value(task, way, states / share, seed) - value(task, "full", states, seed);
                figures.push(format!("{:.4}", (lost(3) + lost(4) + lost(5)) / 3.0));
            }
        }
        let line = format!("| {name} | {} |", figures.join(" | "));
        assert!(page.lines().any(|found| found == line), "not in truncation.md: {line}");
    }
}
