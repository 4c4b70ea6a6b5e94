//! Tables of automata that windows of symbols cannot tell apart: they count as units, and may be one automaton under several names.

use crate::{Cell, SEED};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A sentence for each scale; nothing where all tables differ.
pub(super) fn section(experiment: &str, cells: &[Cell]) -> String {
    let own: Vec<&Cell> = cells.iter().filter(|cell| cell.id.experiment == experiment).collect();
    let scales: BTreeSet<&Option<String>> = own.iter().map(|cell| &cell.id.scale).collect();
    let mut out = String::new();
    for scale in scales {
        // Seeds of which the tables differ, by what windows tell of them.
        let mut seeds: BTreeMap<Vec<u64>, BTreeMap<&Vec<Vec<u32>>, &str>> = BTreeMap::new();
        for cell in own.iter().filter(|cell| cell.id.scale == *scale) {
            let (Some(task), Some(seed)) = (cell.result.as_ref().map(|result| &result.task), cell.id.axis(SEED)) else {
                continue;
            };
            let windows = task.baselines.iter().filter(|(name, _)| name.starts_with("window_"));
            let told: Vec<u64> = windows.map(|(_, value)| value.to_bits()).collect();
            if let Some(table) = task.transition_table.as_ref().filter(|_| told.len() > 1) {
                seeds.entry(told).or_default().entry(table).or_insert(seed);
            }
        }
        let scale = scale.as_deref().map_or_else(String::new, |scale| format!(" at scale `{scale}`"));
        for (told, alike) in seeds.iter().filter(|(_, alike)| alike.len() > 1) {
            let longest = told.len() - 1;
            let mut of: Vec<&str> = alike.values().copied().collect();
            of.sort_by_key(|seed| seed.parse::<u64>().unwrap_or(u64::MAX));
            let _ = write!(
                out,
                "\nOf the tables of seeds {}{scale} windows of up to {longest} symbols tell the same. They may be one automaton under several names \
                 ([data.md](data.md#automata-and-parity)), and count as units of their own all the same.\n",
                of.join(", ")
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CellId;
    use crate::testing::result;
    use hankel_trainer::results::{RunResult, TaskResult};

    #[test]
    fn tables_that_look_alike_are_told() {
        let cell = |seed: &str, table: [[u32; 2]; 2], windows: [f64; 2]| {
            let baselines = BTreeMap::from([("window_1".to_owned(), windows[0]), ("window_2".to_owned(), windows[1])]);
            let table = Some(table.map(|row| row.to_vec()).to_vec());
            let task = TaskResult { baselines, transition_table: table, ..TaskResult::default() };
            let axes = vec![(SEED.to_owned(), seed.to_owned())];
            let id = CellId { experiment: "dfa".into(), scale: Some("paper".into()), axes };
            Cell { id, result: Some(RunResult { task, ..result() }), ..Cell::default() }
        };
        let (parity, renamed) = ([[0, 1], [1, 0]], [[1, 0], [0, 1]]);
        let same = [cell("9", parity, [0.5, 0.6]), cell("10", renamed, [0.5, 0.6]), cell("3", parity, [0.5, 0.7])];
        let told = section("dfa", &same);
        assert!(told.starts_with("\nOf the tables of seeds 9, 10 at scale `paper` windows"), "{told}");
        // The same table, with other seeds of training.
        assert_eq!(section("dfa", &[cell("0", parity, [0.5, 0.6]), cell("1", parity, [0.5, 0.6])]), "");
        assert_eq!(section("parity", &same), "");
    }
}
