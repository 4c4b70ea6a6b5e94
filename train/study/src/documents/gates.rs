//! The table of adapters.md of gates while they train.

use super::{number, page, root, says};
use serde_json::Value;
use std::fs;

#[test]
fn gates_over_steps_are_their_result() {
    let text = fs::read_to_string(root().join("docs/results/gates-over-steps.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let rows = file["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    let page = page("adapters.md");
    for step in [100, 500, 1000, 2000, 3000, 4000, 4500, 5000] {
        // Of all layers of all seeds.
        let gates: Vec<f64> = rows
            .iter()
            .flat_map(|row| {
                let at = row["steps"].as_array().unwrap().iter().position(|found| *found == step).unwrap();
                row["gates"].as_array().unwrap().iter().map(move |layer| number(&layer[at]))
            })
            .collect();
        assert_eq!(gates.len(), 20);
        let (least, most) =
            gates.iter().fold((f64::MAX, f64::MIN), |(low, high), gate| (low.min(*gate), high.max(*gate)));
        let mean = gates.iter().map(|gate| gate.abs()).sum::<f64>() / 20.0;
        says(&page, &format!("| {step} | {mean:.3} | {least:.3} to {most:.3} |"));
    }
    // The same trainings as those of the claims: their gates at the end.
    let cells = fs::read_to_string(root().join("docs/results/gates-paper.jsonl")).unwrap();
    for cell in cells.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let row = cell["result"]["rows"].as_array().unwrap().iter().find(|row| row["name"] == "hrm").unwrap().clone();
        let own = rows.iter().find(|row| row["seed"] == cell["result"]["seed"]).unwrap();
        for (layer, gates) in row["layers"].as_array().unwrap().iter().zip(own["gates"].as_array().unwrap()) {
            let last = gates.as_array().unwrap().last().unwrap();
            assert!((number(&layer["gate"]) - number(last)).abs() < 1e-3, "{layer}");
        }
    }
}
