//! The rows of an experiment, and how they are shared out to charts.

use super::experiment::Experiment;
use hankel_plots::Ink;
use hankel_trainer::report::{SLOTS, slots};
use hankel_trainer::results::AdapterResult;

/// Most rows in one chart: the number of colours.
const MOST: usize = 7;

/// A row, by its first appearance.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub first: &'a AdapterResult,
    /// The slot of its ink.
    pub slot: usize,
}

/// Rows for one chart.
pub(super) struct Share<'a> {
    pub rows: Vec<Row<'a>>,
    /// Which it is of several: ` (1 of 2)`, for the title.
    pub title: String,
    /// The same for the name of the file: `1`.
    pub file: String,
}

impl Share<'_> {
    /// The ink of a row, if this chart has it.
    pub(super) fn ink(&self, row: &Row) -> Option<Ink> {
        self.rows.iter().find(|own| own.first.name == row.first.name).map(|own| Ink::Slot(own.slot))
    }
}

impl<'a> Experiment<'a> {
    /// Its rows as they first appear, with the looks that they have in the reports of runs.
    pub(super) fn rows(&self) -> Vec<Row<'a>> {
        let mut found: Vec<&AdapterResult> = Vec::new();
        for row in self.runs.iter().flat_map(|run| run.rows()) {
            if !found.iter().any(|own| own.name == row.name) {
                found.push(row);
            }
        }
        let (derived, trained): (Vec<_>, Vec<_>) =
            found.iter().copied().partition(|row: &&AdapterResult| row.derived_from().is_some());
        let names = |rows: Vec<&'a AdapterResult>| rows.into_iter().map(|row| row.name.as_str()).collect::<Vec<_>>();
        let slots = slots(&names(trained), &names(derived));
        let slot = |row: &AdapterResult| slots.get(row.name.as_str()).copied().unwrap_or_default();
        let numbered = found.iter().map(|&first| Row { first, slot: slot(first) });
        numbered.collect()
    }
}

/// Shares rows out to as few charts as tell them apart: all in one, or adapters of a kind together, and apart from them what was
/// derived from them.
pub(super) fn share(rows: Vec<Row>) -> Vec<Share> {
    let mut charts: Vec<Vec<Row>> = Vec::new();
    if rows.len() <= MOST {
        charts.push(rows);
    } else {
        let (trained, derived): (Vec<Row>, Vec<Row>) =
            rows.into_iter().partition(|row| row.first.derived_from().is_none());
        pack(&mut charts, &families(trained, |row| &row.kind));
        pack(&mut charts, &families(derived, |row| row.derived_from().unwrap_or_default()));
    }
    charts.iter_mut().for_each(|chart| paint(chart));
    let count = charts.len();
    let numbered = charts.into_iter().enumerate().map(|(i, rows)| match count {
        1 => Share { rows, title: String::new(), file: String::new() },
        _ => Share { rows, title: format!(" ({} of {count})", i + 1), file: (i + 1).to_string() },
    });
    numbered.collect()
}

/// Gives every row of a chart its own look, the same in all charts where possible.
fn paint(chart: &mut [Row]) {
    let mut taken = [false; SLOTS];
    for row in chart {
        let mut slots = (row.slot..row.slot + SLOTS).map(|slot| slot % SLOTS);
        if let Some(free) = slots.find(|slot| !taken[*slot]) {
            taken[free] = true;
            row.slot = free;
        }
    }
}

/// Rows with the same key together, in order of appearance.
fn families(rows: Vec<Row<'_>>, key: fn(&AdapterResult) -> &str) -> Vec<Vec<Row<'_>>> {
    let mut families: Vec<Vec<Row>> = Vec::new();
    for row in rows {
        match families.iter_mut().find(|family| key(family[0].first) == key(row.first)) {
            Some(family) => family.push(row),
            None => families.push(vec![row]),
        }
    }
    families
}

/// Adds charts, each of as many families as it has room for. A family that is too large for one is cut into even parts.
fn pack<'a>(charts: &mut Vec<Vec<Row<'a>>>, families: &[Vec<Row<'a>>]) {
    let begin = charts.len();
    for family in families {
        let parts = family.len().div_ceil(MOST);
        for part in family.chunks(family.len().div_ceil(parts)) {
            match charts[begin..].last_mut() {
                Some(chart) if chart.len() + part.len() <= MOST => chart.extend_from_slice(part),
                _ => charts.push(part.to_vec()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_chart() {
        let row = |name: String, kind: &str, from: Option<&str>| AdapterResult {
            name,
            kind: kind.into(),
            truncated_from: from.map(Into::into),
            ..AdapterResult::default()
        };
        let mut all = vec![row("none".into(), "none", None)];
        all.extend((0..6).map(|i| row(format!("lora-{i}"), "lora", None)));
        all.extend((0..5).map(|i| row(format!("hrm-{i}"), "hrm", None)));
        all.extend((0..8).map(|i| row(format!("hrm-0-epsilon-{i}"), "hrm", Some("hrm-0"))));
        let rows = || all.iter().enumerate().map(|(slot, first)| Row { first, slot });
        let names = |shares: &[Share]| -> Vec<Vec<String>> {
            shares.iter().map(|share| share.rows.iter().map(|row| row.first.name.clone()).collect()).collect()
        };
        let of = |from: usize, to: usize| all[from..to].iter().map(|row| row.name.clone()).collect::<Vec<_>>();

        let shares = share(rows().collect());
        assert_eq!(names(&shares), [of(0, 7), of(7, 12), of(12, 16), of(16, 20)]);
        assert_eq!((&*shares[1].title, &*shares[1].file), (" (2 of 4)", "2"));
        let few = share(rows().skip(9).take(7).collect());
        assert_eq!(names(&few), [of(9, 16)]);
        assert_eq!((&*few[0].title, &*few[0].file), ("", ""));

        // Two with the look of the first.
        let two = share(rows().step_by(7).take(2).map(|row| Row { slot: 0, ..row }).collect());
        assert_eq!(two[0].rows.iter().map(|row| row.slot).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(two[0].ink(&rows().nth(7).unwrap()), Some(Ink::Slot(1)));
        assert_eq!(two[0].ink(&rows().nth(8).unwrap()), None);
    }
}
