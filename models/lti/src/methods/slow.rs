//! Reduction of a system with poles next to the unit circle, which a projection moves by more than they are away from it.
//!
//! ```text
//! G = G_slow + G_fast     G_r = (the slow modes with the largest gain, as they are) + (G_fast, reduced)
//! ```
//!
//! Slow are the modes that the Gramians treat as faster than they are ([`MIN_RATE`](crate::MIN_RATE)): they have no bound in any
//! case, and kept as they are they keep their distance from the circle.

use super::modal::{chosen, mode_gains};
use super::{Method, Projection, Reduced};
use crate::linalg::{above, beside, product};
use crate::modal::to_modal;
use crate::norms::{FrequencyResponse, hinf_sweep};
use crate::{GramianFactors, HankelSpectrum, LinearSystem, LtiError, Mode, Result, StateMatrix};
use faer::{Mat, MatRef};

fn is_slow(mode: &Mode) -> bool {
    mode.pole() != mode.pole().clamped()
}

/// Whether there is anything to keep apart.
pub fn has_slow_modes(system: &LinearSystem) -> bool {
    system.a().modes().is_some_and(|modes| modes.iter().any(is_slow))
}

/// The better of two reductions of one system: `one` where its bound holds, else the one with the smaller error. If `other` failed it is
/// `one`; if `one` is unstable or unsupported it is `other`.
///
/// # Errors
/// Any other error of `one`; that of `other` where `one` is unstable or unsupported.
pub fn nearer(system: &LinearSystem, one: Result<Reduced>, other: Result<Reduced>) -> Result<Reduced> {
    match (one, other) {
        (Ok(one), Ok(other)) => {
            let error = |reduced: &Reduced| {
                hinf_sweep(&FrequencyResponse::new(&system.difference(&reduced.system)?)).map(|norm| norm.value)
            };
            let of_one = error(&one)?;
            // A guarantee is worth more than a smaller error without one.
            let is_guaranteed = one.bound.is_some_and(|bound| of_one <= bound);
            Ok(if !is_guaranteed && error(&other)? < of_one { other } else { one })
        }
        (Ok(one), Err(_)) => Ok(one),
        (Err(LtiError::Unstable { .. } | LtiError::Unsupported(_)), other) => other,
        (Err(error), _) => Err(error),
    }
}

/// Reduces a diagonal or modal system to at most `order` states, slow modes first.
///
/// # Errors
/// The other part cannot be reduced either.
pub fn reduce_apart(system: &LinearSystem, method: Method, order: usize) -> Result<Reduced> {
    let modes = system.a().modes().unwrap_or_default();
    let scores = mode_gains(system, None)?;
    // A mode that no input reaches, or no output shows, would be a state for nothing.
    let mut by_score: Vec<usize> = (0..modes.len()).filter(|&i| is_slow(&modes[i]) && scores[i] > 0.0).collect();
    by_score.sort_by(|&i, &j| scores[j].total_cmp(&scores[i]));
    let (mut kept, mut left_over) = (Vec::new(), order);
    for i in by_score {
        if modes[i].states() <= left_over {
            kept.push(i);
            left_over -= modes[i].states();
        }
    }
    kept.sort_unstable();
    let slow = Part::of(system, &modes, &kept);
    let fast: Vec<usize> = (0..modes.len()).filter(|&i| !is_slow(&modes[i])).collect();
    let fast = Part::of(system, &modes, &fast);
    let (a, b, c) = fast.matrices(system);
    let alone = LinearSystem::new(a, b, c, system.d().map(|d| d.to_owned()))?;
    let rest = if left_over == 0 || alone.states() == 0 {
        let nothing = (Mat::zeros(0, system.inputs()), Mat::zeros(system.outputs(), 0));
        Reduced {
            system: LinearSystem::new(
                StateMatrix::Diagonal(Vec::new()),
                nothing.0,
                nothing.1,
                alone.d().map(|d| d.to_owned()),
            )?,
            projection: Some(Projection { left: Mat::zeros(0, alone.states()), right: Mat::zeros(alone.states(), 0) }),
            bound: None,
            kept: None,
        }
    } else {
        let spectrum = HankelSpectrum::new(&GramianFactors::analytic(&alone)?)?;
        (method.0.reduce)(&alone, &spectrum, left_over.min(spectrum.rank()))?
    };
    let rest = in_modes(rest)?;
    let (a, b, c) = slow.matrices(system);
    let mut reduced = LinearSystem::new(
        a.block_diagonal(rest.system.a()),
        above(b.as_ref(), rest.system.b()),
        beside(c.as_ref(), rest.system.c()),
        rest.system.d().map(|d| d.to_owned()),
    )?;
    if let Some(written) = system.written() {
        // An ulp of a slow pair is much of its distance from the circle.
        let rest = rest.system.written().map_or_else(|| rest.system.a().to_dense(), |a| a.to_owned());
        let (n, m) = (slow.states.len(), rest.nrows());
        let slow = chosen(written, &slow.states);
        let (none, beneath) = (Mat::zeros(n, m), Mat::zeros(m, n));
        let upper = beside(slow.as_ref(), none.as_ref());
        let lower = beside(beneath.as_ref(), rest.as_ref());
        reduced = reduced.with_written(above(upper.as_ref(), lower.as_ref()))?;
    }
    let projection = rest.projection.map(|Projection { left, right }| {
        let identity = Mat::identity(slow.states.len(), slow.states.len());
        let d = slow.total;
        Projection {
            left: above(slow.spread(identity.as_ref(), d).as_ref(), fast.spread(left.as_ref(), d).as_ref()),
            right: beside(slow.spread(identity.as_ref(), d).transpose(), fast.spread(right.transpose(), d).transpose()),
        }
    });
    Ok(Reduced { system: reduced, projection, bound: None, kept: None })
}

/// In modal form where that is possible: beside it slow poles stay what they are to the last digit.
fn in_modes(reduced: Reduced) -> Result<Reduced> {
    match to_modal(&reduced.system) {
        Ok(modal) => {
            let projection = reduced.projection.map(|Projection { left, right }| Projection {
                left: product(modal.transformation.as_ref(), left.as_ref()),
                right: product(right.as_ref(), modal.inverse.as_ref()),
            });
            Ok(Reduced { system: modal.system, projection, ..reduced })
        }
        Err(LtiError::Conversion { .. }) => Ok(reduced),
        Err(other) => Err(other),
    }
}

/// Some modes of a system.
struct Part {
    modes: Vec<Mode>,
    /// The states of these modes.
    states: Vec<usize>,
    /// States of the system.
    total: usize,
}

impl Part {
    fn of(system: &LinearSystem, modes: &[Mode], chosen: &[usize]) -> Self {
        let mut first = 0;
        let mut states = Vec::new();
        for (i, mode) in modes.iter().enumerate() {
            if chosen.contains(&i) {
                states.extend(first..first + mode.states());
            }
            first += mode.states();
        }
        Self { modes: chosen.iter().map(|&i| modes[i]).collect(), states, total: system.states() }
    }

    fn matrices(&self, system: &LinearSystem) -> (StateMatrix, Mat<f64>, Mat<f64>) {
        (
            StateMatrix::Modal(self.modes.clone()),
            Mat::from_fn(self.states.len(), system.inputs(), |i, j| system.b()[(self.states[i], j)]),
            Mat::from_fn(system.outputs(), self.states.len(), |i, j| system.c()[(i, self.states[j])]),
        )
    }

    /// Columns of `m` put where the states of this part are among `total`.
    fn spread(&self, m: MatRef<'_, f64>, total: usize) -> Mat<f64> {
        let mut out = Mat::zeros(m.nrows(), total);
        for (from, &to) in self.states.iter().enumerate() {
            out.col_mut(to).copy_from(m.col(from));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce;

    /// An integrator but for rounding is kept as it is, and what is left is the error of the other modes.
    #[test]
    fn a_pole_that_is_almost_on_the_circle_costs_a_state_and_no_more() {
        let rest = [0.5, 0.3];
        let poles = vec![1.0 - 1e-15, rest[0], rest[1]];
        let (b, c) = (Mat::ones(3, 1), Mat::ones(1, 3));
        let system = LinearSystem::new(StateMatrix::Diagonal(poles), b, c, None).unwrap();
        let spectrum = HankelSpectrum::new(&GramianFactors::analytic(&system).unwrap()).unwrap();
        let small = reduce(&system, &spectrum, Method::default(), 1).unwrap();
        let error = hinf_sweep(&FrequencyResponse::new(&system.difference(&small.system).unwrap())).unwrap();
        let left: f64 = rest.iter().map(|pole| 1.0 / (1.0 - pole)).sum();
        assert!((error.value / left - 1.0).abs() < 1e-6 && small.bound.is_none(), "{} {left}", error.value);
    }

    /// Gramians of a horizon decide by themselves: over 1,000 steps a mode of ten million steps is a sum, which another pole describes better.
    #[test]
    fn a_slow_mode_is_kept_for_analytic_gramians_alone() {
        let system =
            LinearSystem::new(StateMatrix::Diagonal(vec![1.0 - 1e-7, 0.99]), Mat::ones(2, 1), Mat::ones(1, 2), None)
                .unwrap();
        let pole = |factors: GramianFactors| {
            let small = reduce(&system, &HankelSpectrum::new(&factors).unwrap(), Method::default(), 1).unwrap();
            small.system.a().to_dense()[(0, 0)]
        };
        assert_eq!(pole(GramianFactors::analytic(&system).unwrap()), 1.0 - 1e-7);
        let found = pole(GramianFactors::time_limited(&system, 1000).unwrap());
        assert!((found - 0.999_892_6).abs() < 1e-6, "{found}");
    }

    /// Whatever the distance from the circle, every order of every method with a bound gives a stable system.
    #[test]
    fn slow_stable_systems_are_never_refused() {
        for exponent in [12, 13, 14, 15, 16] {
            let slow = (1.0 - 10_f64.powi(-exponent)).min(1.0_f64.next_down());
            let poles = vec![slow, -slow, 1.0 - 1e-9, 1.0 - 1e-11, 0.7, -0.2, 0.999, slow.next_down()];
            let d = poles.len();
            let b = Mat::from_fn(d, 2, |i, j| ((3 * i + 5 * j) as f64).sin() + 0.1);
            let c = Mat::from_fn(2, d, |i, j| ((7 * i + 2 * j) as f64).cos() - 0.1);
            let system = LinearSystem::new(StateMatrix::Diagonal(poles), b, c, None).unwrap();
            let spectrum = HankelSpectrum::new(&GramianFactors::analytic(&system).unwrap()).unwrap();
            for name in ["bt", "bfsr"] {
                for order in 0..=spectrum.rank() {
                    let small = reduce(&system, &spectrum, Method::named(name).unwrap(), order).unwrap();
                    assert!(small.system.states() <= order && small.bound.is_none() || order == d);
                    assert!(small.system.spectral_radius() < 1.0);
                }
            }
            let all = reduce_apart(&system, Method::default(), d).unwrap();
            let norm = |s: &LinearSystem| hinf_sweep(&FrequencyResponse::new(s)).unwrap().value;
            assert!(all.projection.is_some());
            let error = norm(&system.difference(&all.system).unwrap());
            assert!(error <= 1e-6 * norm(&system), "{error:e}");
        }
    }
}
