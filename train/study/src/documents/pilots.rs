//! Rates that trainings before a study chose: the tables in sweeps.md, and the files that they are set in.

use super::{page, root, says};
use crate::{Cell, read_results};
use std::fs;

/// The validation loss of a row at a rate, the mean over the tables of a pilot.
fn loss(cells: &[Cell], row: &str, rate: &str) -> f64 {
    let at_rate = cells.iter().filter(|cell| cell.id.axis("lr") == Some(rate));
    let losses: Vec<f64> = at_rate
        .map(|cell| {
            let rows = &cell.result.as_ref().unwrap().rows;
            rows.iter().find(|found| found.name == row).unwrap().validation.get("loss").unwrap()
        })
        .collect();
    assert_eq!(losses.len(), 2, "{row} at {rate}");
    f64::midpoint(losses[0], losses[1])
}

/// Every row of `dfa` at scale `paper` has the rate of its least validation loss after 2,000 steps.
#[test]
fn rates_of_dfa_are_their_result() {
    const RATES: [&str; 2] = ["0.01", "0.03"];
    let page = page("sweeps.md");
    let cells: Vec<Cell> = read_results(&root().join("docs/results/rates")).unwrap();
    let cells: Vec<Cell> = cells.into_iter().filter(|cell| cell.id.scale.as_deref() == Some("rates-2000")).collect();
    let file = fs::read_to_string(root().join("train/experiments/paper/dfa.toml")).unwrap();
    let file: toml::Table = file.parse().unwrap();
    for row in ["none", "hrm", "lora", "adalora", "dora", "lora-mlp"] {
        let [low, high] = RATES.map(|rate| loss(&cells, row, rate));
        let best = if low < high { RATES[0] } else { RATES[1] };
        says(&page, &format!("| `{row}` | {low:.4} | {high:.4} | {best} |"));
        for scale in ["paper", "paper-seeds"] {
            let scale = file["sweep"]["scales"][scale].as_table().unwrap();
            if scale["only"].as_array().unwrap().iter().any(|name| name.as_str() == Some(row)) {
                let rate = scale[&format!("adapter.{row}.train.lr")].as_float().unwrap();
                assert_eq!(rate.to_string(), best, "{row}");
            }
        }
    }
}
