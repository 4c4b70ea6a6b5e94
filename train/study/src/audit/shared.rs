//! Trainings that stand in several experiments, the same to the last bit: what one of them shows the others do not show again.

use crate::Cell;
use hankel_trainer::format::counted;
use std::collections::{BTreeMap, BTreeSet};

/// Points of a curve by which trainings are told apart, at least.
const POINTS: usize = 3;

/// A paragraph of the page; nothing where every training is the experiment's own.
pub(super) fn section(experiment: &str, cells: &[Cell]) -> String {
    // Which rows of which experiments a curve is of.
    let mut rows: BTreeMap<Vec<(u64, u64)>, BTreeSet<[&str; 3]>> = BTreeMap::new();
    for cell in cells {
        for row in cell.result.iter().flat_map(|result| &result.rows) {
            let Some(training) = row.training.as_ref().filter(|training| training.curve.len() >= POINTS) else {
                continue;
            };
            let curve = training.curve.iter().map(|(step, loss)| (*step, loss.to_bits())).collect();
            let scale = cell.id.scale.as_deref().unwrap_or("none");
            rows.entry(curve).or_default().insert([&cell.id.experiment, scale, &row.name]);
        }
    }
    let mut shared: BTreeMap<[&str; 4], usize> = BTreeMap::new();
    for of_curve in rows.values() {
        for [_, scale, name] in of_curve.iter().filter(|row| row[0] == experiment) {
            // Two rows of the other experiment may have one curve.
            let others: BTreeSet<[&str; 2]> =
                of_curve.iter().filter(|row| row[0] != experiment).map(|[other, at, _]| [*other, *at]).collect();
            for [other, at] in others {
                *shared.entry([scale, name, other, at]).or_default() += 1;
            }
        }
    }
    if shared.is_empty() {
        return String::new();
    }
    let mut of_rows: BTreeMap<[&str; 2], Vec<String>> = BTreeMap::new();
    for ([scale, name, other, at], runs) in shared {
        let elsewhere = if at == scale { String::new() } else { format!(" at `{at}`") };
        of_rows.entry([scale, name]).or_default().push(format!("`{other}`{elsewhere} ({})", counted(runs, "run")));
    }
    let told: Vec<String> = of_rows
        .into_iter()
        .map(|([scale, name], others)| format!("{name} at `{scale}` in {}", others.join(", ")))
        .collect();
    format!("\nThe same trainings, to the last bit, stand in other experiments: {}.\n", told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CellId;
    use crate::testing::result;
    use hankel_trainer::results::{AdapterResult, RunResult, TrainingResult};

    #[test]
    fn a_training_in_two_experiments_is_told() {
        let cell = |experiment: &str, name: &str, last: f64| {
            let curve = vec![(10, 1.0), (20, 0.5), (30, last)];
            let training = Some(TrainingResult { steps: 30, curve, ..TrainingResult::default() });
            let rows = vec![AdapterResult { name: name.into(), training, ..AdapterResult::default() }];
            let id = CellId { experiment: experiment.into(), scale: Some("paper".into()), axes: Vec::new() };
            Cell { id, result: Some(RunResult { rows, ..result() }), ..Cell::default() }
        };
        let (two, one) = (cell("b", "mlp", 0.25), cell("b", "same", 0.25));
        let cells = [cell("a", "hrm", 0.25), two, one, cell("c", "hrm", 0.26)];
        let told =
            "\nThe same trainings, to the last bit, stand in other experiments: hrm at `paper` in `b` (1 run).\n";
        assert_eq!(section("a", &cells), told);
        assert!(section("b", &cells).contains("mlp at `paper` in `a` (1 run)"));
        assert_eq!(section("c", &cells), "");
    }
}
