//! Gains of systems in continuous time by the numbers that are stored.
//!
//! Norms are searched for on the image in discrete time ([`crate::continuous`]). Its rounding moves poles next to the axis, and the difference
//! of two systems that nearly agree there by more than its size. Here `C (i omega - A)^-1 B + D` is evaluated by LU factors and
//! residuals in twice the precision.

use super::bounded_real::BoundedReal;
use super::hinf::{HinfNorm, hinf_norm};
use super::response::FrequencyResponse;
use crate::continuous::Original;
use crate::linalg::{complex_spectral_norm, product};
use crate::proof::double::{Double, Matrix};
use crate::{LinearSystem, Result};
use faer::linalg::solvers::Solve;
use faer::{Mat, c64};
use std::f64::consts::PI;

/// Steps of refinement at most; each takes off as many digits as the resolvent leaves.
const STEPS: usize = 8;
/// Corrections below this, relative to the solution, end them.
const REFINED: f64 = 1e-20;
/// Or these, when the steps are done.
const ENOUGH: f64 = 1e-12;
/// Frequencies that are tried of small systems: of n states about `TRIED / n^2`.
const TRIED: usize = 100_000;
/// Steps of a golden section search.
const SECTIONS: usize = 24;

/// A system, or the difference of two.
pub(super) struct Stored<'a> {
    systems: Vec<&'a Original>,
}

/// What the stored numbers say of a norm that was found on the image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checked {
    /// The largest gain found.
    pub norm: HinfNorm,
    /// The most by which a gain differs from that of the image.
    pub apart: f64,
}

impl<'a> Stored<'a> {
    /// `first - second`, or `first` alone; `None` where they are not the images of systems in continuous time by one map.
    pub(super) fn new(systems: &[&'a LinearSystem]) -> Option<Self> {
        let systems: Vec<&Original> = systems.iter().map(|system| system.image_of()).collect::<Option<_>>()?;
        systems.windows(2).all(|pair| pair[0].map == pair[1].map).then_some(Self { systems })
    }

    /// What was found on the image, if the stored numbers have that gain there, else the largest gain that is found of them.
    pub(super) fn attained(&self, image: &FrequencyResponse, found: HinfNorm) -> Result<HinfNorm> {
        let gain = self.gain(found.frequency)?;
        if gain.is_none_or(|gain| (gain - found.value).abs() <= ATTAINED * found.value) {
            return Ok(found);
        }
        Ok(self.checked(image, found)?.map_or(found, |checked| checked.norm))
    }

    /// The largest gain at the angle of the peak that was found on the image, at those of the poles next to the circle, and around the
    /// highest of them; `None` where double precision cannot solve for it.
    pub(super) fn checked(&self, image: &FrequencyResponse, found: HinfNorm) -> Result<Option<Checked>> {
        let states = self.systems.iter().map(|system| system.a.nrows()).max().unwrap_or(0);
        let mut poles: Vec<(f64, f64)> = image.rates().collect();
        poles.sort_by(|one, two| one.1.total_cmp(&two.1));
        poles.dedup_by(|next, last| (next.0 - last.0).abs() < 0.1 * last.1);
        poles.truncate((TRIED / (states * states).max(1)).clamp(4, 32));
        let width = poles.first().map_or(1e-3, |pole| pole.1);
        let mut out = Checked { norm: HinfNorm { value: 0.0, frequency: found.frequency }, apart: 0.0 };
        let mut around = width;
        for (angle, rate) in [(found.frequency, width)].into_iter().chain(poles) {
            let Some(gain) = self.gain(angle)? else { return Ok(None) };
            out.apart = out.apart.max((gain - image.gain(angle)?).abs());
            if gain > out.norm.value {
                (out.norm, around) = (HinfNorm { value: gain, frequency: angle }, rate);
            }
        }
        if out.apart > APART * out.norm.value {
            self.climb(&mut out.norm, around)?;
        }
        Ok(Some(out))
    }

    /// Golden sections around a peak of this width.
    fn climb(&self, peak: &mut HinfNorm, width: f64) -> Result<()> {
        const RATIO: f64 = 0.381_966_011_250_105_1;
        let (mut low, mut high) = ((peak.frequency - width).max(0.0), (peak.frequency + width).min(PI));
        let at = |frequency: f64| {
            Ok::<_, crate::LtiError>(HinfNorm { value: self.gain(frequency)?.unwrap_or(0.0), frequency })
        };
        let mut inner = [at(low + RATIO * (high - low))?, at(high - RATIO * (high - low))?];
        for _ in 0..SECTIONS {
            for found in inner {
                if found.value > peak.value {
                    *peak = found;
                }
            }
            if inner[0].value > inner[1].value {
                high = inner[1].frequency;
                inner = [at(low + RATIO * (high - low))?, inner[0]];
            } else {
                low = inner[0].frequency;
                inner = [inner[1], at(high - RATIO * (high - low))?];
            }
        }
        Ok(())
    }

    /// The largest singular value at the frequency of an angle.
    fn gain(&self, angle: f64) -> Result<Option<f64>> {
        let frequency = self.systems[0].map.frequency(angle);
        let (p, m) = (self.systems[0].c.nrows(), self.systems[0].b.ncols());
        let mut sum = [Matrix::zeros(p, m), Matrix::zeros(p, m)];
        for (system, sign) in self.systems.iter().zip([1.0, -1.0]) {
            let signed = |x: Double| if sign < 0.0 { -x } else { x };
            if frequency.is_finite() {
                let Some(states) = states_at(system, frequency) else { return Ok(None) };
                let c = Matrix::of(system.c.as_ref());
                for (sum, part) in sum.iter_mut().zip(&states) {
                    *sum = sum.combined(&c.times(part), |one, two| one + signed(two));
                }
            }
            if let Some(d) = &system.d {
                sum[0] = sum[0].combined(&Matrix::of(d.as_ref()), |one, two| one + signed(two));
            }
        }
        let [re, im] = sum.map(|part| part.rounded());
        let g = Mat::from_fn(p, m, |i, j| c64::new(re[(i, j)], im[(i, j)]));
        let gain = complex_spectral_norm(g.as_ref())?;
        Ok(gain.is_finite().then_some(gain))
    }
}

/// Real and imaginary part of `(i omega - A)^-1 B`; `None` where the steps do not come to an end.
fn states_at(system: &Original, omega: f64) -> Option<[Matrix; 2]> {
    let (n, m) = (system.a.nrows(), system.b.ncols());
    let resolvent =
        Mat::from_fn(n, n, |i, j| c64::new(-system.a[(i, j)], if i == j { omega } else { 0.0 })).partial_piv_lu();
    let (a, b) = (Matrix::of(system.a.as_ref()), Matrix::of(system.b.as_ref()));
    let omega = Double::of(omega);
    let mut x = [Matrix::zeros(n, m), Matrix::zeros(n, m)];
    let mut residual = [b.clone(), Matrix::zeros(n, m)];
    let size = |x: &[Matrix; 2]| x.each_ref().map(|part| part.rounded().norm_max()).into_iter().fold(0.0, f64::max);
    let mut last = f64::INFINITY;
    if n == 0 || m == 0 {
        return Some(x);
    }
    for _ in 0..STEPS {
        let [re, im] = residual.each_ref().map(Matrix::rounded);
        let step = resolvent.solve(Mat::from_fn(n, m, |i, j| c64::new(re[(i, j)], im[(i, j)])));
        let correction = step.norm_max();
        if !correction.is_finite() || correction > last {
            return None;
        }
        last = correction;
        x = [0, 1].map(|part| {
            Matrix::from_fn(n, m, |i, j| {
                let z = step[(i, j)];
                x[part].at(i, j) + Double::of(if part == 0 { z.re } else { z.im })
            })
        });
        if last <= REFINED * size(&x) {
            return Some(x);
        }
        // (i omega - A) (x + i y) = -(A x + omega y) + i (omega x - A y)
        let [from_re, from_im] = [0, 1].map(|part| a.times(&x[part]));
        residual = [
            b.combined(&from_re.combined(&x[1], |ax, y| ax + omega * y), |b, rest| b + rest),
            from_im.combined(&x[0], |ay, x| ay - omega * x),
        ];
    }
    (last <= ENOUGH * size(&x)).then_some(x)
}

/// What the gain at an angle may change by, to first order, where every entry of A of both systems is rounded to a double:
/// `2^-53 |C R| |A| |R B|` with `R = (i omega - A)^-1`, entry by entry; 0 in discrete time, and where the resolvent cannot be solved for.
pub fn rounding_of_entries(systems: [&LinearSystem; 2], angle: f64) -> f64 {
    let moved = |system: &LinearSystem| {
        let original = system.image_of()?;
        let frequency = original.map.frequency(angle);
        let transposed = Original {
            a: original.a.transpose().to_owned(),
            b: original.c.transpose().to_owned(),
            c: original.b.transpose().to_owned(),
            ..original.clone()
        };
        let moduli =
            |[re, im]: [Matrix; 2]| Mat::from_fn(re.rows(), re.columns(), |i, j| re.at(i, j).hi.hypot(im.at(i, j).hi));
        let (x, y) = (moduli(states_at(original, frequency)?), moduli(states_at(&transposed, frequency)?));
        let a = Mat::from_fn(original.a.nrows(), original.a.ncols(), |i, j| original.a[(i, j)].abs());
        Some(0.5 * f64::EPSILON * product(product(y.transpose(), a.as_ref()).as_ref(), x.as_ref()).norm_l2())
    };
    systems.into_iter().filter_map(moved).filter(|moved| moved.is_finite()).sum()
}

/// The norm of a system and its enclosure, as [`hinf_norm`] finds them; in continuous time by the numbers that are stored.
///
/// # Errors
/// Failures of the linear algebra.
pub fn hinf_norm_of(system: &LinearSystem) -> Result<(HinfNorm, BoundedReal)> {
    let response = FrequencyResponse::new(system)?;
    let (norm, check) = hinf_norm(&response)?;
    let Some(stored) = Stored::new(&[system]) else { return Ok((norm, check)) };
    let found = stored.attained(&response, norm)?;
    let apart = (found.value - norm.value).abs();
    Ok((found, BoundedReal { lower: found, upper: check.upper.max(found.value) + apart }))
}

/// A gain of the image this near to that of the stored numbers, relative to it, is attained.
const ATTAINED: f64 = 1e-7;
/// Gains of the image this near to those of the stored numbers, relative to the norm, are taken for them.
pub(super) const APART: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StateMatrix;
    use crate::continuous::Bilinear;

    /// One pair of poles next to the axis: the gain at its frequency is known.
    #[test]
    fn gains_next_to_the_axis_are_those_of_the_stored_numbers() {
        let (decay, frequency) = (1e-10, 0.05);
        let a = StateMatrix::Dense(Mat::from_fn(2, 2, |i, j| match (i, j) {
            (0, 1) => frequency,
            (1, 0) => -frequency,
            _ => -decay,
        }));
        let map = Bilinear { rate: 1.0 };
        let (b, c) = (Mat::from_fn(2, 1, |i, _| [1.0, 0.0][i]), Mat::from_fn(1, 2, |_, j| [1.0, 0.0][j]));
        let (image_a, image_b, image_c, image_d) = map.discrete(&a, b.as_ref(), c.as_ref(), None).unwrap();
        let image = LinearSystem::new(image_a, image_b, image_c, Some(image_d)).unwrap();
        let image = image.with_image_of(Original { map, a: a.to_dense(), b, c, d: None }).unwrap();
        let (norm, enclosure) = hinf_norm_of(&image).unwrap();
        // (s + decay) / ((s + decay)^2 + frequency^2), whose largest gain is that at i frequency, 1 / (2 decay), but for the square of
        // decay / frequency.
        assert!((norm.value / 5e9 - 1.0).abs() < 1e-9, "{}", norm.value);
        assert!(enclosure.upper >= norm.value);
    }
}
