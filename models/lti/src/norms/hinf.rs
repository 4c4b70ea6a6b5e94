//! The H-infinity norm `max over omega of sigma_max(G(e^{i omega}))`.

use super::bounded_real::{BoundedReal, MARGIN, bounded_real_check};
use super::cover::{Arcs, CLOSE, Cover, MOST_ARCS};
use super::response::FrequencyResponse;
use crate::Result;
use std::f64::consts::PI;

/// An H-infinity norm with the frequency at which it is attained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HinfNorm {
    /// Largest gain found; a lower bound of the norm, attained at `frequency`.
    pub value: f64,
    /// Angle in [0, pi].
    pub frequency: f64,
}

/// All frequencies of a real system.
pub(super) const CIRCLE: (f64, f64) = (0.0, PI);
/// Points of the logarithmic part of the sweep per decade.
const PER_DECADE: f64 = 3.0;
/// Steps of the local refinement at most: golden sections alone shrink a bracket to 3e-7 of its width.
const STEPS: usize = 32;
/// How near to its highest point a peak is followed, relative to the bracket, of which a peak may take a small part.
const NEAR: f64 = 1e-9;
/// Gains this near to each other are those of the highest point.
const LEVEL: f64 = 1e-13;
/// Gains this near to each other may be on either side of a peak.
const SAME: f64 = 1e-9;
/// Relative error of a searched gain at which the search is not believed.
const SEARCH_TOLERANCE: f64 = 1e-6;
/// With more poles than this, the sweep around a pole ends after some of its widths: other poles are nearer there.
const MANY_POLES: usize = 64;
/// Peaks that are refined.
const PEAKS: usize = 4;

/// The norm by a sweep over the upper unit circle with local refinement.
///
/// A peak lies near the angle of a pole and has the width of its decay rate, so the sweep is logarithmic around every pole
/// angle from half of its rate on, and uniform in between. Of many poles of which partial fractions are known it takes their angles, and
/// arcs that cover the circle lead to what is higher in between.
///
/// # Errors
/// Singular values that do not converge.
pub fn hinf_sweep(g: &FrequencyResponse) -> Result<HinfNorm> {
    let (Sweep { norm, .. }, check) = searched(g, CIRCLE, MOST_ARCS / 10)?;
    let HinfNorm { value, frequency } = check.map_or(norm, |check| check.lower);
    Ok(HinfNorm { value: g.unscale(value), frequency })
}

/// The sweep, and the scaled enclosure by so many arcs at most, where there is one.
pub(super) fn searched(
    g: &FrequencyResponse,
    band: (f64, f64),
    most_arcs: usize,
) -> Result<(Sweep, Option<BoundedReal>)> {
    let few = sweep(g, band, Points::Few)?;
    let check = covered(g, &few, most_arcs)?;
    let many = check.is_none() && is_of_many(g);
    Ok((if many { sweep(g, band, Points::Many)? } else { few }, check))
}

/// How dense a sweep is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Points {
    /// Of many poles only their angles, and some in between.
    Few,
    /// Further ones around every pole.
    Many,
}

fn is_of_many(g: &FrequencyResponse) -> bool {
    g.poles().len() > MANY_POLES && g.fractions().is_some()
}

/// What a sweep saw.
pub(super) struct Sweep {
    /// The largest gain found.
    pub norm: HinfNorm,
    /// Where partial fractions were searched and confirmed: angles, ascending, and bounds from above of the gains there.
    seen: Option<(Vec<f64>, Vec<f64>)>,
}

/// The sweep over the scaled transfer function.
fn sweep(g: &FrequencyResponse, band: (f64, f64), points: Points) -> Result<Sweep> {
    let grid = frequency_grid(g, band, points);
    let mut best = HinfNorm { value: 0.0, frequency: band.0 };
    let mut gains = Vec::with_capacity(grid.len());
    if let Some(fractions) = g.fractions() {
        let coarse: Vec<f64> = grid.iter().copied().step_by(8).collect();
        let floor = CLOSE * fractions.gains(&coarse, 0.0)?.into_iter().fold(0.0, f64::max);
        gains = fractions.gains(&grid, floor)?;
        for (&omega, &gain) in grid.iter().zip(&gains) {
            if gain > best.value {
                best = HinfNorm { value: gain, frequency: omega };
            }
        }
    } else {
        for &omega in &grid {
            // Points that cannot come near the maximum need no decomposition; their cheap bound still orders the peaks.
            let gain = g.gain_above(omega, 0.5 * best.value)?;
            if gain > best.value {
                best = HinfNorm { value: gain, frequency: omega };
            }
            gains.push(gain);
        }
    }
    let close = if g.fractions().is_some() { CLOSE } else { 0.5 };
    let mut peaks: Vec<usize> = (0..grid.len())
        .filter(|&i| (i == 0 || gains[i] >= gains[i - 1]) && (i + 1 == grid.len() || gains[i] >= gains[i + 1]))
        .filter(|&i| gains[i] > close * best.value)
        .collect();
    peaks.sort_by(|&i, &j| gains[j].total_cmp(&gains[i]));
    for &i in peaks.iter().take(PEAKS) {
        let refined = climb(g, around(i, &grid, &gains), HinfNorm { value: gains[i], frequency: grid[i] })?;
        if refined.value > best.value {
            best = refined;
        }
    }
    if g.fractions().is_none() {
        return Ok(Sweep { norm: best, seen: None });
    }
    // Where the search led is measured; a search that was led astray by rounding is repeated without it.
    let value = g.scaled_gain(best.frequency)?;
    let apart = (value - best.value).abs() - SEARCH_TOLERANCE * value;
    if apart <= 0.0 || apart <= 100.0 * g.rounding(best.frequency) {
        return Ok(Sweep { norm: HinfNorm { value, ..best }, seen: Some((grid, gains)) });
    }
    sweep(&g.without_partial_fractions(), band, points)
}

/// The angles between which the peak at point `i` lies: the nearest whose gains are lower by more than rounding. A point at nearly the same
/// angle has nearly the same gain, and may be either side of the peak.
fn around(i: usize, grid: &[f64], gains: &[f64]) -> (f64, f64) {
    let is_lower = |k: &usize| gains[*k] < gains[i] * (1.0 - SAME);
    let before = (0..i).rev().find(is_lower).unwrap_or(0);
    let after = (i + 1..grid.len()).find(is_lower).unwrap_or(grid.len() - 1);
    (grid[before], grid[after])
}

/// The norm by the sweep, then confirmed or raised by a second method: arcs that cover the circle, for many states, or the bounded-real
/// test. The result is within a relative 1e-6 of the true norm by two independent methods.
///
/// # Errors
/// Singular values or eigenvalues that do not converge.
pub fn hinf_norm(g: &FrequencyResponse) -> Result<(HinfNorm, BoundedReal)> {
    hinf_norm_in(g, CIRCLE)
}

/// As [`hinf_norm`], of the gains at frequencies between the two given.
///
/// # Errors
/// Those of [`hinf_norm`].
pub fn hinf_norm_in(g: &FrequencyResponse, band: (f64, f64)) -> Result<(HinfNorm, BoundedReal)> {
    let (sweep, check) = searched(g, band, MOST_ARCS)?;
    let check = check.map_or_else(|| bounded_real_check(g, sweep.norm, band), Ok)?;
    Ok(both_ends(g, &sweep, check))
}

/// The norm and its enclosure by what a test found, unscaled. The upper end lies above all that rounding of the gain there could hide.
pub(super) fn both_ends(g: &FrequencyResponse, sweep: &Sweep, check: BoundedReal) -> (HinfNorm, BoundedReal) {
    let norm = if check.lower.value > sweep.norm.value { check.lower } else { sweep.norm };
    let unscaled = |norm: HinfNorm| HinfNorm { value: g.unscale(norm.value), frequency: norm.frequency };
    let upper = g.unscale(check.upper + g.rounding(norm.frequency));
    (unscaled(norm), BoundedReal { lower: unscaled(check.lower), upper })
}

/// The scaled enclosure by arcs, of many states; `None` where it comes to nothing.
fn covered(g: &FrequencyResponse, sweep: &Sweep, most_arcs: usize) -> Result<Option<BoundedReal>> {
    const ATTEMPTS: usize = 16;
    let (Some(fractions), Some((angles, gains))) = (g.fractions(), &sweep.seen) else { return Ok(None) };
    let mut lower = sweep.norm;
    let mut arcs = Arcs::new(fractions, (angles, gains), most_arcs);
    for _ in 0..ATTEMPTS {
        // What partial fractions give at the peak is a rounding away from the gain.
        let apart = (fractions.gain(lower.frequency)? / lower.value - 1.0).abs();
        if apart.is_nan() || apart > 0.1 * MARGIN {
            return Ok(None);
        }
        let level = lower.value * (1.0 + MARGIN);
        match arcs.cover(level)? {
            Cover::Below => return Ok(Some(BoundedReal { lower, upper: level + apart * lower.value })),
            Cover::Above(found, ends) => {
                let frequency = climb(g, ends, found)?.frequency;
                let higher = HinfNorm { value: g.scaled_gain(frequency)?, frequency };
                if higher.value <= lower.value {
                    return Ok(None);
                }
                lower = higher;
            }
            Cover::Unknown => return Ok(None),
        }
    }
    Ok(None)
}

fn frequency_grid(g: &FrequencyResponse, (low, high): (f64, f64), points: Points) -> Vec<f64> {
    let many = is_of_many(g);
    let uniform = match points {
        _ if !many => 24,
        Points::Few => 64,
        Points::Many => 500,
    };
    let at = |i| low + (high - low) * f64::from(i) / f64::from(uniform);
    let mut grid: Vec<f64> = (0..uniform).map(at).chain([high]).collect();
    // Many poles share an angle (all real ones do): one logarithmic fan per distinct angle, from its slowest rate on.
    let mut fans: Vec<(f64, f64)> = Vec::new();
    for pole in g.poles() {
        let rate = pole.rate.abs().clamp(1e-12, 1.0);
        let angle = pole.angle.abs();
        match fans.iter_mut().find(|(a, r)| (a - angle).abs() < 0.1 * rate.min(*r)) {
            Some((_, slowest)) => *slowest = slowest.min(rate),
            None => fans.push((angle, rate)),
        }
    }
    for (angle, rate) in fans {
        let inside = |omega: &f64| (low..=high).contains(omega);
        grid.extend(Some(angle).filter(inside));
        let mut offset = 0.5 * rate;
        let reach = match points {
            _ if !many => PI,
            Points::Few => 0.0,
            Points::Many => 20.0 * rate,
        };
        while offset < reach.min(PI) {
            grid.extend([angle - offset, angle + offset].into_iter().filter(inside));
            offset *= 10f64.powf(1.0 / PER_DECADE);
        }
    }
    grid.sort_by(f64::total_cmp);
    // Where an angle is a rounding away from another there is nothing to see.
    grid.dedup_by(|next, last| *next - *last <= 4.0 * f64::EPSILON);
    grid
}

/// The peak between two angles, from a point between them: by the parabolas of R. P. Brent (Algorithms for Minimization without
/// Derivatives, 1973, chapter 5), by golden sections where they do not fit.
fn climb(g: &FrequencyResponse, (mut low, mut high): (f64, f64), start: HinfNorm) -> Result<HinfNorm> {
    const RATIO: f64 = 0.381_966_011_250_105_1;
    let near = NEAR * (high - low);
    // Gains are the same on both sides of 0 and of pi.
    if low == 0.0 {
        low = -high;
    } else if high == PI {
        high = 2.0 * PI - low;
    }
    let gain = |omega: f64| g.search_gain(PI - (PI - omega.abs()).abs());
    let [mut best, mut second, mut third] = [(start.frequency, start.value); 3];
    let (mut step, mut before) = (0.0_f64, 0.0_f64);
    for _ in 0..STEPS {
        let middle = 0.5 * (low + high);
        if (best.0 - middle).abs() <= 2.0 * near - 0.5 * (high - low) {
            break;
        }
        let golden = RATIO * if best.0 < middle { high - best.0 } else { low - best.0 };
        let (r, q) = ((best.0 - second.0) * (best.1 - third.1), (best.0 - third.0) * (best.1 - second.1));
        let parabolic = 0.5 * ((best.0 - second.0) * r - (best.0 - third.0) * q) / (q - r);
        let fits = parabolic.abs() < 0.5 * before.abs() && (low < best.0 + parabolic && best.0 + parabolic < high);
        (before, step) = if fits { (step, parabolic) } else { (golden / RATIO, golden) };
        // Never nearer to a point that is known than what is asked for.
        let omega = best.0 + if step.abs() >= near { step } else { near.copysign(step) };
        let found = (omega, gain(omega)?);
        let level = fits && (found.1 - best.1).abs() <= LEVEL * best.1;
        if found.1 >= best.1 {
            if omega < best.0 {
                high = best.0;
            } else {
                low = best.0;
            }
            (third, second, best) = (second, best, found);
        } else {
            if omega < best.0 {
                low = omega;
            } else {
                high = omega;
            }
            if found.1 >= second.1 || second.0 == best.0 {
                (third, second) = (second, found);
            } else if found.1 >= third.1 || third.0 == best.0 || third.0 == second.0 {
                third = found;
            }
        }
        if level {
            break;
        }
    }
    Ok(HinfNorm { value: best.1, frequency: PI - (PI - best.0.abs()).abs() })
}
