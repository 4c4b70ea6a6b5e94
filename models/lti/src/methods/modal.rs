//! Modal truncation: keeps the modes with the largest H-infinity norm and drops the others unchanged.
//!
//! ```text
//! G(z) = sum_i G_i(z), one term per real pole or complex pair;   G_r = sum of the r states with the largest ||G_i||
//! ```
//!
//! Poles stay what they were. In continuous time modes are those of continuous time: none has a direct term there, so that the gain of a
//! real one is `||b|| ||c|| / |a|`. Error at most the sum of the discarded norms, whatever the Gramians. MATLAB:
//! `reducespec(sys, "modal")`; pyMOR: `MTReductor`. A dense A is brought to modal form first.

use super::{Accepts, Bound, Definition, Method, Projection, Reduced};
use crate::continuous::Bilinear;
use crate::linalg::product;
use crate::modal::{Conversion, to_modal_within};
use crate::norms::{FrequencyResponse, hinf_norm};
use crate::{HankelSpectrum, LinearSystem, Mode, Result, StateMatrix};
use faer::{Mat, MatRef, Scale};

/// What a conversion may change: it is added to the bound. Modes that are lightly damped have their digits in doubles, their damping
/// has fewer.
const CHANGED: f64 = 1e-3;

/// Modal truncation.
pub const METHOD: Method = Method(&Definition {
    name: "modal",
    summary: "Keep the modes with the largest gain as they are (sum of the dropped gains as bound)",
    bound: Bound::Modes,
    bounds: Some(bounds),
    gramians: Accepts::Unread,
    direct_term: false,
    reduce,
});

/// H-infinity norm of every mode of a diagonal or modal system on its own; of a pair the upper end of its enclosure, so that
/// sums of these numbers are bounds. With a `map` the system is the image by it of one in continuous time, whose modes these are.
pub(super) fn mode_gains(system: &LinearSystem, map: Option<Bilinear>) -> Result<Vec<f64>> {
    let modes = system.a().modes().unwrap_or_default();
    let mut state = 0;
    let mut scores = Vec::with_capacity(modes.len());
    for mode in modes {
        let rows = (state, mode.states());
        let b = system.b().subrows(rows.0, rows.1);
        let c = system.c().subcols(rows.0, rows.1);
        scores.push(match mode {
            // At frequency 0: b c (1 + z) / ((1 + a) (z - a)) at z = 1.
            Mode::Real(_) if map.is_some() => {
                let pole = mode.pole();
                2.0 * b.norm_l2() * c.norm_l2() / pole.one_minus_product(pole).re
            }
            // A first-order system peaks where z is nearest to its pole, at 1 - |a|.
            Mode::Real(_) => b.norm_l2() * c.norm_l2() / -(-mode.pole().rate).exp_m1(),
            Mode::Pair { .. } => {
                let a = StateMatrix::Modal(vec![mode]);
                let direct = map.map(|map| map.continuous(&a, b, c, None)).transpose()?;
                let direct = direct.map(|(_, _, _, at_infinity)| at_infinity * Scale(-1.0));
                let alone = LinearSystem::new(a, b.to_owned(), c.to_owned(), direct)?;
                hinf_norm(&FrequencyResponse::new(&alone))?.1.upper
            }
        });
        state += mode.states();
    }
    Ok(scores)
}

fn reduce(system: &LinearSystem, _: &HankelSpectrum, order: usize) -> Result<Reduced> {
    let map = system.map();
    in_modal_form(system, |system| {
        let gains = mode_gains(system, map)?;
        keep_largest(system, &gains, &gains, order)
    })
}

/// Bounds of the error at all orders.
pub(super) fn bounds(system: &LinearSystem) -> Result<Vec<f64>> {
    let map = system.map();
    bounds_by(system, |system| {
        let gains = mode_gains(system, map)?;
        Ok((gains.clone(), gains))
    })
}

/// Bounds of the error at all orders of what [`keep_largest`] makes of the system in modal form. `rank` gives the scores and the gains of
/// its modes, which are what takes time.
pub(super) fn bounds_by(
    system: &LinearSystem,
    rank: impl Fn(&LinearSystem) -> Result<(Vec<f64>, Vec<f64>)>,
) -> Result<Vec<f64>> {
    let conversion = if system.a().modes().is_some() { None } else { Some(to_modal_within(system, CHANGED)?) };
    let changed = conversion.as_ref().map_or(Ok(0.0), |conversion| changed_by(conversion, system))?;
    let modal = conversion.as_ref().map_or(system, |conversion| &conversion.system);
    let (scores, gains) = rank(modal)?;
    let (modes, by_score) = (modal.a().modes().unwrap_or_default(), descending(&scores));
    let states = system.states();
    let bound = |order: usize| {
        // Where all states are kept nothing is converted either.
        if order == states { 0.0 } else { dropped(&by_score, &fitting(&modes, &by_score, order), &gains) + changed }
    };
    Ok((0..=states).map(bound).collect())
}

/// A reduction of a modal system, applied to one that may have to be converted first.
pub(super) fn in_modal_form(
    system: &LinearSystem,
    reduce: impl Fn(&LinearSystem) -> Result<Reduced>,
) -> Result<Reduced> {
    if system.a().modes().is_some() {
        return reduce(system);
    }
    let conversion = to_modal_within(system, CHANGED)?;
    let reduced = reduce(&conversion.system)?;
    let projection = reduced.projection.map(|Projection { left, right }| Projection {
        left: product(left.as_ref(), conversion.transformation.as_ref()),
        right: product(conversion.inverse.as_ref(), right.as_ref()),
    });
    let changed = changed_by(&conversion, system)?;
    let bound = reduced.bound.map(|bound| bound + changed);
    Ok(Reduced { projection, bound, kept: None, ..reduced })
}

/// What the conversion of a system changed, which is part of the error.
fn changed_by(conversion: &Conversion, system: &LinearSystem) -> Result<f64> {
    let size = hinf_norm(&FrequencyResponse::new(system))?.1.upper;
    Ok(2.0 * conversion.deviation * size)
}

/// The modes by their number, that of the largest score first.
fn descending(scores: &[f64]) -> Vec<usize> {
    let mut by_score: Vec<usize> = (0..scores.len()).collect();
    by_score.sort_by(|&i, &j| scores[j].total_cmp(&scores[i]));
    by_score
}

/// Which modes are kept where there is place for so many states.
fn fitting(modes: &[Mode], by_score: &[usize], order: usize) -> Vec<bool> {
    let mut keep = vec![false; modes.len()];
    let mut states = 0;
    for &i in by_score {
        // A pair is kept whole or not at all; a real mode further down may still fill the place.
        if states + modes[i].states() <= order {
            keep[i] = true;
            states += modes[i].states();
        }
    }
    keep
}

/// The sum of the gains of the others, from the small end.
fn dropped(by_score: &[usize], keep: &[bool], gains: &[f64]) -> f64 {
    by_score.iter().rev().filter(|&&i| !keep[i]).map(|&i| gains[i]).sum()
}

/// Keeps the modes of the largest `scores` as they are; `gains` are the H-infinity norms of all.
pub(super) fn keep_largest(system: &LinearSystem, scores: &[f64], gains: &[f64], order: usize) -> Result<Reduced> {
    let modes = system.a().modes().unwrap_or_default();
    let by_score = descending(scores);
    let keep = fitting(&modes, &by_score, order);
    let bound = dropped(&by_score, &keep, gains);
    let mut rows = Vec::new();
    let mut state = 0;
    for (mode, &kept) in modes.iter().zip(&keep) {
        if kept {
            rows.extend(state..state + mode.states());
        }
        state += mode.states();
    }
    let kept: Vec<Mode> = modes.iter().zip(&keep).filter(|(_, k)| **k).map(|(m, _)| *m).collect();
    let a = match system.a() {
        StateMatrix::Diagonal(a) => StateMatrix::Diagonal(rows.iter().map(|&i| a[i]).collect()),
        _ => StateMatrix::Modal(kept),
    };
    let left = Mat::from_fn(rows.len(), system.states(), |i, j| if rows[i] == j { 1.0 } else { 0.0 });
    let b = Mat::from_fn(rows.len(), system.inputs(), |i, j| system.b()[(rows[i], j)]);
    let c = Mat::from_fn(system.outputs(), rows.len(), |i, j| system.c()[(i, rows[j])]);
    let right = left.transpose().to_owned();
    let projection = Some(Projection { left, right });
    let mut reduced = system.with_realization(a, b, c)?;
    if let Some(written) = system.written() {
        reduced = reduced.with_written(chosen(written, &rows))?;
    }
    Ok(Reduced { system: reduced, projection, bound: Some(bound), kept: Some(rows) })
}

/// The rows and columns of `states`.
pub(super) fn chosen(a: MatRef<'_, f64>, states: &[usize]) -> Mat<f64> {
    Mat::from_fn(states.len(), states.len(), |i, j| a[(states[i], states[j])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::energy;
    use crate::norms::hinf_sweep;
    use crate::{GramianFactors, reduce};

    /// Computed together or one by one; where all states are kept nothing is lost.
    #[test]
    fn bounds_at_all_orders_are_those_of_the_reductions() {
        let (slow, fast) = (Mode::Pair { radius: 0.95, angle: 1.0 }, Mode::Pair { radius: 0.7, angle: 2.0 });
        let modal = StateMatrix::Modal(vec![Mode::Real(0.9), slow, Mode::Real(-0.5), fast]);
        let dense = StateMatrix::Dense(modal.to_dense() + Mat::from_fn(6, 6, |i, j| if i < j { 0.05 } else { 0.0 }));
        for a in [modal, dense] {
            let (b, c) = (Mat::from_fn(6, 1, |i, _| 1.0 + i as f64), Mat::from_fn(1, 6, |_, j| 2.5 - j as f64));
            let system = LinearSystem::new(a, b, c, None).unwrap();
            let spectrum = HankelSpectrum::new(&GramianFactors::analytic(&system).unwrap()).unwrap();
            for method in [METHOD, energy::METHOD] {
                let bounds = method.bounds_by_modes(&system).unwrap().unwrap();
                let bound = |order| reduce(&system, &spectrum, method, order).unwrap().bound.unwrap();
                assert_eq!(&bounds[..6], (0..6).map(bound).collect::<Vec<_>>());
                assert_eq!((bounds.len(), bounds[6]), (7, 0.0));
                assert_eq!(method.error_bound(&system, &spectrum, 6), Ok(Some(0.0)));
            }
        }
    }

    #[test]
    fn the_score_of_a_pair_is_an_upper_bound() {
        for (radius, angle) in [(0.5, 1.0), (0.99, 0.3), (0.9999, 2.5), (0.999_999, 1.234_567)] {
            let pair = StateMatrix::Modal(vec![Mode::Pair { radius, angle }]);
            let (b, c) = (Mat::from_fn(2, 1, |i, _| 1.0 - i as f64), Mat::from_fn(1, 2, |_, j| 0.1 + j as f64));
            let system = LinearSystem::new(pair, b, c, None).unwrap();
            let score = mode_gains(&system, None).unwrap()[0];
            // A gain that is attained is below the norm by some rounding, or by what lies between two frequencies.
            let attained = hinf_sweep(&FrequencyResponse::new(&system)).unwrap().value;
            assert!((1.0 + 1e-7..1.0 + 1e-6).contains(&(score / attained)), "{radius} {angle}: {score} {attained}");
        }
    }
}
