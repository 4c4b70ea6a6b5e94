//! Gains of systems by the numbers that are stored.
//!
//! Norms are searched for in double precision, in continuous time on the image in discrete time ([`crate::continuous`]). Rounding moves poles
//! next to the stability boundary, and the difference of two systems that nearly agree there by more than its size. Here `C (s - A)^-1 B + D`
//! is evaluated by LU factors and residuals in twice the precision, with `s = i omega`, or `e^(i omega)` in discrete time.

use super::bounded_real::BoundedReal;
use super::hinf::{HinfNorm, hinf_norm, hinf_sweep};
use super::response::FrequencyResponse;
use crate::continuous::{Bilinear, Original};
use crate::linalg::{above, beside, complex_spectral_norm, compress_columns, product};
use crate::proof::double::{Double, Matrix, sin_cos};
use crate::stein::growth;
use crate::{LinearSystem, Mode, Result, StateMatrix};
use faer::linalg::solvers::Solve;
use faer::{Mat, MatRef, c64};
use std::f64::consts::PI;

/// Steps of refinement at most; each takes off as many digits as the resolvent leaves.
const STEPS: usize = 8;
/// Corrections below this, relative to the solution, end them.
const REFINED: f64 = 1e-20;
/// Or these, when the steps are done.
const ENOUGH: f64 = 1e-12;
/// Systems of no more states are solved in twice the precision where steps of refinement do not come to an end.
const FEW_STATES: usize = 64;
/// Frequencies that are tried of small systems: of n states about `TRIED / n^2`.
const TRIED: usize = 100_000;
/// Steps of a golden section search.
const SECTIONS: usize = 24;

/// Multiplications at most for one gain, those of the LU factors included. Larger systems in discrete time are measured in double precision.
const MOST: usize = 30_000_000;

/// A system, or the difference of two.
pub(super) struct Stored {
    parts: Vec<Part>,
    /// To discrete time, where the systems are in continuous time.
    map: Option<Bilinear>,
    /// How far a gain in double precision may be from the true one.
    rounding: f64,
}

/// The numbers of a system.
struct Part {
    a: Matrix,
    b: Mat<f64>,
    c: Mat<f64>,
    d: Option<Mat<f64>>,
}

/// What the stored numbers say of a norm that was found on the image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checked {
    /// The largest gain found.
    pub norm: HinfNorm,
    /// The most by which a gain differs from that of the image.
    pub apart: f64,
}

impl Part {
    fn of_original(original: &Original) -> Self {
        let Original { a, b, c, d, .. } = original.clone();
        Self { a: Matrix::of(a.as_ref()), b, c, d }
    }

    fn of(system: &LinearSystem) -> Self {
        let a = match (system.written(), system.a()) {
            (Some(written), _) => Matrix::of(written),
            (None, StateMatrix::Modal(modes)) => of_modes(modes),
            (None, a) => Matrix::of(a.to_dense().as_ref()),
        };
        let d = system.d().map(|d| d.to_owned());
        Self { a, b: system.b().to_owned(), c: system.c().to_owned(), d }
    }

    fn states(&self) -> usize {
        self.a.rows()
    }
}

/// The blocks of a modal A, whose entries are no doubles.
fn of_modes(modes: &[Mode]) -> Matrix {
    let n = modes.iter().map(|mode| mode.states()).sum();
    let mut a = Matrix::zeros(n, n);
    let mut first = 0;
    for mode in modes {
        match *mode {
            Mode::Real(pole) => a.set(first, first, Double::of(pole)),
            Mode::Pair { radius, angle } => {
                let (sin, cos) = sin_cos(angle);
                let (sin, cos) = (Double::of(radius) * sin, Double::of(radius) * cos);
                a.set(first, first, cos);
                a.set(first + 1, first + 1, cos);
                a.set(first, first + 1, -sin);
                a.set(first + 1, first, sin);
            }
        }
        first += mode.states();
    }
    a
}

/// Parts without direct terms with as few inputs and outputs as there are states, by the same orthogonal transformations.
fn compressed(parts: &mut [Part]) {
    let states: usize = parts.iter().map(Part::states).sum();
    let Some(first) = parts.first().filter(|_| parts.iter().all(|part| part.d.is_none())) else { return };
    let (p, m) = (first.c.nrows(), first.b.ncols());
    if m > states {
        let all = parts.iter().fold(Mat::zeros(0, m), |all, part| above(all.as_ref(), part.b.as_ref()));
        let all = compress_columns(all.as_ref());
        let mut from = 0;
        for part in parts.iter_mut() {
            part.b = all.subrows(from, part.states()).to_owned();
            from += part.states();
        }
    }
    if p > states {
        let all = parts.iter().fold(Mat::zeros(p, 0), |all, part| beside(all.as_ref(), part.c.as_ref()));
        let all = compress_columns(all.transpose()).transpose().to_owned();
        let mut from = 0;
        for part in parts.iter_mut() {
            part.c = all.subcols(from, part.states()).to_owned();
            from += part.states();
        }
    }
}

impl Stored {
    /// `first - second`, or `first` alone, of norm `size`; `None` where images of systems in continuous time have different maps or
    /// unknown matrices, and where systems in discrete time are too large for twice the precision.
    pub(super) fn new(systems: &[&LinearSystem], size: f64) -> Option<Self> {
        if systems.iter().any(|system| system.map().is_some() || system.image_of().is_some()) {
            let originals = systems.iter().map(|system| system.image_of()).collect::<Option<Vec<&Original>>>()?;
            let one_map = originals.windows(2).all(|pair| pair[0].map == pair[1].map);
            let parts = originals.iter().map(|original| Part::of_original(original)).collect();
            let map = originals.first().map(|original| original.map);
            return one_map.then_some(Self { parts, map, rounding: f64::INFINITY });
        }
        let mut rounding = 0.0_f64;
        for system in systems {
            let by_poles = system.written().is_none() && system.a().modes().is_some();
            // Poles are further from the circle by their rates; entries of A are rounded, and powers may grow before they decay.
            let moved = if by_poles || system.states() == 0 {
                1.0
            } else {
                let a = system.written().map_or_else(|| system.a().to_dense(), |a| a.to_owned());
                growth(a.as_ref()).powi(2) / (1.0 - system.spectral_radius())
            };
            rounding = rounding.max(16.0 * f64::EPSILON * size * moved);
        }
        let states = systems.iter().map(|system| system.states()).max().unwrap_or(0);
        let total: usize = systems.iter().map(|system| system.states()).sum();
        let least = if systems.iter().all(|system| system.d().is_none()) { total } else { usize::MAX };
        let inputs = systems.iter().map(|system| system.inputs()).max().unwrap_or(0).min(least);
        let outputs = systems.iter().map(|system| system.outputs()).max().unwrap_or(0).min(least);
        let products = inputs.saturating_mul(states.saturating_add(outputs));
        if states.saturating_mul(states.saturating_mul(states).saturating_add(products)) > MOST {
            return None;
        }
        let mut parts: Vec<Part> = systems.iter().map(|system| Part::of(system)).collect();
        compressed(&mut parts);
        Some(Self { parts, map: None, rounding })
    }

    /// What was found on the image, if the stored numbers have that gain there, else the largest gain that is found of them.
    pub(super) fn attained(&self, image: &FrequencyResponse, found: HinfNorm) -> Result<HinfNorm> {
        if self.rounding <= ATTAINED * found.value {
            return Ok(found);
        }
        let gain = self.gain(found.frequency)?;
        if gain.is_none_or(|gain| (gain - found.value).abs() <= ATTAINED * found.value) {
            return Ok(found);
        }
        Ok(self.checked(image, found)?.map_or(found, |checked| checked.norm))
    }

    /// The largest gain at the angle of the peak that was found on the image, at those of the poles next to the circle, and around the
    /// highest of them; `None` where double precision cannot solve for it.
    pub(super) fn checked(&self, image: &FrequencyResponse, found: HinfNorm) -> Result<Option<Checked>> {
        let states = self.parts.iter().map(Part::states).max().unwrap_or(0);
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
        let at = point(self.map, angle);
        let (p, m) = (self.parts[0].c.nrows(), self.parts[0].b.ncols());
        let mut sum = [Matrix::zeros(p, m), Matrix::zeros(p, m)];
        for (part, sign) in self.parts.iter().zip([1.0, -1.0]) {
            let signed = |x: Double| if sign < 0.0 { -x } else { x };
            if let Some(at) = at {
                let Some(states) = states_at(part, at) else { return Ok(None) };
                let c = Matrix::of(part.c.as_ref());
                for (sum, part) in sum.iter_mut().zip(&states) {
                    *sum = sum.combined(&c.times(part), |one, two| one + signed(two));
                }
            }
            if let Some(d) = &part.d {
                sum[0] = sum[0].combined(&Matrix::of(d.as_ref()), |one, two| one + signed(two));
            }
        }
        let [re, im] = sum.map(|part| part.rounded());
        let g = Mat::from_fn(p, m, |i, j| c64::new(re[(i, j)], im[(i, j)]));
        let gain = complex_spectral_norm(g.as_ref())?;
        Ok(gain.is_finite().then_some(gain))
    }
}

/// The largest gain of `A, B, C, D`, in continuous time where there is a map, at the frequency of an angle; `None` where there are no digits
/// left.
pub(crate) fn stored_gain(
    (a, b, c, d): (MatRef<'_, f64>, MatRef<'_, f64>, MatRef<'_, f64>, Option<MatRef<'_, f64>>),
    map: Option<Bilinear>,
    angle: f64,
) -> Result<Option<f64>> {
    let d = d.map(|d| d.to_owned());
    let part = Part { a: Matrix::of(a), b: b.to_owned(), c: c.to_owned(), d };
    Stored { parts: vec![part], map, rounding: f64::INFINITY }.gain(angle)
}

/// The point of the stability boundary at an angle of discrete time, real and imaginary part; `None` for infinity.
fn point(map: Option<Bilinear>, angle: f64) -> Option<[Double; 2]> {
    if let Some(map) = map {
        let omega = map.frequency(angle);
        return omega.is_finite().then_some([Double::of(0.0), Double::of(omega)]);
    }
    let (sin, cos) = sin_cos(angle);
    Some([cos, sin])
}

/// Real and imaginary part of `(s - A)^-1 B`; `None` where there are no digits left.
fn states_at(system: &Part, s: [Double; 2]) -> Option<[Matrix; 2]> {
    refined(system, s).or_else(|| eliminated(system, s))
}

/// The same by elimination in twice the precision, of real numbers: `[u - A, -v; v, u - A] [x; y] = [B; 0]` with `s = u + i v`.
fn eliminated(system: &Part, [re_s, im_s]: [Double; 2]) -> Option<[Matrix; 2]> {
    let (n, m) = (system.states(), system.b.ncols());
    if n > FEW_STATES {
        return None;
    }
    let zero = Double::of(0.0);
    let both = Matrix::from_fn(2 * n, 2 * n, |i, j| {
        let s = match (i % n == j % n, i < n, j < n) {
            (false, ..) => zero,
            (_, true, false) => -im_s,
            (_, false, true) => im_s,
            _ => re_s,
        };
        if (i < n) == (j < n) { s - system.a.at(i % n, j % n) } else { s }
    });
    let right = Matrix::from_fn(2 * n, m, |i, j| if i < n { Double::of(system.b[(i, j)]) } else { zero });
    let x = both.solve(&right);
    let parts = [0, n].map(|first| Matrix::from_fn(n, m, |i, j| x.at(first + i, j)));
    parts.iter().all(|part| part.rounded().norm_max().is_finite()).then_some(parts)
}

/// The same by LU factors in double precision and residuals in twice; `None` where the steps do not come to an end.
fn refined(system: &Part, [re_s, im_s]: [Double; 2]) -> Option<[Matrix; 2]> {
    let (n, m) = (system.states(), system.b.ncols());
    let diagonal = |i: usize, j: usize, s: Double| if i == j { s } else { Double::of(0.0) };
    let resolvent =
        Mat::from_fn(n, n, |i, j| c64::new((diagonal(i, j, re_s) - system.a.at(i, j)).hi, diagonal(i, j, im_s).hi))
            .partial_piv_lu();
    let (a, b) = (&system.a, Matrix::of(system.b.as_ref()));
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
        // (u + i v - A) (x + i y) = (u x - v y - A x) + i (v x + u y - A y)
        let [from_re, from_im] = [0, 1].map(|part| a.times(&x[part]));
        residual = [
            b.combined(&from_re, |b, ax| b + ax)
                .combined(&x[0], |rest, x| rest - re_s * x)
                .combined(&x[1], |rest, y| rest + im_s * y),
            from_im.combined(&x[0], |ay, x| ay - im_s * x).combined(&x[1], |rest, y| rest - re_s * y),
        ];
    }
    (last <= ENOUGH * size(&x)).then_some(x)
}

/// What the gain at an angle may change by, to first order, where every entry of A of both systems is rounded to a double:
/// `2^-53 |C R| |A| |R B|` with `R = (i omega - A)^-1`, entry by entry; 0 in discrete time, and where the resolvent cannot be solved for.
pub fn rounding_of_entries(systems: [&LinearSystem; 2], angle: f64) -> f64 {
    let moved = |system: &LinearSystem| {
        let original = system.image_of()?;
        let at = point(Some(original.map), angle)?;
        let part = Part::of_original(original);
        let transposed = Part {
            a: part.a.transposed(),
            b: part.c.transpose().to_owned(),
            c: part.b.transpose().to_owned(),
            d: None,
        };
        let moduli =
            |[re, im]: [Matrix; 2]| Mat::from_fn(re.rows(), re.columns(), |i, j| re.at(i, j).hi.hypot(im.at(i, j).hi));
        let (x, y) = (moduli(states_at(&part, at)?), moduli(states_at(&transposed, at)?));
        let a = part.a.moduli();
        Some(0.5 * f64::EPSILON * product(product(y.transpose(), a.as_ref()).as_ref(), x.as_ref()).norm_l2())
    };
    systems.into_iter().filter_map(moved).filter(|moved| moved.is_finite()).sum()
}

/// The norm of a system and its enclosure, as [`hinf_norm`] finds them; by the numbers that are stored in continuous time, and where rounding
/// counts in discrete time.
///
/// # Errors
/// Failures of the linear algebra.
pub fn hinf_norm_of(system: &LinearSystem) -> Result<(HinfNorm, BoundedReal)> {
    let response = FrequencyResponse::new(system);
    let (norm, check) = hinf_norm(&response)?;
    let found = by_stored_numbers(system, &response, norm)?;
    if found == norm {
        return Ok((norm, check));
    }
    let apart = (found.value - norm.value).abs();
    Ok((found, BoundedReal { lower: found, upper: check.upper.max(found.value) + apart }))
}

/// The norm of a system as [`hinf_sweep`] finds it, by the numbers that are stored as [`hinf_norm_of`].
///
/// # Errors
/// Failures of the linear algebra.
pub fn hinf_sweep_of(system: &LinearSystem) -> Result<HinfNorm> {
    let response = FrequencyResponse::new(system);
    let norm = hinf_sweep(&response)?;
    by_stored_numbers(system, &response, norm)
}

fn by_stored_numbers(system: &LinearSystem, response: &FrequencyResponse, norm: HinfNorm) -> Result<HinfNorm> {
    let stored = Stored::new(&[system], norm.value);
    stored.map_or(Ok(norm), |stored| stored.attained(response, norm))
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
        let swept = hinf_sweep_of(&image).unwrap();
        assert!((swept.value / norm.value - 1.0).abs() < 1e-9, "{}", swept.value);
    }

    /// A dense A in coordinates so far from its own that LU factors in double precision have no digits: `1 / (s + 1) + 1 / (s + 2)`.
    #[test]
    fn gains_of_coordinates_next_to_dependent_are_those_of_the_stored_numbers() {
        // T = [1, k; k, k^2 + 1], whose determinant is 1; no entry is rounded.
        let k = 16384.0;
        let a = [[k * k - 1.0, -k], [k * (k * k + 1.0), -k * k - 2.0]];
        let (b, c) = ([1.0 + k, k * k + k + 1.0], [k * k - k + 1.0, 1.0 - k]);
        let part = Part {
            a: Matrix::of(Mat::from_fn(2, 2, |i, j| a[i][j]).as_ref()),
            b: Mat::from_fn(2, 1, |i, _| b[i]),
            c: Mat::from_fn(1, 2, |_, j| c[j]),
            d: None,
        };
        assert!(refined(&part, point(Some(Bilinear { rate: 1.0 }), 0.0).unwrap()).is_none());
        let stored = Stored { parts: vec![part], map: Some(Bilinear { rate: 1.0 }), rounding: f64::INFINITY };
        for (angle, expected) in [(0.0, 1.5), (0.5 * PI, 1.3_f64.sqrt())] {
            let gain = stored.gain(angle).unwrap().unwrap();
            assert!((gain / expected - 1.0).abs() < 1e-12, "{angle}: {gain}");
        }
    }

    /// A dense A whose coupling of a slow state with another cancels: the error of leaving the other out is known.
    #[test]
    fn gains_next_to_the_circle_are_those_of_the_stored_numbers() {
        let (slow, fast) = (1.0 - 3.0 * 0.5_f64.powi(29), 0.5);
        // Diagonal in coordinates that are sheared; no entry is rounded.
        let shear = 1_000_003.0;
        let a = Mat::from_fn(2, 2, |i, j| [[slow, shear * (fast - slow)], [0.0, fast]][i][j]);
        let (b, c) =
            (Mat::from_fn(2, 1, |i, _| [1.0 + shear, 1.0][i]), Mat::from_fn(1, 2, |_, j| [1.0, 1.0 - shear][j]));
        let full = LinearSystem::new(StateMatrix::Dense(a), b, c, None).unwrap();
        let one = || Mat::from_fn(1, 1, |_, _| 1.0);
        let kept = LinearSystem::new(StateMatrix::Diagonal(vec![slow]), one(), one(), None).unwrap();
        let stored = Stored::new(&[&full, &kept], 2.0_f64.powi(27)).unwrap();
        let image = FrequencyResponse::new(&full.difference(&kept).unwrap());
        // 1 / (z - 0.5) at 1.
        let rounded = HinfNorm { value: image.gain(3e-9).unwrap(), frequency: 3e-9 };
        assert!((rounded.value / 2.0 - 1.0).abs() > 1e-6, "{}", rounded.value);
        let found = stored.attained(&image, rounded).unwrap();
        assert!((found.value / 2.0 - 1.0).abs() < 1e-12 && found.frequency < 1e-3, "{found:?}");
        for angle in [1e-9, 0.7, PI] {
            let (sin, cos) = f64::sin_cos(angle);
            let expected = c64::new(cos - 0.5, sin).norm().recip();
            assert!((stored.gain(angle).unwrap().unwrap() / expected - 1.0).abs() < 1e-12, "{angle}");
        }
    }

    /// Pairs of poles, many inputs and outputs: gains are those of double precision where nothing cancels.
    #[test]
    fn modes_and_wide_systems_have_the_same_gains() {
        let modes = vec![Mode::Real(0.9), Mode::Pair { radius: 0.8, angle: 1.1 }];
        let b = Mat::from_fn(3, 20, |i, j| ((3 * i + 7 * j) as f64).sin());
        let c = Mat::from_fn(30, 3, |i, j| ((5 * i + 2 * j) as f64).cos());
        let system = LinearSystem::new(StateMatrix::Modal(modes), b, c, None).unwrap();
        let stored = Stored::new(&[&system], 1.0).unwrap();
        assert_eq!((stored.parts[0].b.ncols(), stored.parts[0].c.nrows()), (3, 3));
        let response = FrequencyResponse::new(&system);
        for angle in [0.0, 0.3, 1.1, PI] {
            let (found, expected) = (stored.gain(angle).unwrap().unwrap(), response.gain(angle).unwrap());
            assert!((found / expected - 1.0).abs() < 1e-13, "{found} {expected}");
        }
        // Poles that are given by their rates need no second look.
        assert!(stored.rounding < 1e-13);
    }
}
