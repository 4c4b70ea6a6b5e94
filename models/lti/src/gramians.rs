//! Controllability and observability Gramians and factors of them.
//!
//! `A Wc A^T - Wc + B B^T = 0`, `A^T Wo A - Wo + C^T C = 0`.

use super::cauchy::cauchy_factor;
use super::eigen::Eigen;
use super::linalg::{
    beside, compress_columns, compress_scaled_columns, exponent, gain_exponents, in_even_units, product,
    times_power_of_two,
};
use super::poles::Pole;
use super::stein::{doubled_factor, horizon_factor, stein_factor, stein_residual};
use super::system::{LinearSystem, Mode, StateMatrix};
use super::weighted::Band;
use super::{LtiError, Result};
use faer::{Mat, MatRef, c64};
use serde::{Deserialize, Serialize};
use std::f64::consts::FRAC_1_SQRT_2;
use std::sync::Arc;

/// Which Gramians a reduction is based on.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GramianSource {
    /// Those of the system over an infinite horizon.
    #[default]
    Analytic,
    /// Those of the first so many steps.
    TimeLimited(usize),
    /// Controllability from recorded states, observability over the recorded length.
    Empirical,
    /// Those under weights, modified for a stable result with a bound ([`Weighted::modified`](crate::weighted::Weighted::modified)).
    Weighted,
    /// Those under weights as they are ([`Weighted::enns`](crate::weighted::Weighted::enns)).
    Enns,
    /// Those of a band of frequencies, modified in the same way.
    FrequencyLimited(Band),
}

/// Factors `Wc = Lc Lc^T`, `Wo = Lo Lo^T`, each with d rows and at most d columns.
#[derive(Debug, Clone)]
pub struct GramianFactors {
    /// Factor of the controllability Gramian.
    pub lc: Mat<f64>,
    /// Factor of the observability Gramian.
    pub lo: Mat<f64>,
    /// Relative residual of the controllability equation, `None` where no such equation is meant to hold.
    pub residual_c: Option<f64>,
    /// Relative residual of the observability equation.
    pub residual_o: Option<f64>,
    /// How much rounding of A is amplified in the factors: 1 where they are built from the poles of a diagonal or modal A. For dense A
    /// `1 / (1 - modulus)` of the second slowest pole or pair: what the slowest amplifies stays in its own direction and the largest value.
    /// For a finite horizon its number of steps, or `1 / (1 - modulus)` of the slowest pole, if that is less.
    pub sensitivity: f64,
    /// Poles slower than [`MIN_RATE`](crate::MIN_RATE), treated as having that rate.
    pub clamped_poles: usize,
}

impl GramianFactors {
    /// Factors of the infinite-horizon Gramians of a stable system.
    ///
    /// Diagonal and modal A: a structured factorisation (module `cauchy`). Dense A: the same in the coordinates of the eigenvectors where
    /// there are many states and the residual is small, else doubling.
    ///
    /// # Errors
    /// A solution that does not converge or is not finite.
    pub fn analytic(system: &LinearSystem) -> Result<Self> {
        let (size_b, size_c) = gain_exponents(system.b(), system.c());
        let b = compress_scaled_columns(system.b(), -size_b);
        let c = compress_scaled_columns(system.c().transpose(), -size_c);
        let clamp = clamp_of(system);
        let a = clamped_matrix(system.a(), clamp);
        // In the unit of the rows: with gains of size 1 they may still be of any size, and their squares out of range.
        let residual = |a: MatRef<'_, f64>, l: &Mat<f64>, rows: &Mat<f64>| {
            let unit = -exponent(rows.as_ref());
            let (l, rows) = (times_power_of_two(l.as_ref(), unit), times_power_of_two(rows.as_ref(), unit));
            stein_residual(a, l.as_ref(), rows.as_ref())
        };
        let ((lc, residual_c), (lo, residual_o), sensitivity, clamped_poles);
        if let Some(modes) = system.a().modes() {
            let spectrum = Spectrum::of(&modes, clamp);
            let of = |rows: &Mat<f64>, side, a| {
                let l = spectrum.factor(rows.as_ref(), side);
                let residual = residual(a, &l, rows);
                (l, residual)
            };
            (lc, residual_c) = of(&b, Side::Input, a.as_ref());
            (lo, residual_o) = of(&c, Side::Output, a.transpose());
            sensitivity = 1.0;
            clamped_poles = modes.iter().map(|m| if m.pole() == clamp(m.pole()) { 0 } else { m.states() }).sum();
        } else {
            check_margin(system, &a)?;
            let of = |rows: &Mat<f64>, side, a: MatRef<'_, f64>| -> Result<(Mat<f64>, f64)> {
                if let Some(l) = eigenvector_factor(system, rows.as_ref(), side) {
                    let residual = residual(a, &l, rows);
                    if residual <= EIGENVECTOR_RESIDUAL {
                        return Ok((l, residual));
                    }
                }
                let l = stein_factor(a, rows.as_ref())?;
                let residual = residual(a, &l, rows);
                Ok((l, residual))
            };
            (lc, residual_c) = of(&b, Side::Input, a.as_ref())?;
            (lo, residual_o) = of(&c, Side::Output, a.transpose())?;
            sensitivity = 1.0 / (1.0 - slowest_but_one(&system.eigenvalues()));
            clamped_poles = 0;
        }
        let (lc, lo) = (times_power_of_two(lc.as_ref(), size_b), times_power_of_two(lo.as_ref(), size_c));
        Ok(Self { lc, lo, residual_c: Some(residual_c), residual_o: Some(residual_o), sensitivity, clamped_poles })
    }

    /// Factors of the Gramians over the first `steps` steps, for sequences of known length
    /// (time-limited balanced truncation, W. Gawronski and J.-N. Juang, Int. J. Systems Sci. 21 (1990)).
    ///
    /// No error bound is known for a reduction based on them, and it may lose stability.
    ///
    /// # Errors
    /// A horizon of 0 steps.
    pub fn time_limited(system: &LinearSystem, steps: usize) -> Result<Self> {
        if steps == 0 {
            return Err(LtiError::OutOfRange { name: "horizon", value: 0.0, range: "at least 1 step" });
        }
        let a = system.a().to_dense();
        Ok(Self::without_equation(
            horizon_factor(a.as_ref(), system.b(), steps),
            horizon_factor(a.transpose(), system.c().transpose(), steps),
            (steps as f64).min(1.0 / (1.0 - system.spectral_radius())),
        ))
    }

    /// Factors of the empirical Gramians (R7): `Wc = 1/(N T) sum s s^T` over recorded states, and
    /// `Wo = sum_{k < T} (A^T)^k C^T C A^k`, the responses to unit initial states over the same T steps.
    ///
    /// `states` is [N T, d]. With white input of unit covariance Wc tends to the analytic one; on real data it is weighted
    /// by what the data excites, and no error bound holds in the usual sense. See [`super::empirical`] for systems that
    /// vary in time.
    ///
    /// # Errors
    /// A horizon of 0 steps, no states, and states of another width or that are not finite.
    pub fn empirical(system: &LinearSystem, states: MatRef<'_, f64>, steps: usize) -> Result<Self> {
        let Self { lo, sensitivity, .. } = Self::time_limited(system, steps)?;
        let lc = super::empirical::controllability_factor(system.states(), states)?;
        Ok(Self::without_equation(lc, lo, sensitivity))
    }

    /// The controllability Gramian `lc lc^T` of recorded states, `lc` [d, k], with the observability Gramian over an infinite horizon.
    ///
    /// A truncation by them is stable, whatever was recorded: in coordinates in which `Wo = I` it is an orthogonal projection, and A
    /// lengthens no vector there. On white input both are the analytic ones; no error bound is known otherwise.
    ///
    /// # Errors
    /// Those of [`GramianFactors::analytic`], and a factor that is not of d rows.
    pub fn recorded(system: &LinearSystem, lc: Mat<f64>) -> Result<Self> {
        if lc.nrows() != system.states() {
            return Err(LtiError::Shape {
                what: "the factor of recorded states".into(),
                expected: (system.states(), lc.ncols()),
                got: (lc.nrows(), lc.ncols()),
            });
        }
        let Self { lo, sensitivity, .. } = Self::analytic(system)?;
        Ok(Self::without_equation(lc, lo, sensitivity))
    }

    /// Factors that do not come from a Lyapunov equation of the system (empirical or time-limited Gramians).
    pub fn without_equation(lc: Mat<f64>, lo: Mat<f64>, sensitivity: f64) -> Self {
        Self { lc, lo, residual_c: None, residual_o: None, sensitivity, clamped_poles: 0 }
    }

    /// The controllability Gramian, [d, d].
    pub fn controllability(&self) -> Mat<f64> {
        product(self.lc.as_ref(), self.lc.transpose())
    }

    /// The observability Gramian, [d, d].
    pub fn observability(&self) -> Mat<f64> {
        product(self.lo.as_ref(), self.lo.transpose())
    }
}

/// The Gramians (Wc, Wo) entry by entry: the closed form `(B B^T)_ij / (1 - a_i a_j)` for diagonal A, from the factors
/// otherwise.
///
/// # Errors
/// Those of [`GramianFactors::analytic`].
pub fn gramians(system: &LinearSystem) -> Result<(Mat<f64>, Mat<f64>)> {
    if let StateMatrix::Diagonal(a) = system.a() {
        let clamp = clamp_of(system);
        let poles: Vec<Pole> = a.iter().map(|&a| clamp(Pole::real(a))).collect();
        let closed = |m: Mat<f64>| {
            let gram = product(m.as_ref(), m.transpose());
            Mat::from_fn(a.len(), a.len(), |i, j| gram[(i, j)] / poles[i].one_minus_product(poles[j]).re)
        };
        let (b, c) = (compress_columns(system.b()), compress_columns(system.c().transpose()));
        return Ok((closed(b), closed(c)));
    }
    let factors = GramianFactors::analytic(system)?;
    Ok((factors.controllability(), factors.observability()))
}

/// Residuals of factors from eigenvectors that are no worse than rounding; above it the factor is computed by doubling.
const EIGENVECTOR_RESIDUAL: f64 = 1e-12;

/// Dense systems with fewer states have their Gramians from doubling, which needs no eigenvectors.
const MANY_STATES: usize = 96;

/// Refuses a dense matrix whose rounding decides whether it is stable: a perturbation of `d eps ||A||` is what entries in f64 stand
/// for.
fn check_margin(system: &LinearSystem, a: &Mat<f64>) -> Result<()> {
    let radius = system.spectral_radius();
    let rounding = a.nrows() as f64 * f64::EPSILON * in_even_units(a.as_ref()).0.norm_l2().max(1.0);
    if 1.0 - radius > rounding {
        return Ok(());
    }
    Err(LtiError::Unsupported(format!(
        "its slowest pole has modulus {radius}, and rounding of A alone moves poles by {rounding:.0e}: it is neither stable nor \
         unstable in double precision. Store A as a diagonal or as 2x2 blocks, whose poles are exact"
    )))
}

/// Factor of the Gramian of a large dense system driven by `rows` [d, m], in the coordinates of the eigenvectors, where it is
/// Cauchy-like (module `cauchy`); `None` where the system is small or its eigenvectors are close to dependent.
///
/// `A = V diag(l) V^-1`: Wc has the rows `V^-1 B` there, Wo with `A^T = V^-T diag(l) V^T` the rows `V^T C^T`.
fn eigenvector_factor(system: &LinearSystem, rows: MatRef<'_, f64>, side: Side) -> Option<Mat<f64>> {
    let (blocks, l) = diagonal_factor(system, rows, side)?;
    // W is real, so W = Re(L L^H) = Re L Re L^T + Im L Im L^T.
    let mut parts = Mat::zeros(system.states(), 2 * l.ncols());
    let mut bases = Vec::with_capacity(blocks.len());
    let mut first = 0;
    for block in &blocks {
        let (basis, n) = (block.basis()?, block.states());
        let of_block = l.subrows(first, n);
        let (basis, part) = match side {
            Side::Input => block.back(basis, of_block),
            Side::Output => block.back_transposed(basis, of_block),
        };
        parts.subrows_mut(first, n).copy_from(&part);
        bases.push((first, basis));
        first += n;
    }
    let small = compress_columns(parts.as_ref());
    let mut out = Mat::zeros(small.nrows(), small.ncols());
    for (first, basis) in bases {
        let n = basis.nrows();
        out.subrows_mut(first, n).copy_from(product(basis, small.subrows(first, n)));
    }
    Some(out)
}

/// The blocks of a large dense system, and the factor of its Gramian in the coordinates in which they are diagonal.
fn diagonal_factor(system: &LinearSystem, rows: MatRef<'_, f64>, side: Side) -> Option<(Vec<Arc<Eigen>>, Mat<c64>)> {
    let d = system.states();
    if d <= MANY_STATES {
        return None;
    }
    let blocks = system.blocks();
    let mut inputs = Mat::zeros(rows.ncols(), d);
    let mut poles: Vec<c64> = Vec::with_capacity(d);
    for block in &blocks {
        let (first, n, basis) = (poles.len(), block.states(), block.basis()?);
        let rows = rows.subrows(first, n);
        inputs.subcols_mut(first, n).copy_from(match side {
            Side::Input => block.inputs(basis, rows),
            Side::Output => block.outputs(basis, rows.transpose()),
        });
        poles.extend(&block.values);
    }
    Some((blocks, cauchy_factor(&poles[..], inputs)))
}

/// Factor of the controllability Gramian with every pole as slow as it is: what a norm is measured with, where
/// [`GramianFactors::analytic`] is for choosing what to keep.
///
/// # Errors
/// When doubling does not converge.
fn unclamped_controllability(
    system: &LinearSystem,
    b: MatRef<'_, f64>,
    solve: fn(MatRef<'_, f64>, MatRef<'_, f64>) -> Result<Mat<f64>>,
) -> Result<Mat<f64>> {
    let b = compress_columns(b);
    if let Some(modes) = system.a().modes() {
        return Ok(Spectrum::of(&modes, |pole| pole).factor(b.as_ref(), Side::Input));
    }
    let (a, unit) = (system.a().to_dense(), exponent(b.as_ref()));
    let b = times_power_of_two(b.as_ref(), -unit);
    let l = eigenvector_factor(system, b.as_ref(), Side::Input)
        .filter(|l| stein_residual(a.as_ref(), l.as_ref(), b.as_ref()) <= EIGENVECTOR_RESIDUAL);
    let l = l.map_or_else(|| solve(a.as_ref(), b.as_ref()), Ok)?;
    Ok(times_power_of_two(l.as_ref(), unit))
}

/// The H2 norm of `C (z - A)^-1 B`, `||C Lc||_F`, with every pole as slow as it is; B has no more columns than there are states.
pub(super) fn h2_norm_of(system: &LinearSystem, b: MatRef<'_, f64>, c: MatRef<'_, f64>) -> Result<f64> {
    Ok(product(c, unclamped_controllability(system, b, stein_factor)?.as_ref()).norm_l2())
}

/// A factor of about that Gramian, with as many columns as rows: coordinates for a proof, which need not be exact.
pub(super) fn coordinates(system: &LinearSystem, b: MatRef<'_, f64>) -> Result<Mat<f64>> {
    unclamped_controllability(system, b, doubled_factor)
}

/// The modulus of the slowest pole behind the slowest one, or pair.
fn slowest_but_one(poles: &[c64]) -> f64 {
    let modulus = |i: usize| poles[i].norm();
    let Some(slowest) = (0..poles.len()).max_by(|i, j| modulus(*i).total_cmp(&modulus(*j))) else { return 0.0 };
    let is_its_pair = |pole: c64| pole.im != 0.0 && pole == poles[slowest].conj();
    let others = (0..poles.len()).filter(|i| *i != slowest && !is_its_pair(poles[*i]));
    others.map(modulus).fold(0.0, f64::max)
}

/// What Gramians take the poles of modes for.
fn clamp_of(system: &LinearSystem) -> fn(Pole) -> Pole {
    if system.is_clamped() { Pole::clamped } else { |pole| pole }
}

fn clamped_matrix(a: &StateMatrix, clamp: fn(Pole) -> Pole) -> Mat<f64> {
    match a.modes() {
        None => a.to_dense(),
        Some(modes) => {
            let of_mode = |m: &Mode| match *m {
                Mode::Real(a) => Mode::Real(clamp(Pole::real(a)).radius.copysign(a)),
                Mode::Pair { radius, angle } => Mode::Pair { radius: clamp(Pole::polar(radius, angle)).radius, angle },
            };
            StateMatrix::Modal(modes.iter().map(of_mode).collect()).to_dense()
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Input,
    Output,
}

/// The complex coordinates in which a modal A is diagonal: `z = (x1 + i x2) / sqrt 2` and its conjugate for each pair, a
/// unitary change, so that factors carry over without loss.
struct Spectrum {
    modes: Vec<Mode>,
    poles: Vec<Pole>,
}

impl Spectrum {
    fn of(modes: &[Mode], treat: impl Fn(Pole) -> Pole) -> Self {
        let poles = modes
            .iter()
            .flat_map(|mode| {
                let pole = treat(mode.pole());
                std::iter::once(pole).chain((mode.states() == 2).then(|| pole.conj()))
            })
            .collect();
        Self { modes: modes.to_vec(), poles }
    }

    /// Real factor, [d, k], of the Gramian driven by `rows` [d, m] (B, or C^T for the output side).
    fn factor(&self, rows: MatRef<'_, f64>, side: Side) -> Mat<f64> {
        if self.modes.iter().all(|m| m.states() == 1) {
            return cauchy_factor(&self.poles[..], rows.transpose().to_owned());
        }
        // Wc has the poles of A, Wo those of A^T = A^H: in the same coordinates their conjugates.
        let poles: Vec<Pole> = self.poles.iter().map(|p| if side == Side::Output { p.conj() } else { *p }).collect();
        let mut l = cauchy_factor(&poles[..], self.to_complex(rows));
        self.back(&mut l);
        // W is real, so W = Re(L L^H) = Re L Re L^T + Im L Im L^T.
        let part = |of: fn(c64) -> f64| Mat::from_fn(l.nrows(), l.ncols(), |i, k| of(l[(i, k)]));
        compress_columns(beside(part(|z| z.re).as_ref(), part(|z| z.im).as_ref()).as_ref())
    }

    /// Inputs, [m, d], of the complex states.
    fn to_complex(&self, rows: MatRef<'_, f64>) -> Mat<c64> {
        let mut out = Mat::from_fn(rows.ncols(), rows.nrows(), |k, i| c64::new(rows[(i, k)], 0.0));
        self.for_each_pair(|i| {
            for k in 0..rows.ncols() {
                let z = c64::new(rows[(i, k)], rows[(i + 1, k)]) * FRAC_1_SQRT_2;
                out[(k, i)] = z;
                out[(k, i + 1)] = z.conj();
            }
        });
        out
    }

    fn back(&self, l: &mut Mat<c64>) {
        let columns = l.ncols();
        self.for_each_pair(|i| {
            for k in 0..columns {
                let (z, w) = (l[(i, k)], l[(i + 1, k)]);
                l[(i, k)] = (z + w) * FRAC_1_SQRT_2;
                l[(i + 1, k)] = (z - w) * c64::new(0.0, -FRAC_1_SQRT_2);
            }
        });
    }

    fn for_each_pair(&self, mut f: impl FnMut(usize)) {
        let mut i = 0;
        for mode in &self.modes {
            if mode.states() == 2 {
                f(i);
            }
            i += mode.states();
        }
    }
}
