//! The bounded-real test: an upper bound of the H-infinity norm that no frequency grid can miss.
//!
//! `gamma` is a singular value of G(e^{i omega}) exactly where a Hamiltonian matrix built from G and gamma has the eigenvalue
//! `i tan(omega / 2)`; without such an eigenvalue `||G|| < gamma` (S. Boyd, V. Balakrishnan, P. Kabamba, A bisection method
//! for computing the H-infinity norm of a transfer matrix, Math. Control Signals Systems 2 (1989); with the two-step choice of
//! the next gamma of N. A. Bruinsma and M. Steinbuch, Systems & Control Letters 14 (1990), which replaces the bisection).
//! The circle is mapped to the imaginary axis by `z = (1 + s) / (1 - s)`, or by its mirror image at z = 1.

use super::hinf::HinfNorm;
use super::response::FrequencyResponse;
use crate::linalg::{eigenvalues, product, spectral_norm};
use crate::{LtiError, Result};
use faer::linalg::solvers::Solve;
use faer::{Mat, Scale};
use std::f64::consts::PI;

/// Result of the test: `lower.value <= ||G|| <= upper`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoundedReal {
    /// Largest gain found on the way.
    pub lower: HinfNorm,
    /// A level that no singular value crosses.
    pub upper: f64,
}

/// Relative distance of the level that is tested from the largest gain known.
pub(super) const MARGIN: f64 = 5e-7;
const MAX_ITERATIONS: usize = 20;

/// Encloses the largest gain of the scaled transfer function at frequencies in `band` to a relative 5e-7, starting from a gain that is
/// attained there.
pub(super) fn bounded_real_check(g: &FrequencyResponse, start: HinfNorm, band: (f64, f64)) -> Result<BoundedReal> {
    let mut lower = start;
    if g.states() == 0 || lower.value == 0.0 {
        return Ok(BoundedReal { lower, upper: lower.value });
    }
    // The point that is mapped to infinity must have a gain clearly below the level: take the lower of z = -1 and z = 1.
    let mirrored = g.scaled_gain(0.0)? < g.scaled_gain(PI)?;
    for _ in 0..MAX_ITERATIONS {
        let level = lower.value * (1.0 + MARGIN);
        // Between two crossings all gains are on one side of the level.
        let mut candidates = crossing_candidates(g, level, mirrored)?;
        candidates.retain(|omega| (band.0..=band.1).contains(omega));
        candidates.insert(0, band.0);
        candidates.push(band.1);
        let mut best = lower;
        let midpoints = candidates.windows(2).map(|w| 0.5 * (w[0] + w[1]));
        for omega in candidates.iter().copied().chain(midpoints) {
            let gain = g.gain_above(omega, best.value)?;
            if gain > best.value {
                best = HinfNorm { value: gain, frequency: omega };
            }
        }
        // An eigenvalue on the axis is a frequency whose gain is at least the level; rounding may push eigenvalues near the
        // axis onto it, so the gain there decides, not the eigenvalue.
        let crossed = best.value >= level * (1.0 - 0.1 * MARGIN);
        lower = best;
        if !crossed {
            return Ok(BoundedReal { lower, upper: level.max(best.value) });
        }
    }
    Err(LtiError::NoConvergence("the bounded-real iteration"))
}

/// Angles in [0, pi] of all Hamiltonian eigenvalues that may lie on the imaginary axis, ascending.
fn crossing_candidates(g: &FrequencyResponse, level: f64, mirrored: bool) -> Result<Vec<f64>> {
    let [a, b, c, d] = g.matrices();
    let n = a.nrows();
    // The mirror image G(-z) has A and C negated.
    let sign = if mirrored { -1.0 } else { 1.0 };
    let a = a * Scale(sign);
    let c = c * Scale(sign);
    let identity = Mat::<f64>::identity(n, n);
    let lu = (&a + &identity).partial_piv_lu();
    let root = (2.0 / level).sqrt();
    let bc = lu.solve(b) * Scale(root);
    let ac = lu.solve(&(&a - &identity));
    let c_inverse = lu.solve(&identity);
    let cc = product(c.as_ref(), c_inverse.as_ref()) * Scale(root);
    let dc = (d - product(product(c.as_ref(), c_inverse.as_ref()).as_ref(), b)) * Scale(1.0 / level);
    let (p, m) = (dc.nrows(), dc.ncols());
    // The gain at the mapped point may exceed the level where that point is outside of the band; equal to it, nothing could be said.
    if (spectral_norm(dc.as_ref())? - 1.0).abs() < f64::EPSILON {
        return Ok(vec![if mirrored { 0.0 } else { PI }]);
    }
    let r = (Mat::<f64>::identity(m, m) - product(dc.transpose(), dc.as_ref())).partial_piv_lu();
    let r_dt = r.solve(dc.transpose());
    let r_bt = r.solve(bc.transpose());
    let top_left = &ac + product(product(bc.as_ref(), r_dt.as_ref()).as_ref(), cc.as_ref());
    let top_right = product(bc.as_ref(), r_bt.as_ref());
    let weight = Mat::<f64>::identity(p, p) + product(dc.as_ref(), r_dt.as_ref());
    let bottom_left = product(cc.transpose(), product(weight.as_ref(), cc.as_ref()).as_ref());
    let h = Mat::from_fn(2 * n, 2 * n, |i, j| match (i < n, j < n) {
        (true, true) => top_left[(i, j)],
        (true, false) => top_right[(i, j - n)],
        (false, true) => -bottom_left[(i - n, j)],
        (false, false) => -top_left[(j - n, i - n)],
    });
    let mut angles: Vec<f64> = eigenvalues(h.as_ref())?
        .iter()
        .filter(|s| s.im >= 0.0 && s.re.abs() <= 0.1 * s.im + 1e-9)
        .map(|s| 2.0 * s.im.atan())
        .map(|omega| if mirrored { PI - omega } else { omega })
        .collect();
    angles.sort_by(f64::total_cmp);
    Ok(angles)
}
