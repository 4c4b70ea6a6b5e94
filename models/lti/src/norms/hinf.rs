//! The H-infinity norm `max over omega of sigma_max(G(e^{i omega}))`.

use super::bounded_real::{BoundedReal, MARGIN, bounded_real_check};
use super::cover::{Cover, cover};
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
/// Golden-section steps of the local refinement: a bracket shrinks to 3e-7 of its width, the gain is then right to 1e-12.
const GOLDEN_STEPS: usize = 32;
/// Relative error of a searched gain at which the search is not believed.
const SEARCH_TOLERANCE: f64 = 1e-6;
/// Poles of which one has no reach of its own beyond some of its widths: others are nearer.
const MANY_POLES: usize = 64;
/// Peaks that are refined.
const PEAKS: usize = 4;

/// The norm by a sweep over the upper unit circle with local refinement.
///
/// A peak lies near the angle of a pole and has the width of its decay rate, so the sweep is logarithmic around every pole
/// angle from half of its rate on, and uniform in between.
pub fn hinf_sweep(g: &FrequencyResponse) -> Result<HinfNorm> {
    let HinfNorm { value, frequency } = sweep(g, CIRCLE)?.norm;
    Ok(HinfNorm { value: g.unscale(value), frequency })
}

/// What a sweep saw.
pub(super) struct Sweep {
    /// The largest gain found.
    pub norm: HinfNorm,
    /// Where partial fractions were searched and confirmed: angles, ascending, and bounds from above of the gains there.
    seen: Option<(Vec<f64>, Vec<f64>)>,
}

/// The sweep over the scaled transfer function.
pub(super) fn sweep(g: &FrequencyResponse, band: (f64, f64)) -> Result<Sweep> {
    let grid = frequency_grid(g, band);
    let mut best = HinfNorm { value: 0.0, frequency: band.0 };
    let mut gains = Vec::with_capacity(grid.len());
    if let Some(fractions) = g.fractions() {
        let coarse: Vec<f64> = grid.iter().copied().step_by(8).collect();
        let floor = 0.5 * fractions.gains(&coarse, 0.0)?.into_iter().fold(0.0, f64::max);
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
    let mut peaks: Vec<usize> = (0..grid.len())
        .filter(|&i| (i == 0 || gains[i] >= gains[i - 1]) && (i + 1 == grid.len() || gains[i] >= gains[i + 1]))
        .filter(|&i| gains[i] > 0.5 * best.value)
        .collect();
    peaks.sort_by(|&i, &j| gains[j].total_cmp(&gains[i]));
    for &i in peaks.iter().take(PEAKS) {
        let bracket = (grid[i.saturating_sub(1)], grid[(i + 1).min(grid.len() - 1)]);
        let refined = golden_section(g, bracket)?;
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
    sweep(&g.without_partial_fractions(), band)
}

/// The norm by the sweep, then confirmed or raised by the bounded-real test: the result is within a relative 1e-6 of the
/// true norm by two independent methods.
pub fn hinf_norm(g: &FrequencyResponse) -> Result<(HinfNorm, BoundedReal)> {
    hinf_norm_in(g, CIRCLE)
}

/// As [`hinf_norm`], of the gains at frequencies between the two given.
pub fn hinf_norm_in(g: &FrequencyResponse, band: (f64, f64)) -> Result<(HinfNorm, BoundedReal)> {
    enclose(g, &sweep(g, band)?, band)
}

/// The enclosure of a norm whose sweep found the gain `sweep`, scaled. The upper end lies above all that rounding of the gain there
/// could hide.
pub(super) fn enclose(g: &FrequencyResponse, sweep: &Sweep, band: (f64, f64)) -> Result<(HinfNorm, BoundedReal)> {
    let check = match covered(g, sweep)? {
        Some(check) => check,
        None => bounded_real_check(g, sweep.norm, band)?,
    };
    Ok(both_ends(g, sweep, check))
}

/// The norm and its enclosure by what a test found, unscaled.
pub(super) fn both_ends(g: &FrequencyResponse, sweep: &Sweep, check: BoundedReal) -> (HinfNorm, BoundedReal) {
    let norm = if check.lower.value > sweep.norm.value { check.lower } else { sweep.norm };
    let unscaled = |norm: HinfNorm| HinfNorm { value: g.unscale(norm.value), frequency: norm.frequency };
    let upper = g.unscale(check.upper + g.rounding(norm.frequency));
    (unscaled(norm), BoundedReal { lower: unscaled(check.lower), upper })
}

/// The scaled enclosure by arcs, of many states; `None` where it comes to nothing.
pub(super) fn covered(g: &FrequencyResponse, sweep: &Sweep) -> Result<Option<BoundedReal>> {
    const ATTEMPTS: usize = 8;
    let (Some(fractions), Some((angles, gains))) = (g.fractions(), &sweep.seen) else { return Ok(None) };
    let mut lower = sweep.norm;
    for _ in 0..ATTEMPTS {
        // What partial fractions give at the peak is a rounding away from the gain.
        let apart = (fractions.gain(lower.frequency)? / lower.value - 1.0).abs();
        if apart.is_nan() || apart > 0.1 * MARGIN {
            return Ok(None);
        }
        let level = lower.value * (1.0 + MARGIN);
        match cover(fractions, angles, gains, level)? {
            Cover::Below => return Ok(Some(BoundedReal { lower, upper: level + apart * lower.value })),
            Cover::Above(found) => {
                let near = angles.partition_point(|angle| *angle < found.frequency);
                let ends = (angles[near.saturating_sub(1)], angles[near.min(angles.len() - 1)]);
                let refined = golden_section(g, ends)?;
                let frequency = if refined.value > found.value { refined.frequency } else { found.frequency };
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

fn frequency_grid(g: &FrequencyResponse, (low, high): (f64, f64)) -> Vec<f64> {
    let many = g.poles().len() > MANY_POLES && g.fractions().is_some();
    let uniform = if many { 500 } else { 24 };
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
        let reach = if many { 20.0 * rate } else { PI };
        while offset < reach.min(PI) {
            grid.extend([angle - offset, angle + offset].into_iter().filter(inside));
            offset *= 10f64.powf(1.0 / PER_DECADE);
        }
    }
    grid.sort_by(f64::total_cmp);
    grid.dedup();
    grid
}

fn golden_section(g: &FrequencyResponse, (mut low, mut high): (f64, f64)) -> Result<HinfNorm> {
    const RATIO: f64 = 0.618_033_988_749_894_9;
    let mut left = high - RATIO * (high - low);
    let mut right = low + RATIO * (high - low);
    let (mut gain_left, mut gain_right) = (g.search_gain(left)?, g.search_gain(right)?);
    for _ in 0..GOLDEN_STEPS {
        if gain_left > gain_right {
            (high, right, gain_right) = (right, left, gain_left);
            left = high - RATIO * (high - low);
            gain_left = g.search_gain(left)?;
        } else {
            (low, left, gain_left) = (left, right, gain_right);
            right = low + RATIO * (high - low);
            gain_right = g.search_gain(right)?;
        }
    }
    let (value, frequency) = if gain_left > gain_right { (gain_left, left) } else { (gain_right, right) };
    Ok(HinfNorm { value, frequency })
}
