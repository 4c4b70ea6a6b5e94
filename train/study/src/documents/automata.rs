//! What data.md says of the tables of `dfa` at scale `paper`.

use super::page;
use crate::statistics::Estimate;
use crate::{Cell, read_results};
use std::path::Path;

/// Cells of an experiment at a scale, by the value of an axis.
fn cells(scale: &str) -> Vec<Cell> {
    let cells = read_results(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results")).unwrap();
    cells.into_iter().filter(|cell| cell.id.experiment == "dfa" && cell.id.scale.as_deref() == Some(scale)).collect()
}

fn accuracy(cell: &Cell, name: &str) -> f64 {
    let row = cell.result.as_ref().unwrap().rows.iter().find(|row| row.name == name).unwrap();
    row.validation.get("accuracy").unwrap()
}

/// What windows of 1 to 8 symbols tell.
fn windows(cell: &Cell) -> Vec<f64> {
    let baselines = &cell.result.as_ref().unwrap().task.baselines;
    (1..=8).map(|symbols| baselines[&format!("window_{symbols}")]).collect()
}

/// Whether the automaton, from state 0, is parity: after a symbol it is in one of two states, which one symbol exchanges and the other keeps, and
/// it begins as one of them would go on.
fn is_parity(cell: &Cell) -> bool {
    let table = cell.result.as_ref().unwrap().task.transition_table.as_ref().unwrap();
    let mut visited: Vec<u32> = table[0].clone();
    for index in 0.. {
        let Some(state) = visited.get(index) else { break };
        let next = table[*state as usize].clone();
        visited.extend(next);
        let mut seen = Vec::new();
        visited.retain(|state| {
            !seen.contains(state) && {
                seen.push(*state);
                true
            }
        });
    }
    let [a, b] = visited[..] else { return false };
    let exchanges = |symbol: usize| table[a as usize][symbol] == b && table[b as usize][symbol] == a;
    let keeps = |symbol: usize| table[a as usize][symbol] == a && table[b as usize][symbol] == b;
    let begins = [a, b].iter().any(|state| table[*state as usize] == table[0]);
    begins && ((exchanges(0) && keeps(1)) || (exchanges(1) && keeps(0)))
}

#[test]
fn equal_automata_are_told() {
    let page = page("data.md").replace('\n', " ");
    let says = |words: &str| assert!(page.contains(words), "not on the page: {words}");
    let cells = cells("paper");
    assert_eq!(cells.len(), 14);
    let seed = |cell: &Cell| cell.id.axis("seed").unwrap().to_owned();
    let seeds = |of: &dyn Fn(&Cell) -> bool| -> Vec<String> {
        let mut seeds: Vec<String> = cells.iter().filter(|cell| of(cell)).map(seed).collect();
        seeds.sort_by_key(|seed| seed.parse::<u32>().unwrap());
        seeds
    };
    let first = cells.iter().find(|cell| seed(cell) == "0").unwrap();
    let alike = |cell: &Cell| windows(cell) == windows(first);
    assert_eq!(seeds(&is_parity), ["0", "9", "13"]);
    assert_eq!(seeds(&alike), ["0", "5", "9", "13"]);
    let ahead = |cell: &Cell| accuracy(cell, "hrm") - accuracy(cell, "lora");
    let of_seed = |wanted: &str| ahead(cells.iter().find(|cell| seed(cell) == wanted).unwrap());
    let [zero, five, nine, thirteen] = ["0", "5", "9", "13"].map(of_seed);
    says(&format!("by {zero:.3}, {five:.3}, {nine:.3} and {thirteen:.3} in the order of their seeds"));
    let others: Vec<f64> = cells.iter().filter(|cell| !alike(cell)).map(ahead).collect();
    let behind = |values: &[f64]| {
        let estimate = Estimate::of(values).unwrap();
        let text = |value: f64| format!("{value:.3}").replace('-', "\u{2212}");
        [-estimate.summary.mean, -estimate.interval.1, -estimate.interval.0].map(text)
    };
    let [mean, low, high] = behind(&others);
    says(&format!("behind by {mean} on average over the ten others (95 % interval {low} to {high})"));
    let once: Vec<f64> = others.iter().copied().chain([five, (zero + nine + thirteen) / 3.0]).collect();
    let [mean, low, high] = behind(&once);
    says(&format!("HRM is behind by {mean} over 12 ({low} to {high})"));
    let [mean, low, high] = behind(&cells.iter().map(ahead).collect::<Vec<_>>());
    says(&format!("over all 14 by {mean} ({low} to {high})"));
    let table = |cell: &Cell| cell.result.as_ref().unwrap().task.transition_table.clone();
    let again = self::cells("paper-seeds");
    let again = again.iter().find(|cell| seed(cell) == "0" && table(cell) == table(first)).unwrap();
    let [here, there] = [first, again].map(|cell| accuracy(cell, "hrm"));
    says(&format!("HRM has {here:.3} in `dfa` at scale `paper` and {there:.3} at `paper-seeds`"));
}
