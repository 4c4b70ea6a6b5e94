//! Claims that stand together: one family of tests, in which chance must not confirm or refute any of them at more than the nominal rate.

use super::{Claim, Outcome, UNDECIDED, Verdict};
use crate::measure::Group;
use crate::statistics::{CONFIDENCE, holm};
use crate::{Cell, Plan};

/// The test of a claim among those of its family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Corrected {
    /// By itself.
    pub p: f64,
    /// After Holm's correction over the family.
    pub holm: f64,
    /// Tests in the family.
    pub tests: usize,
}

/// All claims on the cells. The family is all claims that figures can be held against, whatever else keeps them from a verdict: one that is
/// confirmed or refuted by itself, and would be so by chance among that many, is undecided (S. Holm, 1979). All points of a claim have to show
/// it, so that the largest of their probabilities is its own; any of them can refute it, so that the smallest counts as often as there are points.
pub fn evaluate<'a>(claims: &'a [Claim], cells: &[Cell], plans: &[Plan]) -> Vec<Outcome<'a>> {
    let mut outcomes: Vec<Outcome> = claims.iter().map(|claim| claim.evaluate_alone(cells, plans)).collect();
    let tested: Vec<usize> = (0..outcomes.len()).filter(|&index| p_for(&outcomes[index]).is_some()).collect();
    let corrected = |p: fn(&Outcome) -> Option<f64>| -> Vec<Corrected> {
        let own: Vec<f64> = tested.iter().map(|&index| p(&outcomes[index]).unwrap_or(1.0)).collect();
        let tests = own.len();
        own.iter().zip(holm(&own)).map(|(&p, holm)| Corrected { p, holm, tests }).collect()
    };
    let (tests, against) = (corrected(p_for), corrected(p_against));
    for ((index, test), against) in tested.into_iter().zip(tests).zip(against) {
        let outcome = &mut outcomes[index];
        (outcome.test, outcome.against) = (Some(test), Some(against));
        let chance = |found: Corrected| found.holm > 1.0 - CONFIDENCE;
        let of = test.tests;
        match outcome.verdict {
            Verdict::Confirmed | Verdict::InPart(_) if chance(test) => {
                outcome.verdict = Verdict::Undecided(format!("{UNDECIDED} among {of} tests, though shown by its own"));
            }
            Verdict::NotConfirmed(_) if chance(against) => {
                outcome.verdict =
                    Verdict::Undecided(format!("{UNDECIDED} among {of} tests, though refuted by its own"));
            }
            _ => {}
        }
    }
    outcomes
}

/// How many tests the family of these outcomes has.
pub(crate) fn test_count(outcomes: &[Outcome]) -> usize {
    outcomes.iter().find_map(|outcome| outcome.test).map_or(0, |test| test.tests)
}

fn p_for(outcome: &Outcome) -> Option<f64> {
    if matches!(outcome.verdict, Verdict::NotMeasured(_) | Verdict::NotTestable(_) | Verdict::ByConstruction(_)) {
        return None;
    }
    let of = outcome.measured.groups.iter().map(|group| (group, outcome.claim.expect.p(group)));
    of_points(of)?.into_iter().reduce(f64::max)
}

fn p_against(outcome: &Outcome) -> Option<f64> {
    let of = outcome.measured.groups.iter().map(|group| (group, outcome.claim.expect.p_against(group)));
    let points = outcome.measured.groups.len() as f64;
    Some((points * of_points(of)?.into_iter().reduce(f64::min)?).min(1.0))
}

/// The probabilities of points, each times the number of rivals among which the best was chosen on the same figures; 1 for a point
/// without a probability, such as a single run. `None` if no point has one.
fn of_points<'a>(points: impl Iterator<Item = (&'a Group, Option<f64>)>) -> Option<Vec<f64>> {
    let points: Vec<(&Group, Option<f64>)> = points.collect();
    points
        .iter()
        .any(|(_, p)| p.is_some())
        .then(|| points.iter().map(|(group, p)| p.map_or(1.0, |p| (group.choices as f64 * p).min(1.0))).collect())
}
