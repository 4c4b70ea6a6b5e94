//! The error of a reduction of many states.

use super::bounded_real::{BoundedReal, bounded_real_check};
use super::cover::MOST_ARCS;
use super::hinf::{CIRCLE, HinfNorm, both_ends, hinf_norm, searched};
use super::response::FrequencyResponse;
use crate::linalg::product;
use crate::{HankelSpectrum, LinearSystem, Result, StateMatrix};

/// The bounded-real test of fewer states is quick enough as it is.
const MANY_STATES: usize = 200;

/// What the states left out of the bounded-real test may add to the error, relative to it.
const TAIL: f64 = 2e-7;

/// The norm of `full - reduced` with its enclosure, as [`hinf_norm`] finds them. `spectrum` are the Hankel singular values of `full`.
///
/// The bounded-real test takes the eigenvalues of a matrix of twice the states. Of a large dense system it is made for
/// `G_q - G_r`, with `G_q` balanced truncation to so many states that
///
/// ```text
/// ||G - G_r||  <=  ||G_q - G_r|| + 2 (sigma_{q+1} + ... + sigma_d)
/// ```
///
/// is no more than a relative 2e-7 too large; the lower end is the gain of `G - G_r` itself. Where the gains of both differ by more
/// than the sum allows, the test is made for the whole system.
///
/// # Errors
/// Systems with other inputs or outputs, and those of [`hinf_norm`].
pub fn hinf_error(
    full: &LinearSystem,
    reduced: &LinearSystem,
    spectrum: &HankelSpectrum,
) -> Result<(HinfNorm, BoundedReal)> {
    let response = FrequencyResponse::new(&full.difference(reduced)?);
    if response.states() <= MANY_STATES || full.a().modes().is_some() || spectrum.guarantee(0).is_none() {
        return hinf_norm(&response);
    }
    let (swept, check) = searched(&response, CIRCLE, MOST_ARCS)?;
    if let Some(check) = check {
        return Ok(both_ends(&response, &swept, check));
    }
    let found = swept.norm;
    let whole = || Ok(both_ends(&response, &swept, bounded_real_check(&response, found, CIRCLE)?));
    let error = response.unscale(found.value);
    let enough = (reduced.states()..=spectrum.rank()).find(|&order| spectrum.bound(order) <= TAIL * error);
    let Some(order) = enough.filter(|order| 10 * (order + reduced.states()) < 9 * response.states()) else {
        return whole();
    };
    let (left, right) = spectrum.projections(order)?;
    let a = product(left.as_ref(), full.a().apply(right.as_ref()).as_ref());
    let (b, c) = (product(left.as_ref(), full.b()), product(full.c(), right.as_ref()));
    let middle = LinearSystem::with_any_poles(StateMatrix::Dense(a), b, c, full.d().map(|d| d.to_owned()))?;
    let small = FrequencyResponse::new(&middle.difference(reduced)?);
    let start = HinfNorm { value: small.scaled_gain(found.frequency)?, ..found };
    let check = bounded_real_check(&small, start, CIRCLE)?;
    let tail = spectrum.bound(order);
    let at = |frequency| Ok(HinfNorm { value: response.gain(frequency)?, frequency });
    let (first, second): (HinfNorm, HinfNorm) = (at(found.frequency)?, at(check.lower.frequency)?);
    let apart = |norm: HinfNorm| Ok::<_, crate::LtiError>((norm.value - small.gain(norm.frequency)?).abs());
    if apart(first)?.max(apart(second)?) > tail + 1e-9 * error {
        return whole();
    }
    let lower = if second.value > first.value { second } else { first };
    let upper = small.unscale(check.upper) + tail + response.unscale(response.rounding(lower.frequency));
    Ok((lower, BoundedReal { lower, upper: upper.max(lower.value) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GramianFactors, Method, reduce};
    use faer::Mat;

    /// The whole test and the one of fewer states enclose the same error.
    #[test]
    fn an_error_of_many_states_is_enclosed_by_fewer() {
        let d = 240;
        // Poles on a spiral, coupled so that the matrix is far from normal.
        let a = Mat::from_fn(d, d, |i, j| {
            let radius = 0.98 - 0.1 * (i / 2) as f64 / (d / 2) as f64;
            let angle = 0.1 + 2.9 * (i / 2) as f64 / (d / 2) as f64;
            match (i / 2 == j / 2, i == j) {
                (true, true) => radius * angle.cos(),
                (true, false) => radius * angle.sin() * if i < j { -1.0 } else { 1.0 },
                (false, _) => {
                    if j == i + 2 {
                        0.05
                    } else {
                        0.0
                    }
                }
            }
        });
        let b = Mat::from_fn(d, 2, |i, j| ((i * 3 + j * 5) as f64).sin() * (-(i as f64) / 20.0).exp());
        let c = Mat::from_fn(2, d, |i, j| ((i * 7 + j * 2) as f64).cos() * (-(j as f64) / 20.0).exp());
        let system = LinearSystem::new(StateMatrix::Dense(a), b, c, None).unwrap();
        let factors = GramianFactors::analytic(&system).unwrap();
        assert!(factors.residual_c.unwrap() < 1e-12 && factors.residual_o.unwrap() < 1e-12);
        let spectrum = HankelSpectrum::new(&factors).unwrap();
        let small = reduce(&system, &spectrum, Method::default(), 10).unwrap();
        let (quick, enclosure) = hinf_error(&system, &small.system, &spectrum).unwrap();
        let whole = FrequencyResponse::new(&system.difference(&small.system).unwrap());
        let (norm, expected) = hinf_norm(&whole).unwrap();
        assert!((quick.value / norm.value - 1.0).abs() < 1e-9, "{} {}", quick.value, norm.value);
        assert!(enclosure.upper >= expected.lower.value && enclosure.upper <= norm.value * (1.0 + 1e-6));
        assert!(quick.value <= small.bound.unwrap());
    }
}
