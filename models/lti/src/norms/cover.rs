//! An upper bound of the gain by arcs that cover the circle.
//!
//! Between two angles a distance h apart a function is within `h^2 / 8` times its largest second derivative of the straight line between
//! its values at both, so that
//!
//! ```text
//! || G ||  <=  max(|| G(a) ||, || G(b) ||) + h^2 / 8  max || G'' ||
//! ```
//!
//! on the arc. Arcs are halved until the right side is at most the level. Of many states this takes a fraction of the time of the
//! bounded-real test (`bounded_real`), which takes the eigenvalues of a matrix of twice as many.

use super::fractions::PartialFractions;
use super::hinf::HinfNorm;
use crate::Result;
use rayon::prelude::*;

/// More arcs than this mean that residues cancel: the bound of the second derivative is then of no use.
const MOST_ARCS: usize = 100_000;

/// What covering found.
pub(super) enum Cover {
    /// No gain between the ends of the band exceeds the level.
    Below,
    /// One does.
    Above(HinfNorm),
    /// There were too many arcs.
    Unknown,
}

/// Whether the gain stays below `level` between the first and the last of `angles`, ascending, at which it is at most `gains`.
pub(super) fn cover(g: &PartialFractions, angles: &[f64], gains: &[f64], level: f64) -> Result<Cover> {
    let ends = angles.windows(2).zip(gains.windows(2));
    let mut arcs: Vec<[(f64, f64); 2]> = ends.map(|(a, g)| [(a[0], g[0]), (a[1], g[1])]).collect();
    let mut seen = arcs.len();
    while !arcs.is_empty() {
        let open = |[(a, at_a), (b, at_b)]: &[(f64, f64); 2]| {
            let room = level - at_a.max(*at_b);
            let between = (b - a) * (b - a) / 8.0 * g.curvature(*a, *b);
            between > room || between.is_nan()
        };
        arcs = arcs.into_par_iter().filter(|arc| open(arc)).collect();
        let middles: Vec<f64> = arcs.iter().map(|[(a, _), (b, _)]| 0.5 * (a + b)).collect();
        seen += middles.len();
        if seen > MOST_ARCS {
            return Ok(Cover::Unknown);
        }
        let found = g.gains(&middles, 0.5 * level)?;
        let highest = middles.iter().zip(&found).max_by(|x, y| x.1.total_cmp(y.1));
        if let Some((&frequency, &value)) = highest.filter(|(_, gain)| **gain > level || gain.is_nan()) {
            return Ok(Cover::Above(HinfNorm { value, frequency }));
        }
        let halves = arcs.iter().zip(middles.iter().zip(&found));
        arcs = halves.flat_map(|(&[a, b], (&middle, &gain))| [[a, (middle, gain)], [(middle, gain), b]]).collect();
    }
    Ok(Cover::Below)
}
