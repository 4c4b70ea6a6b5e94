//! Continuous time by way of discrete time.
//!
//! The bilinear map `z = (rate + s) / (rate - s)` takes the left half plane to the unit disc and the imaginary axis to the circle:
//!
//! ```text
//! A_d = (rate - A)^-1 (rate + A)     B_d = sqrt(2 rate) (rate - A)^-1 B
//! C_d = sqrt(2 rate) C (rate - A)^-1     D_d = D + C (rate - A)^-1 B
//! ```
//!
//! It leaves both Gramians, the Hankel singular values, the H-infinity norm of every difference and so every bound as they are (K.
//! Glover, Int. J. Control 39 (1984), section 2). The angular frequency `omega` becomes the angle `2 atan(omega / rate)`.
//!
//! Mapped with the same rate, a weight keeps all of this: the image of the cascade `G V` is the cascade of the images, state by state, so
//! Gramians under weights are those of continuous time. So are Gramians in a band, since `(z - A_d)^-1 B_d = (rate - i omega) / sqrt(2 rate)
//! (i omega - A)^-1 B` and `d angle = 2 rate / (rate^2 + omega^2) d omega`.

use super::linalg::{eigenvalues, in_even_units, ldexp, product};
use super::norms::balance::suitable_units;
use super::split::{CLUSTER, FARTHEST, poles_and_their_rounding};
use super::{LinearSystem, LtiError, Mode, Result, StateMatrix};
use faer::linalg::solvers::Solve;
use faer::{Mat, MatRef, Scale, c64};

/// The map for one system and what it is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bilinear {
    /// The angular frequency that becomes a quarter of a turn per step, above 0.
    pub rate: f64,
}

/// A system in continuous time with its map.
#[derive(Debug, Clone)]
pub struct Continuous {
    /// The map to discrete time.
    pub map: Bilinear,
    /// State matrix.
    pub a: StateMatrix,
    /// Input matrix, [d, m].
    pub b: Mat<f64>,
    /// Output matrix, [p, d].
    pub c: Mat<f64>,
    /// Direct term, [p, m].
    pub d: Mat<f64>,
}

/// A system in continuous time by the numbers that are stored, which proofs are about.
#[derive(Debug, Clone, PartialEq)]
pub struct Original {
    /// The map to discrete time.
    pub map: Bilinear,
    /// State matrix, [d, d].
    pub a: Mat<f64>,
    /// Input matrix, [d, m].
    pub b: Mat<f64>,
    /// Output matrix, [p, d].
    pub c: Mat<f64>,
    /// Direct term, [p, m], if there is one.
    pub d: Option<Mat<f64>>,
}

impl Original {
    /// The system of some states, which are not coupled with the others.
    pub(crate) fn of_states(&self, states: &[usize]) -> Self {
        let n = states.len();
        Self {
            map: self.map,
            a: Mat::from_fn(n, n, |i, j| self.a[(states[i], states[j])]),
            b: Mat::from_fn(n, self.b.ncols(), |i, j| self.b[(states[i], j)]),
            c: Mat::from_fn(self.c.nrows(), n, |i, j| self.c[(i, states[j])]),
            d: self.d.clone(),
        }
    }
}

impl Continuous {
    /// `L A R, L B, C R`.
    pub(crate) fn projected(&self, left: &Mat<f64>, right: &Mat<f64>) -> (Mat<f64>, Mat<f64>, Mat<f64>) {
        let a = product(left.as_ref(), self.a.apply(right.as_ref()).as_ref());
        (a, product(left.as_ref(), self.b.as_ref()), product(self.c.as_ref(), right.as_ref()))
    }
}

/// Whether there is a direct term in continuous time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DirectTerm {
    /// The matrices in continuous time tell.
    Known(bool),
    /// The map tells, up to its rounding.
    Computed {
        /// The largest gain of the system, or, if it is a difference, of the systems that it is the difference of.
        gain: f64,
    },
}

/// Computed direct terms up to this, relative to the largest gain, are the rounding of the map.
const DIRECT_ROUNDING: f64 = 1e-9;

/// The matrices A, B, C, D of a system.
pub type Matrices = (StateMatrix, Mat<f64>, Mat<f64>, Mat<f64>);

impl Bilinear {
    /// The geometric mean of the moduli of the fastest and the slowest pole: both are then equally far from the points 1 and -1. Larger where an
    /// unstable pole is near it.
    ///
    /// # Errors
    /// Eigenvalues that cannot be computed.
    pub fn of(a: &StateMatrix) -> Result<Self> {
        let (poles, integrators): (Vec<c64>, Vec<f64>) = match a {
            StateMatrix::Diagonal(a) => (a.iter().map(|a| c64::new(*a, 0.0)).collect(), vec![0.0; a.len()]),
            StateMatrix::Modal(_) => (eigenvalues(a.to_dense().as_ref())?, vec![0.0; a.states()]),
            StateMatrix::Dense(a) => poles_and_integrators(a)?,
        };
        let moduli: Vec<f64> = poles.iter().map(|pole| pole.norm()).collect();
        // Integrators have no speed. Beyond a factor of 1e12 one end or the other is nearer the circle than Gramians are computed (R2).
        let least = 1e-12 * moduli.iter().copied().fold(0.0, f64::max);
        let speeds = || moduli.iter().zip(&integrators).filter(|(m, zero)| **m > zero.max(least)).map(|(m, _)| *m);
        let rate = speeds().fold(0.0, f64::max).sqrt() * speeds().fold(f64::INFINITY, f64::min).sqrt();
        let mut rate = if rate.is_finite() && rate > 0.0 { rate } else { 1.0 };
        // An unstable pole at the rate would go to infinity, and one near it lose its digits.
        let is_near =
            |rate: f64| poles.iter().any(|pole| pole.re > 0.0 && (pole - c64::new(rate, 0.0)).norm() < 0.1 * rate);
        for _ in 0..64 {
            if !is_near(rate) {
                break;
            }
            rate *= std::f64::consts::SQRT_2;
        }
        Ok(Self { rate })
    }

    /// The angular frequency of an angle in [0, pi); infinite at pi.
    pub fn frequency(self, angle: f64) -> f64 {
        if angle >= std::f64::consts::PI { f64::INFINITY } else { self.rate * (0.5 * angle).tan() }
    }

    /// The angle of an angular frequency, the inverse of [`Bilinear::frequency`].
    pub fn angle(self, frequency: f64) -> f64 {
        2.0 * (frequency / self.rate).atan()
    }

    /// The system in discrete time.
    ///
    /// # Errors
    /// A pole at `rate`.
    pub fn discrete(
        self,
        a: &StateMatrix,
        b: MatRef<'_, f64>,
        c: MatRef<'_, f64>,
        d: Option<MatRef<'_, f64>>,
    ) -> Result<Matrices> {
        let rate = c64::new(self.rate, 0.0);
        self.turn(a, b, c, d, |l| quotient(rate + l, rate - l), true)
    }

    /// The inverse of [`Bilinear::discrete`].
    ///
    /// # Errors
    /// A pole at -1.
    pub fn continuous(
        self,
        a: &StateMatrix,
        b: MatRef<'_, f64>,
        c: MatRef<'_, f64>,
        d: Option<MatRef<'_, f64>>,
    ) -> Result<Matrices> {
        let rate = self.rate;
        self.turn(a, b, c, d, |l| quotient((l - 1.0) * rate, l + 1.0), false)
    }

    /// The image with the C of continuous time and without D, whose H2 norm is that of the system in continuous time: `(z - A_d)^-1 B_d =
    /// (rate - i omega) / sqrt(2 rate) (i omega - A)^-1 B`, and `d angle = 2 rate / (rate^2 + omega^2) d omega`. `None` where the system has a
    /// direct term in continuous time, so that its H2 norm is infinite.
    ///
    /// # Errors
    /// A pole at -1.
    pub fn strictly_proper(self, image: &LinearSystem, direct: DirectTerm) -> Result<Option<LinearSystem>> {
        let (_, _, c, d) = self.continuous(image.a(), image.b(), image.c(), image.d())?;
        let proper = match direct {
            DirectTerm::Known(is_there) => !is_there,
            DirectTerm::Computed { gain } => d.norm_max() <= DIRECT_ROUNDING * gain,
        };
        Ok(proper.then(|| image.with_outputs_only(c)))
    }

    /// With `R = (pole + sign A)^-1`: A becomes `offset + 2 rate R` (up to `sign`), B `sqrt(2 rate) R B`, C `sqrt(2 rate) C R`, D
    /// `D - sign C R B`. `to_circle` is [`Bilinear::discrete`]: `A_d = -1 + 2 rate (rate - A)^-1`.
    fn turn(
        self,
        a: &StateMatrix,
        b: MatRef<'_, f64>,
        c: MatRef<'_, f64>,
        d: Option<MatRef<'_, f64>>,
        of_pole: impl Fn(c64) -> c64,
        to_circle: bool,
    ) -> Result<Matrices> {
        let (n, dense) = (a.states(), a.to_dense());
        // Time is rescaled so that the rate is from 1 to 4. The matrices in continuous time are then `A / unit^2`, `B / unit`, `C / unit`
        // exactly, and no intermediate result leaves the range of doubles unless the final one does.
        let unit = 2_f64.powi((0.5 * self.rate.log2()).floor() as i32);
        let rate = self.rate / unit / unit;
        let (before, after) = if to_circle { (1.0 / unit, 1.0) } else { (1.0, unit) };
        let (offset, pole, sign) = if to_circle { (-1.0, rate, -1.0) } else { (rate, 1.0, 1.0) };
        // The inverse of a matrix in units that are far apart has no digits left.
        let units = suitable_units(dense.as_ref(), b, c, 0.0);
        let own_b = Mat::from_fn(n, b.ncols(), |i, j| b[(i, j)] / units[i] * before);
        let own_c = Mat::from_fn(c.nrows(), n, |i, j| c[(i, j)] * units[j] * before);
        let own_a = Mat::from_fn(n, n, |i, j| dense[(i, j)] / units[i] * units[j] * before * before);
        let (b, c) = (own_b.as_ref(), own_c.as_ref());
        let lu = (Mat::<f64>::identity(n, n) * Scale(pole) + own_a * Scale(sign)).partial_piv_lu();
        let (inverse_b, root) = (lu.solve(b), (2.0 * rate).sqrt());
        let inverse: Mat<f64> = lu.solve(Mat::<f64>::identity(n, n));
        if n > 0 && !inverse.norm_max().is_finite() {
            return Err(LtiError::Unsupported(format!(
                "it has a pole that the bilinear map takes to infinity (rate {})",
                self.rate
            )));
        }
        let turned = if let Some(modes) = a.modes() {
            of_modes(&modes, of_pole, to_circle)
        } else {
            let own = Mat::<f64>::identity(n, n) * Scale(offset) - &inverse * Scale(sign * 2.0 * rate);
            StateMatrix::Dense(Mat::from_fn(n, n, |i, j| own[(i, j)] * units[i] / units[j] * after * after))
        };
        let through = product(c, inverse_b.as_ref()) * Scale(-sign);
        let direct = match d {
            Some(d) => through + d,
            None => through,
        };
        let turned_b = Mat::from_fn(n, b.ncols(), |i, j| inverse_b[(i, j)] * root * after * units[i]);
        let read = product(c, inverse.as_ref());
        let turned_c = Mat::from_fn(c.nrows(), n, |i, j| read[(i, j)] * root * after / units[j]);
        Ok((turned, turned_b, turned_c, direct))
    }
}

/// The poles of a dense matrix, and up to which modulus each may be an integrator: rounding makes k poles out of one of multiplicity k, a
/// k-th root of itself apart.
fn poles_and_integrators(a: &Mat<f64>) -> Result<(Vec<c64>, Vec<f64>)> {
    let (even, units) = in_even_units(a.as_ref());
    let size = even.norm_l2();
    let poles = eigenvalues(a.as_ref())?;
    if poles.iter().all(|pole| pole.norm() > FARTHEST * size) {
        let none = vec![0.0; poles.len()];
        return Ok((poles, none));
    }
    let rounding = poles.len() as f64 * f64::EPSILON * size;
    let (poles, moved) = poles_and_their_rounding(&even, rounding, (0.0, &units))?;
    let limits = moved.into_iter().map(|moved| (CLUSTER * moved).min(FARTHEST * size)).collect();
    Ok((poles, limits))
}

/// `x / y`. The squares of poles in continuous time may leave the range of doubles: both are first divided by a power of two of the size of y,
/// which changes no digit.
fn quotient(x: c64, y: c64) -> c64 {
    let size = y.re.abs().max(y.im.abs());
    let exponent = if size > 0.0 && size.is_finite() { size.log2().floor() as i32 } else { 0 };
    let scaled = |z: c64| c64::new(ldexp(z.re, -exponent), ldexp(z.im, -exponent));
    scaled(x) / scaled(y)
}

/// Poles moved one by one; `to_circle` keeps those that are not left of the axis from coming to lie inside the circle by rounding.
fn of_modes(modes: &[Mode], of_pole: impl Fn(c64) -> c64, to_circle: bool) -> StateMatrix {
    let turned: Vec<Mode> = modes
        .iter()
        .map(|mode| match *mode {
            Mode::Real(a) => Mode::Real(of_pole(c64::new(a, 0.0)).re),
            Mode::Pair { .. } => {
                let pole = mode.pole().value();
                let l = of_pole(pole);
                let least = if to_circle && pole.re >= 0.0 { 1.0 } else { 0.0 };
                Mode::Pair { radius: l.norm().max(least), angle: l.im.atan2(l.re) }
            }
        })
        .collect();
    if turned.iter().all(|mode| matches!(mode, Mode::Real(_))) {
        StateMatrix::Diagonal(turned.iter().map(|mode| if let Mode::Real(a) = mode { *a } else { 0.0 }).collect())
    } else {
        StateMatrix::Modal(turned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::{complex_product, to_complex};

    fn at(system: &Matrices, z: c64) -> Mat<c64> {
        let (a, b, c, d) = system;
        let a = to_complex(a.to_dense().as_ref());
        let n = a.nrows();
        let resolvent = Mat::from_fn(n, n, |i, j| -a[(i, j)] + if i == j { z } else { c64::new(0.0, 0.0) });
        let x = resolvent.partial_piv_lu().solve(&to_complex(b.as_ref()));
        complex_product(to_complex(c.as_ref()).as_ref(), x.as_ref()) + to_complex(d.as_ref())
    }

    /// Poles that are stored, and not computed, may lie far apart: none is moved by the Gramians' clamp.
    #[test]
    fn stiff_systems_keep_their_slow_poles() {
        for slow in [1e-4, 1e-2, 1.0] {
            for a in [
                StateMatrix::Diagonal(vec![-slow, -3.0, -1e6]),
                StateMatrix::Modal(vec![Mode::Real(-slow), Mode::Pair { radius: 1e6, angle: 2.5 }]),
            ] {
                let one = Mat::<f64>::from_fn(3, 1, |_, _| 1.0);
                let map = Bilinear::of(&a).unwrap();
                let (image, ..) = map.discrete(&a, one.as_ref(), one.transpose(), None).unwrap();
                for mode in image.modes().unwrap() {
                    assert!(mode.pole() == mode.pole().clamped(), "{slow}: {mode:?}");
                }
            }
        }
    }

    /// Of a dense matrix, too, where eleven orders of magnitude lie between the poles, beside an integrator or not.
    #[test]
    fn stiff_matrices_keep_their_slow_poles() {
        for fast in [1e6, 1e8, 1e9] {
            for slow in [-0.01, 0.0] {
                let poles = [slow, -0.3, -0.5, -0.8, -fast];
                let a = StateMatrix::Dense(Mat::from_fn(5, 5, |i, j| match (i == j, j) {
                    (true, _) => poles[i],
                    (false, 4) => 1.0,
                    _ => 0.0,
                }));
                let slowest = if slow == 0.0 { 0.3 } else { 0.01 };
                let rate = Bilinear::of(&a).unwrap().rate;
                assert!((rate / (slowest * fast).sqrt() - 1.0).abs() < 1e-6, "{fast:e} {slow}: {rate:e}");
            }
        }
    }

    /// The unit of time changes nothing, also where the squares of poles are no doubles any more.
    #[test]
    fn poles_of_any_size_have_the_same_image() {
        let ones = |rows, columns| Mat::<f64>::from_fn(rows, columns, |_, _| 1.0);
        let matrices = |speed: f64| {
            let pair = Mode::Pair { radius: 2.0 * speed, angle: 2.0 };
            let entry = |i: usize, j: usize| if i == j { -0.3 - i as f64 } else { 0.2 * (i as f64 - j as f64) };
            [
                StateMatrix::Diagonal(vec![-0.3 * speed, -0.5 * speed, -7.0 * speed]),
                StateMatrix::Modal(vec![Mode::Real(-0.3 * speed), pair]),
                StateMatrix::Dense(Mat::from_fn(3, 3, |i, j| speed * entry(i, j))),
            ]
        };
        // B and C as far apart as the gain allows.
        let image = |a: &StateMatrix, b: f64, c: f64| {
            let (b, c) = (ones(3, 1) * Scale(b), ones(1, 3) * Scale(c));
            let map = Bilinear::of(a).unwrap();
            let image = map.discrete(a, b.as_ref(), c.as_ref(), None).unwrap();
            let back = map.continuous(&image.0, image.1.as_ref(), image.2.as_ref(), Some(image.3.as_ref())).unwrap();
            (image, back.0.to_dense())
        };
        let size = |m: &Mat<f64>| m.norm_max();
        for exponent in [-450, -265, 265, 450] {
            let (speed, gain) = (2_f64.powi(2 * exponent), 2_f64.powi(exponent));
            for (a, scaled) in matrices(1.0).iter().zip(&matrices(speed)) {
                let ((expected, expected_back), (found, back)) =
                    (image(a, 1.0, 1.0), image(scaled, gain * 2_f64.powi(-300), gain * 2_f64.powi(300)));
                assert_eq!(found.0.form(), a.form());
                for (one, other) in [
                    (found.0.to_dense(), expected.0.to_dense()),
                    (found.1 * Scale(2_f64.powi(300)), expected.1),
                    (found.2 * Scale(2_f64.powi(-300)), expected.2),
                    (found.3, expected.3),
                    (back * Scale(1.0 / speed), expected_back),
                ] {
                    assert!(size(&(&one - &other)) <= 1e-12 * size(&other), "{exponent}: {one:?} {other:?}");
                }
            }
        }
    }

    /// Undamped modes are not stable, whatever rounding makes of their images.
    #[test]
    fn poles_on_the_axis_do_not_come_to_lie_inside_the_circle() {
        let ones = |rows, columns| Mat::<f64>::from_fn(rows, columns, |_, _| 1.0);
        for w in 1..300 {
            let pair = Mode::Pair { radius: 0.37 * f64::from(w), angle: std::f64::consts::FRAC_PI_2 };
            let a = StateMatrix::Modal(vec![pair, Mode::Real(-3.0)]);
            let map = Bilinear::of(&a).unwrap();
            let (image, ..) = map.discrete(&a, ones(3, 1).as_ref(), ones(1, 3).as_ref(), None).unwrap();
            let radii: Vec<f64> = image.modes().unwrap().iter().map(|mode| mode.pole().radius).collect();
            assert!(radii[0] >= 1.0 && radii[1] < 1.0, "{w}: {radii:?}");
        }
    }

    /// The rate is moved from unstable poles, which it would take to infinity.
    #[test]
    fn unstable_poles_at_the_rate_have_an_image() {
        let ones = |rows, columns| Mat::<f64>::from_fn(rows, columns, |_, _| 1.0);
        for poles in [vec![-1.0, 1.0], vec![-1.0, -4.0, 2.0], vec![-1.0, 1.0, 1.4, 2.1]] {
            let n = poles.len();
            let dense = StateMatrix::Dense(Mat::from_fn(n, n, |i, j| if i == j { poles[i] } else { 0.0 }));
            for a in [StateMatrix::Diagonal(poles.clone()), dense] {
                let map = Bilinear::of(&a).unwrap();
                let system = map.discrete(&a, ones(n, 1).as_ref(), ones(1, n).as_ref(), None).unwrap();
                let gain = |omega: f64| {
                    let sum: c64 = poles.iter().map(|pole| c64::new(1.0, 0.0) / (c64::new(0.0, omega) - pole)).sum();
                    let angle = map.angle(omega);
                    (sum, at(&system, c64::new(angle.cos(), angle.sin()))[(0, 0)])
                };
                let (expected, found) = gain(0.7);
                assert!((expected - found).norm() < 1e-12 * expected.norm(), "{poles:?}: {expected} {found}");
            }
        }
    }

    #[test]
    fn the_map_keeps_the_transfer_function_and_turns_back() {
        let dense =
            StateMatrix::Dense(Mat::from_fn(
                3,
                3,
                |i, j| if i == j { -1.0 - i as f64 } else { 0.3 * (i as f64 - j as f64) },
            ));
        let modal = StateMatrix::Modal(vec![Mode::Real(-2.0), Mode::Pair { radius: 3.0, angle: 2.0 }]);
        for a in [dense, modal, StateMatrix::Diagonal(vec![-1.0, 0.0, 0.5])] {
            let b = Mat::from_fn(3, 2, |i, j| (1.0 + i as f64) / (1.0 + j as f64));
            let c = Mat::from_fn(1, 3, |_, j| 1.0 - 0.4 * j as f64);
            let d = Mat::from_fn(1, 2, |_, j| j as f64);
            let map = Bilinear::of(&a).unwrap();
            let system = map.discrete(&a, b.as_ref(), c.as_ref(), Some(d.as_ref())).unwrap();
            assert_eq!(system.0.form(), a.form());
            let back =
                map.continuous(&system.0, system.1.as_ref(), system.2.as_ref(), Some(system.3.as_ref())).unwrap();
            let original = (a.clone(), b, c, d);
            for omega in [0.1, 1.0, 7.0] {
                let angle = map.angle(omega);
                assert!((map.frequency(angle) / omega - 1.0).abs() < 1e-14);
                let expected = at(&original, c64::new(0.0, omega));
                for found in [at(&system, c64::from_polar(1.0, angle)), at(&back, c64::new(0.0, omega))] {
                    assert!((&found - &expected).norm_l2() < 1e-13 * expected.norm_l2().max(1.0));
                }
            }
        }
    }
}
