//! Gramians over a band of frequencies, in closed form.
//!
//! ```text
//! P(band) = 1/2pi  integral over low <= |omega| <= high of (z - A)^-1 B B^T (z - A)^-H,  z = e^{i omega}
//!         = S P + P S^T      S = ((high - low) + 2 Re F(A)) / 2pi      F(a) = i (ln(1 - a e^{-i low}) - ln(1 - a e^{-i high}))
//! ```
//!
//! from the partial fractions `z / ((z - a_i) (1 - conj(a_j) z)) = (a_i / (z - a_i) + 1 / (1 - conj(a_j) z)) / (1 - a_i conj(a_j))`; over the whole
//! circle S is 1/2. W. Gawronski and J.-N. Juang, Int. J. Systems Sci. 21 (1990); in discrete time L. G. Horta, J.-N. Juang and R. W. Longman,
//! J. Guidance 16 (1993). `A P A^T - P + X = 0` with `X = S B B^T + B B^T S^T`, which is not positive semidefinite: it is modified
//! as that of a weight is (S. Gugercin and A. C. Antoulas, Int. J. Control 77 (2004), with `|X|`).

use crate::linalg::product;
use crate::modal::to_modal;
use crate::poles::Pole;
use crate::{LinearSystem, LtiError, Mode, Result};
use faer::{Mat, c64};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// A band of frequencies, in radians per step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Band {
    low: f64,
    high: f64,
}

impl Band {
    /// The band from `low` to `high`.
    ///
    /// # Errors
    /// Unless `0 <= low < high <= pi`.
    pub fn new(low: f64, high: f64) -> Result<Self> {
        if !(0.0..=PI).contains(&low) {
            return Err(LtiError::OutOfRange { name: "band (low end)", value: low, range: "between 0 and pi" });
        }
        if !(high > low && high <= PI) {
            let range = "above the low end and at most pi (3.141592653589793)";
            return Err(LtiError::OutOfRange { name: "band (high end)", value: high, range });
        }
        Ok(Self { low, high })
    }

    /// The ends.
    pub fn ends(self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// S, [d, d], in the coordinates of the system.
    pub(super) fn share(self, system: &LinearSystem) -> Result<Mat<f64>> {
        if let Some(modes) = system.a().modes() {
            return Ok(self.of_modes(&modes));
        }
        let modal = to_modal(system).map_err(|error| match error {
            LtiError::Conversion { reason, .. } => LtiError::Unsupported(format!(
                "frequency-limited Gramians are known in closed form for a modal A, and this one has no modal form: {reason}"
            )),
            other => other,
        })?;
        let share = self.of_modes(&modal.system.a().modes().unwrap_or_default());
        Ok(product(product(modal.inverse.as_ref(), share.as_ref()).as_ref(), modal.transformation.as_ref()))
    }

    /// Block by block: the block of a pair is `[cos -sin; sin cos]`, of which S is the same function as of its eigenvalue.
    fn of_modes(self, modes: &[Mode]) -> Mat<f64> {
        let d = modes.iter().map(|mode| mode.states()).sum();
        let mut share = Mat::zeros(d, d);
        let mut i = 0;
        for mode in modes {
            let s = self.of_pole(mode.pole());
            share[(i, i)] = s.re;
            if mode.states() == 2 {
                share[(i + 1, i + 1)] = s.re;
                share[(i, i + 1)] = -s.im;
                share[(i + 1, i)] = s.im;
            }
            i += mode.states();
        }
        share
    }

    fn of_pole(self, pole: Pole) -> c64 {
        // 1 - a e^{-i omega}, without cancellation near the circle.
        let log = |omega: f64, pole: Pole| {
            let on_circle = Pole { radius: 1.0, angle: omega, rate: 0.0 };
            pole.one_minus_product(on_circle).ln()
        };
        let f = |pole: Pole| c64::new(0.0, 1.0) * (log(self.low, pole) - log(self.high, pole));
        // 2 Re F of a real matrix is F(a) + conj(F(conj a)).
        (f(pole) + f(pole.conj()).conj() + (self.high - self.low)) / (2.0 * PI)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GramianFactors, StateMatrix};
    use faer::linalg::solvers::Solve;

    fn system() -> LinearSystem {
        let modes = vec![Mode::Real(0.95), Mode::Pair { radius: 0.9, angle: 0.7 }, Mode::Real(-0.5), Mode::Real(0.0)];
        let b = Mat::from_fn(5, 2, |i, j| ((3 * i + j) as f64).sin() + 0.5);
        LinearSystem::new(StateMatrix::Modal(modes), b, Mat::identity(5, 5), None).unwrap()
    }

    /// The integral by the trapezoidal rule.
    fn by_quadrature(system: &LinearSystem, low: f64, high: f64) -> Mat<f64> {
        const STEPS: usize = 20_000;
        let a = system.a().to_dense();
        let d = a.nrows();
        let b = Mat::from_fn(d, 2, |i, j| c64::new(system.b()[(i, j)], 0.0));
        let mut sum = Mat::<f64>::zeros(d, d);
        for k in 0..=STEPS {
            let omega = low + (high - low) * k as f64 / STEPS as f64;
            let one = |i, j| if i == j { c64::from_polar(1.0, omega) } else { c64::new(0.0, 0.0) };
            let resolvent = Mat::from_fn(d, d, |i, j| one(i, j) - a[(i, j)]);
            let x = resolvent.partial_piv_lu().solve(&b);
            let gram = &x * x.adjoint();
            let weight = (high - low) / STEPS as f64 * if k == 0 || k == STEPS { 0.5 } else { 1.0 };
            sum += Mat::from_fn(d, d, |i, j| gram[(i, j)].re * weight / PI);
        }
        sum
    }

    #[test]
    fn the_closed_form_is_the_integral() {
        let system = system();
        let p = GramianFactors::analytic(&system).unwrap().controllability();
        let t = Mat::from_fn(5, 5, |i, j| f64::from(u8::from(i == j)) + 0.2 * ((i + 3 * j) as f64).cos());
        let inverse = t.partial_piv_lu().solve(Mat::<f64>::identity(5, 5));
        for (low, high) in [(0.0, PI), (0.0, 0.3), (0.5, 0.9), (2.0, PI)] {
            let share = Band::new(low, high).unwrap().share(&system).unwrap();
            let closed = &share * &p + &p * share.transpose();
            let expected = by_quadrature(&system, low, high);
            assert!((&closed - &expected).norm_l2() < 1e-7 * p.norm_l2(), "{low} {high}");
            let dense = system
                .with_realization(
                    StateMatrix::Dense(&t * system.a().to_dense() * &inverse),
                    &t * system.b(),
                    system.c() * &inverse,
                )
                .unwrap();
            let turned = Band::new(low, high).unwrap().share(&dense).unwrap();
            assert!((&inverse * turned * &t - &share).norm_l2() < 1e-12);
        }
    }

    #[test]
    fn bands_outside_the_circle_are_refused() {
        for (low, high) in [(-0.1, 1.0), (1.0, 1.0), (1.0, 0.5), (0.0, 3.2), (f64::NAN, 1.0), (0.0, f64::NAN)] {
            let error = Band::new(low, high).unwrap_err().to_string();
            assert!(error.contains("band") && error.contains("out of range"), "{error}");
        }
    }
}
