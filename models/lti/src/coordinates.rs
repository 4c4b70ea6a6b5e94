//! Coordinates for systems that are far from normal.
//!
//! Powers of the companion matrix of poles near each other, as of a filter that is given by the coefficients of its transfer function, exceed
//! 1e16 before they decay: in doubles nothing is left of its Gramians. With
//!
//! ```text
//! W = sum_k (s A)^k (B B^T + noise) (s A^T)^k = T T^T,    0 < s <= 1
//! ```
//!
//! `T^-1 A T` has the norm `1 / s` at most. So s is taken as large as powers of `s A` stay tame, the system is brought to these coordinates,
//! where a larger s is tame, and so on until s is 1 and A a contraction. On the way, and in the bilinear map from continuous time, the
//! matrices are kept in twice the precision. They are rounded once, where rounding is small beside the system.

use super::continuous::Bilinear;
use super::linalg::product;
use super::norms::balance::suitable_units;
use super::norms::{FrequencyResponse, stored_gain};
use super::proof::double::{Double, Matrix};
use super::stein::{doubled_factor, growth};
use super::{LinearSystem, Result, StateMatrix};
use faer::{Mat, MatRef, Scale};
use std::f64::consts::PI;

/// Systems whose powers grow by less are measured as they are: the image of one in continuous time, made in doubles, has Hankel singular
/// values that are off by 1e-9 of the largest at most.
const FAR: f64 = 1e3;
/// Growth of powers of `s A`.
const TAME: f64 = 1e6;
/// Growth of powers of what is near a normal matrix.
const NEAR: f64 = 4.0;
/// More states take too long.
const MOST_STATES: usize = 128;
/// Changes of coordinates at most.
const STAGES: usize = 24;
/// Noise at every state beside inputs of size 1, which keeps T away from singular; the less, the nearer to the coordinates of the inputs.
const NOISE: (f64, f64) = (1e-8, 1e-3);
/// How near gains of the result have to be to those of the stored numbers, relative to the largest.
const SAME: f64 = 1e-9;
/// Poles at whose angles gains are compared.
const COMPARED: usize = 8;

/// What a system is as it is stored, in states `x = T z` for its own z. Proofs are about these matrices.
#[derive(Debug, Clone)]
pub struct AsStored {
    /// State matrix, [d, d], in continuous time where the system has a map ([`LinearSystem::map`]).
    pub a: Mat<f64>,
    /// Input matrix, [d, m].
    pub b: Mat<f64>,
    /// Output matrix, [p, d].
    pub c: Mat<f64>,
    /// Direct term, [p, m], if there is one.
    pub d: Option<Mat<f64>>,
    /// T, [d, d].
    t: Mat<f64>,
    /// Its inverse.
    inverse: Mat<f64>,
}

impl AsStored {
    /// T, [d, d].
    pub fn t(&self) -> MatRef<'_, f64> {
        self.t.as_ref()
    }

    /// The controllability Gramian of x, [d, d], from that of z.
    pub fn controllability(&self, of_z: &Mat<f64>) -> Mat<f64> {
        product(product(self.t.as_ref(), of_z.as_ref()).as_ref(), self.t.transpose())
    }

    /// The observability Gramian of x, [d, d], from that of z.
    pub fn observability(&self, of_z: &Mat<f64>) -> Mat<f64> {
        product(product(self.inverse.transpose(), of_z.as_ref()).as_ref(), self.inverse.as_ref())
    }

    /// The states z of states x, one per row, [steps, d].
    pub fn states(&self, x: MatRef<'_, f64>) -> Mat<f64> {
        product(x, self.inverse.transpose())
    }
}

/// The stable system `A, B, C, D`, or its image by `map`, in coordinates in which A is near a normal matrix. The result knows how it is
/// stored ([`LinearSystem::stored`]). `None` where A is near a normal matrix already, or is diagonal or modal, and where no such
/// coordinates are found, as for a system that is not stable.
///
/// Shapes and entries must have been checked ([`LinearSystem::check`]).
///
/// # Errors
/// Failures of the linear algebra.
pub fn near_normal(
    a: &StateMatrix,
    b: MatRef<'_, f64>,
    c: MatRef<'_, f64>,
    d: Option<MatRef<'_, f64>>,
    map: Option<Bilinear>,
) -> Result<Option<LinearSystem>> {
    let StateMatrix::Dense(dense) = a else { return Ok(None) };
    if dense.nrows() > MOST_STATES || dense.nrows() == 0 {
        return Ok(None);
    }
    let (realization, direct) = match map {
        None => (Realization::of(dense, b, c), d.map(|d| d.to_owned())),
        Some(map) => {
            let (image, through) = Realization::of(dense, b, c).image(map);
            let direct = d.map_or(through.clone(), |d| through.combined(&Matrix::of(d), |one, two| one + two));
            (image, Some(direct.rounded()))
        }
    };
    if !realization.is_finite() || growth(realization.a.rounded().as_ref()) <= FAR {
        return Ok(None);
    }
    let Some(Realization { a: near, b: inputs, c: outputs, t }) = realization.near_normal() else { return Ok(None) };
    let inverse = t.solve(&Matrix::identity(t.rows()));
    let stored = AsStored {
        a: dense.clone(),
        b: b.to_owned(),
        c: c.to_owned(),
        d: d.map(|d| d.to_owned()),
        t: t.rounded(),
        inverse: inverse.rounded(),
    };
    let near = StateMatrix::Dense(near.rounded());
    let Ok(system) = LinearSystem::new(near, inputs.rounded(), outputs.rounded(), direct) else { return Ok(None) };
    let response = FrequencyResponse::new(&system);
    let angles = response.rates().map(|(angle, _)| angle).take(COMPARED).chain([0.0, 0.5 * PI]);
    let (mut apart, mut largest) = (0.0_f64, 0.0_f64);
    for angle in angles {
        let Some(gain) = stored_gain((dense.as_ref(), b, c, d), map, angle)? else { return Ok(None) };
        largest = largest.max(gain);
        apart = apart.max((response.gain(angle)? - gain).abs());
    }
    let system = map.map_or(system.clone(), |map| system.with_map(map, d.map(|d| d.to_owned())));
    Ok((apart <= SAME * largest).then(|| system.with_stored(stored)))
}

/// Matrices A, B, C in twice the precision, and T.
struct Realization {
    a: Matrix,
    b: Matrix,
    c: Matrix,
    t: Matrix,
}

impl Realization {
    /// In suitable units, powers of two.
    fn of(a: &Mat<f64>, b: MatRef<'_, f64>, c: MatRef<'_, f64>) -> Self {
        let units = suitable_units(a.as_ref(), b, c, 1.0);
        let n = units.len();
        let of =
            |rows, columns, f: &dyn Fn(usize, usize) -> f64| Matrix::from_fn(rows, columns, |i, j| Double::of(f(i, j)));
        Self {
            a: of(n, n, &|i, j| a[(i, j)] / units[i] * units[j]),
            b: of(n, b.ncols(), &|i, j| b[(i, j)] / units[i]),
            c: of(c.nrows(), n, &|i, j| c[(i, j)] * units[j]),
            t: of(n, n, &|i, j| if i == j { units[i] } else { 0.0 }),
        }
    }

    fn is_finite(&self) -> bool {
        [&self.a, &self.b, &self.c, &self.t].iter().all(|matrix| matrix.rounded().is_all_finite())
    }

    /// The image by the bilinear map, and `C (rate - A)^-1 B`.
    fn image(self, map: Bilinear) -> (Self, Matrix) {
        let rate = Double::of(map.rate);
        let n = self.a.rows();
        let beside_rate = |sign: f64| {
            let at = |i, j| if sign < 0.0 { -self.a.at(i, j) } else { self.a.at(i, j) };
            Matrix::from_fn(n, n, |i, j| if i == j { rate + at(i, j) } else { at(i, j) })
        };
        let inverse = beside_rate(-1.0).solve(&Matrix::identity(n));
        let root = root(rate + rate);
        let scaled = |matrix: &Matrix| Matrix::from_fn(matrix.rows(), matrix.columns(), |i, j| root * matrix.at(i, j));
        let (b, c) = (inverse.times(&self.b), self.c.times(&inverse));
        let through = self.c.times(&b);
        let image = Self { a: inverse.times(&beside_rate(1.0)), b: scaled(&b), c: scaled(&c), t: self.t };
        (image, through)
    }

    /// In coordinates in which A is a contraction, as far as there are any.
    fn near_normal(mut self) -> Option<Self> {
        let mut last = usize::MAX;
        for _ in 0..STAGES {
            let a = self.a.rounded();
            let is_wild = |k: usize| growth((&a * Scale(share(k))).as_ref()) > TAME;
            // Growth is the less the smaller s is.
            let (mut tame, mut wild) = (SHARES - 1, None);
            if is_wild(tame) {
                return None;
            }
            while wild.map_or(tame > 0, |wild| tame - wild > 1) {
                let middle = wild.map_or(0, |wild: usize| wild.midpoint(tame));
                if is_wild(middle) { wild = Some(middle) } else { tame = middle }
            }
            if tame > last || (tame == last && tame > 0) {
                return None;
            }
            last = tame;
            self = self.stage(&a, share(tame), if tame == 0 { NOISE.0 } else { NOISE.1 })?;
            if tame == 0 && growth(self.a.rounded().as_ref()) <= NEAR {
                return Some(self);
            }
        }
        None
    }

    /// In the coordinates of `W`, of `s` times A in doubles.
    fn stage(&self, a: &Mat<f64>, s: f64, noise: f64) -> Option<Self> {
        let n = a.nrows();
        let b = self.b.rounded();
        let (m, size) = (b.ncols(), b.norm_l2());
        let driven = Mat::from_fn(n, m + n, |i, j| match j {
            _ if j < m => b[(i, j)] / if size > 0.0 { size } else { 1.0 },
            _ if j - m == i => noise,
            _ => 0.0,
        });
        let factor = doubled_factor((a * Scale(s)).as_ref(), driven.as_ref()).ok()?;
        let t = Matrix::of(factor.transpose().qr().thin_R().transpose());
        let inverse = t.inverse_of_lower();
        let turned = Self {
            a: inverse.times(&self.a).times(&t),
            b: inverse.times(&self.b),
            c: self.c.times(&t),
            t: self.t.times(&t),
        };
        turned.is_finite().then_some(turned)
    }
}

/// Values of s that are tried.
const SHARES: usize = 60;

/// The first is 1.
fn share(k: usize) -> f64 {
    const FINE: usize = 31;
    if k < FINE { 0.98_f64.powi((2 * k).saturating_sub(1) as i32) } else { 0.3 * 0.6_f64.powi((k - FINE) as i32) }
}

fn root(x: Double) -> Double {
    let near = Double::of(x.hi.sqrt());
    near + (x - near * near) / (near + near)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::norms::{h2_norm, hinf_norm_of};
    use crate::{GramianFactors, HankelSpectrum};
    use faer::c64;

    /// The companion matrix of real poles, driven at the first state; its output is what comes of it at the first state, so that gains are
    /// those of `z^(n-1) / prod (z - pole)`, or of s.
    fn companion(poles: &[f64]) -> (StateMatrix, Mat<f64>, Mat<f64>) {
        let mut monic = vec![1.0];
        for pole in poles {
            let mut next = vec![0.0; monic.len() + 1];
            for (i, c) in monic.iter().enumerate() {
                next[i] += c;
                next[i + 1] -= pole * c;
            }
            monic = next;
        }
        let n = poles.len();
        let a = Mat::from_fn(n, n, |i, j| if i == 0 { -monic[j + 1] } else { f64::from(u8::from(i == j + 1)) });
        let first = |i: usize| f64::from(u8::from(i == 0));
        (StateMatrix::Dense(a), Mat::from_fn(n, 1, |i, _| first(i)), Mat::from_fn(1, n, |_, j| first(j)))
    }

    /// Eight poles between 0.75 and 0.97, 32nds, so that no coefficient is rounded, against the sum of their partial fractions.
    #[test]
    fn companion_matrices_of_near_poles_have_the_values_of_their_modes() {
        let poles: Vec<f64> = (24..32).map(|k| f64::from(k) / 32.0).collect();
        let (a, b, c) = companion(&poles);
        let system = near_normal(&a, b.as_ref(), c.as_ref(), None, None).unwrap().unwrap();
        let coordinates = system.stored().unwrap();
        assert!(growth(system.a().to_dense().as_ref()) <= NEAR);
        let residue = |i: usize| {
            let apart: f64 = (0..8).filter(|&j| j != i).map(|j| poles[i] - poles[j]).product();
            poles[i].powi(7) / apart
        };
        let (inputs, outputs) = (Mat::from_fn(8, 1, |i, _| residue(i)), Mat::from_fn(1, 8, |_, _| 1.0));
        let modes = LinearSystem::new(StateMatrix::Diagonal(poles.clone()), inputs, outputs, None).unwrap();
        let factors = GramianFactors::analytic(&system).unwrap();
        assert!(factors.residual_c.unwrap() < 1e-13 && factors.residual_o.unwrap() < 1e-13);
        let found = HankelSpectrum::new(&factors).unwrap();
        let expected = HankelSpectrum::new(&GramianFactors::analytic(&modes).unwrap()).unwrap();
        let largest = expected.values()[0];
        for (found, expected) in found.values().iter().zip(expected.values()) {
            assert!((found - expected).abs() < 1e-12 * largest, "{found} {expected}");
        }
        let norms = [&system, &modes].map(|system| hinf_norm_of(system).unwrap().0.value);
        assert!((norms[0] / norms[1] - 1.0).abs() < 1e-12, "{norms:?}");
        // The first state is the input's and the output: its variance and energy are the squared H2 norm.
        let h2 = h2_norm(&modes).unwrap().powi(2);
        let variance = coordinates.controllability(&factors.controllability())[(0, 0)];
        let energy = coordinates.observability(&factors.observability())[(0, 0)];
        assert!((variance / h2 - 1.0).abs() < 1e-9 && (energy / h2 - 1.0).abs() < 1e-9, "{variance} {energy} {h2}");
        // States are the same after a step.
        let turned = coordinates.states(b.transpose());
        assert!((turned.transpose() - system.b()).norm_max() < 1e-9 * system.b().norm_max());
        // As they are, the values are lost.
        let raw = LinearSystem::with_any_poles(a, b, c, None).unwrap();
        let lost = GramianFactors::analytic(&raw).and_then(|factors| HankelSpectrum::new(&factors));
        assert!(lost.is_err() || (lost.unwrap().values()[0] / largest - 1.0).abs() > 1e-9);
    }

    /// `1 / (s + 1) + 1 / (s + 2)` in states so far from its own that the image in doubles has no digits.
    #[test]
    fn images_are_made_in_twice_the_precision() {
        // T = [1, k; k, k^2 + 1], whose determinant is 1; no entry is rounded.
        let k = 2048.0;
        let a = [[k * k - 1.0, -k], [k * (k * k + 1.0), -k * k - 2.0]];
        let a = StateMatrix::Dense(Mat::from_fn(2, 2, |i, j| a[i][j]));
        let b = Mat::from_fn(2, 1, |i, _| [1.0 + k, k * k + k + 1.0][i]);
        let c = Mat::from_fn(1, 2, |_, j| [k * k - k + 1.0, 1.0 - k][j]);
        let map = Bilinear { rate: 1.5 };
        let system = near_normal(&a, b.as_ref(), c.as_ref(), None, Some(map)).unwrap().unwrap();
        let response = FrequencyResponse::new(&system);
        for omega in [0.0, 0.5, 2.0, 100.0_f64] {
            let terms = [1.0, 2.0].map(|pole| c64::new(pole, omega).inv());
            let (found, expected) = (response.gain(map.angle(omega)).unwrap(), (terms[0] + terms[1]).norm());
            assert!((found / expected - 1.0).abs() < 1e-9, "{omega}: {found} {expected}");
        }
    }

    #[test]
    fn what_is_near_normal_or_unstable_stays_as_it_is() {
        let (a, b, c) = companion(&[0.5, 0.2]);
        assert!(near_normal(&a, b.as_ref(), c.as_ref(), None, None).unwrap().is_none());
        let (a, b, c) = companion(&[0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 1.01]);
        assert!(near_normal(&a, b.as_ref(), c.as_ref(), None, None).unwrap().is_none());
        let modal = StateMatrix::Diagonal(vec![0.5, 0.4]);
        let one = |rows, columns| Mat::from_fn(rows, columns, |_, _| 1.0);
        assert!(near_normal(&modal, one(2, 1).as_ref(), one(1, 2).as_ref(), None, None).unwrap().is_none());
    }

    #[test]
    fn shares_descend_from_one() {
        assert_eq!(share(0), 1.0);
        assert!((1..SHARES).all(|k| share(k) < share(k - 1)) && share(SHARES - 1) < 1e-5);
        let root = root(Double::of(2.0));
        assert!((root * root - Double::of(2.0)).hi.abs() < 1e-30);
    }
}
