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
pub(super) const MOST_ARCS: usize = 100_000;

/// The point of an arc that is to be refined is evaluated to full accuracy where it may be above this share of the level.
pub(super) const CLOSE: f64 = 0.8;

/// What covering found.
pub(super) enum Cover {
    /// No gain between the ends of the band exceeds the level.
    Below,
    /// One between these angles does.
    Above(HinfNorm, (f64, f64)),
    /// There were too many arcs.
    Unknown,
}

/// What is left of a band.
pub(super) struct Arcs<'a> {
    g: &'a PartialFractions,
    /// Both ends with bounds from above of the gains there.
    open: Vec<[(f64, f64); 2]>,
    seen: usize,
    most: usize,
}

impl<'a> Arcs<'a> {
    /// All between the first and the last of `angles`, ascending, at which the gain is at most `gains`; no more than `most` will be made.
    pub fn new(g: &'a PartialFractions, (angles, gains): (&[f64], &[f64]), most: usize) -> Self {
        let ends = angles.windows(2).zip(gains.windows(2));
        let open: Vec<[(f64, f64); 2]> = ends.map(|(a, g)| [(a[0], g[0]), (a[1], g[1])]).collect();
        Self { g, seen: open.len(), open, most }
    }

    /// Whether the gain stays below `level`, which is no lower than in calls before.
    pub fn cover(&mut self, level: f64) -> Result<Cover> {
        loop {
            let g = self.g;
            let open = |[(a, at_a), (b, at_b)]: &[(f64, f64); 2]| {
                let room = level - at_a.max(*at_b);
                let between = (b - a) * (b - a) / 8.0 * g.curvature(*a, *b);
                between > room || between.is_nan()
            };
            let arcs: Vec<[(f64, f64); 2]> = std::mem::take(&mut self.open).into_par_iter().filter(open).collect();
            if arcs.is_empty() {
                return Ok(Cover::Below);
            }
            let middles: Vec<f64> = arcs.iter().map(|[(a, _), (b, _)]| 0.5 * (a + b)).collect();
            self.seen += middles.len();
            if self.seen > self.most {
                return Ok(Cover::Unknown);
            }
            let found = g.gains(&middles, CLOSE * level)?;
            let halves = arcs.iter().zip(middles.iter().zip(&found));
            self.open =
                halves.flat_map(|(&[a, b], (&middle, &gain))| [[a, (middle, gain)], [(middle, gain), b]]).collect();
            let highest = (0..arcs.len())
                .max_by(|&i, &j| found[i].total_cmp(&found[j]))
                .filter(|&i| found[i] > level || found[i].is_nan());
            if let Some(i) = highest {
                let peak = HinfNorm { value: found[i], frequency: middles[i] };
                return Ok(Cover::Above(peak, (arcs[i][0].0, arcs[i][1].0)));
            }
        }
    }
}
