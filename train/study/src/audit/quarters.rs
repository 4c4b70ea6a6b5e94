//! Accuracies by quarters of the positions: first positions may be easy.

use crate::Cell;
use crate::claims::Claim;
use crate::measure::{Measure, Measured, measure};
use hankel_trainer::format::significant as number;
use hankel_trainer::results::metric;

/// For each group of `measured`, a claim's figures on cells of a scale, the means over each quarter of the positions, in words.
/// Nothing where it is no accuracy of a row, or of a row less that of another, or the quarters are not on record.
pub(super) fn of(claim: &Claim, scale: Option<&str>, measured: &Measured, cells: &[Cell]) -> Vec<String> {
    let of_all = &claim.measure;
    let is_one = of_all.row.len() == 1 && of_all.against.len() <= 1 && of_all.against_of.is_none();
    if of_all.of != metric::ACCURACY || !of_all.is_plain() || !is_one {
        return Vec::new();
    }
    let own = cells.iter().filter(|cell| cell.id.experiment == claim.experiment && cell.id.scale.as_deref() == scale);
    let own: Vec<&Cell> = own.collect();
    let quarters: Vec<Measured> = (1..=4)
        .map(|quarter| {
            measure(&Measure { of: format!("{}_quarter_{quarter}", metric::ACCURACY), ..of_all.clone() }, &own)
        })
        .collect();
    let labels = |measured: &Measured| measured.groups.iter().map(|group| group.label.clone()).collect::<Vec<_>>();
    if quarters.iter().any(|quarter| labels(quarter) != labels(measured)) {
        return Vec::new();
    }
    (0..measured.groups.len())
        .map(|index| {
            let means = quarters.iter().map(|quarter| number(quarter.groups[index].summary.mean));
            format!("by quarters of the positions {}", means.collect::<Vec<_>>().join(", "))
        })
        .collect()
}
