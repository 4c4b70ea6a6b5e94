//! Rows at learning rates of their own: where an experiment has several, each row is taken at the one that is best for it.

use crate::{Cell, CellId};
use hankel_trainer::results::{AdapterResult, Scores, metric};
use std::collections::BTreeMap;

/// The axis of learning rates: the short name of `train.lr`.
pub(crate) const RATE: &str = "lr";

/// The cells without the axis of rates: every row is taken at the rate with the least validation loss, averaged over the cells that differ
/// only in the axes `units`. Rows derived from a row are taken at its rate. Figures are those of the test split where there is one, since
/// nothing was chosen on it; cells with several rates and no test split have none. `validation` and `test` are swapped in the result:
/// `validation` has the figures to report, `test` the scores by which rows can be chosen.
pub(crate) fn at_their_own(cells: &[&Cell], units: &[String]) -> Vec<Cell> {
    if cells.iter().all(|cell| cell.id.axis(RATE).is_none()) {
        let tested = |cell: &&Cell| {
            let mut cell = (*cell).clone();
            for row in cell.result.iter_mut().flat_map(|result| &mut result.rows) {
                if let Some(tested) = tested(row) {
                    row.test = Some(std::mem::replace(&mut row.validation, tested));
                }
            }
            cell
        };
        return cells.iter().map(tested).collect();
    }
    let mut points: Vec<(CellId, Vec<&Cell>)> = Vec::new();
    for cell in cells {
        let id = CellId { axes: without(&cell.id, &[RATE.to_owned()]), ..cell.id.clone() };
        match points.iter_mut().find(|(own, _)| *own == id) {
            Some((_, own)) => own.push(cell),
            None => points.push((id, vec![cell])),
        }
    }
    let of_group = |id: &CellId| without(id, &[units, &[RATE.to_owned()]].concat());
    let merged = |(id, own): &(CellId, Vec<&Cell>)| {
        let group: Vec<&Cell> = cells.iter().copied().filter(|cell| of_group(&cell.id) == of_group(id)).collect();
        let Some(first) = own.iter().find_map(|cell| cell.result.as_ref()) else {
            return Cell { id: id.clone(), ..own[0].clone() };
        };
        let mut names: Vec<&str> = Vec::new();
        for row in own.iter().filter_map(|cell| cell.result.as_ref()).flat_map(|result| &result.rows) {
            if !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        let mut result = first.clone();
        result.rows = names.iter().filter_map(|name| at_its_own(name, own, &group)).collect();
        // A row that came to nothing at the rate that is best for it elsewhere.
        let lost = names.len() > result.rows.len();
        let diverged = own.iter().find_map(|cell| cell.diverged.clone()).filter(|_| lost);
        let lost_rows = own.iter().flat_map(|cell| cell.diverged_rows.clone());
        let is_lost = |name: &str| result.rows.iter().all(|row| row.name != name);
        let diverged_rows = lost_rows.filter(|(name, _)| is_lost(name)).collect();
        Cell { id: id.clone(), diverged, diverged_rows, result: Some(result), ..Cell::default() }
    };
    points.iter().map(merged).collect()
}

fn without(id: &CellId, names: &[String]) -> Vec<(String, String)> {
    id.axes.iter().filter(|(axis, _)| !names.contains(axis)).cloned().collect()
}

/// The row of the point `own` at the rate that is best for it in the `group`.
fn at_its_own(name: &str, own: &[&Cell], group: &[&Cell]) -> Option<AdapterResult> {
    let find = |cell: &Cell, name: &str| -> Option<AdapterResult> {
        cell.result.as_ref()?.rows.iter().find(|row| row.name == *name).cloned()
    };
    let trained = own.iter().find_map(|cell| find(cell, name))?;
    let trained = trained.derived_from().unwrap_or(name).to_owned();
    let mut losses: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for cell in group {
        let loss = find(cell, &trained).and_then(|row| row.validation.get(metric::LOSS));
        if let (Some(rate), Some(loss)) = (cell.id.axis(RATE), loss.filter(|loss| loss.is_finite())) {
            losses.entry(rate).or_default().push(loss);
        }
    }
    // A rate with fewer finite losses than another is left out, since runs of it diverged: the mean of the rest is not comparable.
    let most = losses.values().map(Vec::len).max()?;
    let mean = |losses: &Vec<f64>| losses.iter().sum::<f64>() / losses.len() as f64;
    let whole = losses.iter().filter(|(_, losses)| losses.len() == most);
    let (best, _) = whole.min_by(|a, b| mean(a.1).total_cmp(&mean(b.1)))?;
    let row = find(own.iter().find(|cell| cell.id.axis(RATE) == Some(*best))?, name)?;
    Some(AdapterResult { validation: tested(&row)?, test: Some(row.validation.clone()), ..row })
}

/// The scores of a row on the test split, if there is one; what is measured once for a row stands among those of the validation split.
fn tested(row: &AdapterResult) -> Option<Scores> {
    let mut test = row.test.clone()?;
    let once = row.validation.metrics.iter().filter(|(name, _)| name.as_str() == metric::FORGETTING);
    test.metrics.extend(once.map(|(name, value)| (name.clone(), *value)));
    Some(test)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::result;
    use hankel_trainer::results::Scores;

    fn scores(loss: f64) -> Scores {
        Scores { metrics: BTreeMap::from([("loss".to_owned(), loss)]), ..Scores::default() }
    }

    fn row(name: &str, from: Option<&str>, loss: f64) -> AdapterResult {
        AdapterResult {
            name: name.into(),
            truncated_from: from.map(Into::into),
            validation: scores(loss),
            test: Some(scores(10.0 + loss)),
            ..AdapterResult::default()
        }
    }

    fn cell(rate: &str, seed: &str, rows: Vec<AdapterResult>) -> Cell {
        let axes = vec![
            ("length".to_owned(), "64".to_owned()),
            (RATE.to_owned(), rate.to_owned()),
            ("seed".to_owned(), seed.to_owned()),
        ];
        let id = CellId { experiment: "e".into(), scale: Some("paper".into()), axes };
        let mut result = result();
        result.rows = rows;
        Cell { id, result: Some(result), ..Cell::default() }
    }

    #[test]
    fn every_row_is_taken_at_its_own_rate_by_the_validation_split_and_told_by_the_test_split() {
        let cells = [
            cell("0.001", "0", vec![row("h", None, 1.0), row("h-6", Some("h"), 0.1), row("l", None, 3.0)]),
            cell("0.01", "0", vec![row("h", None, 0.9), row("h-6", Some("h"), 0.2), row("l", None, 1.0)]),
            cell("0.001", "1", vec![row("h", None, 1.0), row("h-6", Some("h"), 0.3), row("l", None, 1.1)]),
            cell("0.01", "1", vec![row("h", None, 1.4), row("h-6", Some("h"), 0.4), row("l", None, 1.2)]),
        ];
        let units = ["seed".to_owned()];
        let merged = at_their_own(&cells.iter().collect::<Vec<_>>(), &units);
        let test = |index: usize, name: &str| {
            let rows = &merged[index].result.as_ref().unwrap().rows;
            rows.iter().find(|row| row.name == name).unwrap().validation.get("loss").unwrap()
        };
        assert_eq!(merged.len(), 2);
        assert_eq!(merged[0].id.axes, [("length".to_owned(), "64".to_owned()), ("seed".to_owned(), "0".to_owned())]);
        // h is better at 0.001 on average (1.0 to 1.15), though not with seed 0; what is made of it goes with it.
        assert_eq!((test(0, "h"), test(1, "h")), (11.0, 11.0));
        assert_eq!((test(0, "h-6"), test(1, "h-6")), (10.1, 10.3));
        // l at 0.01, 1.1 to 2.05.
        assert_eq!((test(0, "l"), test(1, "l")), (11.0, 11.2));
    }

    #[test]
    fn a_rate_that_diverges_is_left_out_and_other_cells_are_left_alone() {
        let mut cells = vec![
            cell("0.001", "0", vec![row("h", None, 1.0)]),
            cell("0.01", "0", vec![row("h", None, 0.1)]),
            cell("0.001", "1", vec![row("h", None, 1.0)]),
            cell("0.01", "1", vec![row("h", None, 0.1)]),
        ];
        (cells[3].result, cells[3].diverged) = (None, Some("loss".into()));
        let merged = at_their_own(&cells.iter().collect::<Vec<_>>(), &["seed".to_owned()]);
        let losses: Vec<_> =
            merged.iter().map(|cell| cell.result.as_ref().unwrap().rows[0].validation.get("loss")).collect();
        assert_eq!(losses, [Some(11.0), Some(11.0)]);
        for cell in &mut cells {
            cell.id.axes.retain(|(axis, _)| axis != RATE);
        }
        // One rate: the test split tells, too, where there is one.
        cells[0].result.as_mut().unwrap().rows[0].test = None;
        let told = at_their_own(&cells.iter().collect::<Vec<_>>(), &["seed".to_owned()]);
        let losses: Vec<_> =
            told.iter().filter_map(|cell| cell.result.as_ref()?.rows[0].validation.get("loss")).collect();
        assert_eq!(losses, [1.0, 10.1, 11.0]);
    }
}
