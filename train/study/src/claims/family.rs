//! Claims that stand together: one family of tests, in which chance must not confirm any of them at more than the nominal rate.

use super::{Claim, Outcome, UNDECIDED, Verdict};
use crate::Cell;
use crate::statistics::{CONFIDENCE, holm};

/// The test of a claim among those of its family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Corrected {
    /// Of the claim by itself: the largest of its points, all of which have to show it.
    pub p: f64,
    /// After Holm's correction over the family.
    pub holm: f64,
    /// Tests in the family.
    pub tests: usize,
}

/// All claims on the cells. The family is all claims whose verdict rests on a test: one that is confirmed by itself, and would be so by chance
/// among that many, is undecided (S. Holm, 1979).
pub fn evaluate<'a>(claims: &'a [Claim], cells: &[Cell]) -> Vec<Outcome<'a>> {
    let mut outcomes: Vec<Outcome> = claims.iter().map(|claim| claim.evaluate_alone(cells)).collect();
    let p = |outcome: &Outcome| -> Option<f64> {
        if !outcome.verdict.is_decided() {
            return None;
        }
        let of = outcome.measured.groups.iter().map(|group| outcome.claim.expect.p(group));
        of.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
    };
    let tested: Vec<(usize, f64)> =
        outcomes.iter().enumerate().filter_map(|(index, outcome)| Some((index, p(outcome)?))).collect();
    let corrected = holm(&tested.iter().map(|(_, p)| *p).collect::<Vec<_>>());
    let tests = tested.len();
    for ((index, p), holm) in tested.into_iter().zip(corrected) {
        let outcome = &mut outcomes[index];
        outcome.corrected = Some(Corrected { p, holm, tests });
        if matches!(outcome.verdict, Verdict::Confirmed | Verdict::InPart(_)) && holm > 1.0 - CONFIDENCE {
            outcome.verdict =
                Verdict::NotConfirmed(format!("{UNDECIDED} among {tests} tests, though shown by its own"));
        }
    }
    outcomes
}
