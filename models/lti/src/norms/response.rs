//! Evaluation of a transfer function on the unit circle in compressed coordinates.

use super::balance::balance;
use super::fractions::PartialFractions;
use crate::Result;
use crate::linalg::{
    above, beside, complex_product, complex_spectral_norm, compress_columns, compress_columns_to_rank,
    compress_scaled_columns, exponent, gain_exponents, ldexp, product, times_power_of_two, to_complex,
};
use crate::poles::{Pole, sin_cos};
use crate::system::{LinearSystem, Mode};
use faer::linalg::solvers::{PartialPivLu, Solve};
use faer::{Mat, MatRef, Scale, c64};

/// Binary digits by which a direct term may exceed the product of B and C.
const LARGEST_DIRECT: i32 = 400;

/// A transfer function whose inputs and outputs were compressed to at most d (+ the size of D) by orthogonal
/// transformations: all singular values at every frequency are those of the original, and no D x D matrix is formed. The states
/// are in units of their own.
#[derive(Debug, Clone)]
pub struct FrequencyResponse {
    a: Mat<f64>,
    /// Blocks of A where it is diagonal or modal.
    modes: Option<Vec<Mode>>,
    /// Numbers of states of the blocks of any other A: those of a difference are the states of both systems.
    blocks: Vec<usize>,
    b: Mat<f64>,
    c: Mat<f64>,
    d: Mat<f64>,
    /// The same in coordinates in which A is diagonal, where there are many states.
    partial_fractions: Option<PartialFractions>,
    /// Poles, one of each complex pair.
    poles: Vec<Pole>,
    /// The transfer function is `2^scale` times that of the matrices, whose gains are of size 1.
    scale: i32,
}

/// Dense systems with fewer states are evaluated as they are.
pub(super) const MANY_STATES: usize = 48;

impl FrequencyResponse {
    /// Compresses B (with D below it) from the right and C (with D beside it) from the left, and balances the states: no
    /// result depends on the units they came in.
    pub fn new(system: &LinearSystem) -> Self {
        let (direct, units) = Self::in_units(system);
        let many = direct.modes.is_none() && direct.states() > MANY_STATES;
        let parts = (&direct.b, &direct.c, &direct.d);
        let partial_fractions = if many { PartialFractions::new(system, parts, &units) } else { None };
        Self { partial_fractions, ..direct }
    }

    /// As [`FrequencyResponse::new`], without coordinates for searches.
    pub(crate) fn direct(system: &LinearSystem) -> Self {
        Self::in_units(system).0
    }

    /// The transfer function without partial fractions, and what the states were multiplied by.
    fn in_units(system: &LinearSystem) -> (Self, Vec<f64>) {
        let n = system.states();
        let (size_b, size_c) = gain_exponents(system.b(), system.c());
        // A direct term that dwarfs both must stay in range.
        let scale = system.d().map_or(size_b + size_c, |d| (size_b + size_c).max(exponent(d) - LARGEST_DIRECT));
        let system_d = system.d().map(|d| times_power_of_two(d, -scale));
        // Row by row and column by column this loses nothing, whatever their sizes.
        let (mut b, mut c, d) = match &system_d {
            None => {
                let b = compress_scaled_columns(system.b(), size_c - scale);
                let c = compress_scaled_columns(system.c().transpose(), -size_c).transpose().to_owned();
                let d = Mat::zeros(c.nrows(), b.ncols());
                (b, c, d)
            }
            Some(d) => {
                let system_b = times_power_of_two(system.b(), size_c - scale);
                let system_c = times_power_of_two(system.c(), -size_c);
                let both = compress_columns(above(system_b.as_ref(), d.as_ref()).as_ref());
                let (b, d) = (both.subrows(0, n), both.subrows(n, d.nrows()));
                let both = compress_columns(beside(system_c.as_ref(), d).transpose()).transpose().to_owned();
                (b.to_owned(), both.subcols(0, n).to_owned(), both.subcols(n, d.ncols()).to_owned())
            }
        };
        let modes = system.a().modes();
        let mut a = system.a().to_dense();
        let blocks = modes.as_ref().map_or_else(|| vec![1; n], |modes| modes.iter().map(|m| m.states()).collect());
        let units = balance(&mut a, &mut b, &mut c, &blocks);
        // What is below rounding beside B or beside C is so in their product only if both are of one size, and D of its square.
        let largest = b.norm_max().max(c.norm_max()).max(d.norm_max().sqrt());
        let unit = if largest > f64::MIN_POSITIVE { largest.log2().floor().exp2() } else { 1.0 };
        let both = compress_columns_to_rank(above(b.as_ref(), (d * Scale(1.0 / unit)).as_ref()).as_ref());
        let (b, d) = (both.subrows(0, n).to_owned(), both.subrows(n, c.nrows()));
        let both = compress_columns_to_rank(beside(c.as_ref(), d).transpose()).transpose().to_owned();
        let (c, d) = (both.subcols(0, n).to_owned(), both.subcols(n, b.ncols()) * Scale(unit));
        let poles = if let Some(modes) = &modes {
            modes.iter().map(|m| m.pole()).collect()
        } else {
            let above = system.eigenvalues().into_iter().filter(|l| l.im >= 0.0);
            above.map(|l| Pole::polar(l.norm(), l.im.atan2(l.re))).collect()
        };
        let blocks = if modes.is_some() { Vec::new() } else { system.blocks().iter().map(|b| b.states()).collect() };
        (Self { a, modes, blocks, b, c, d, partial_fractions: None, poles, scale }, units)
    }

    /// Number of states.
    pub fn states(&self) -> usize {
        self.b.nrows()
    }

    /// A norm of the scaled transfer function as one of the system.
    pub(super) fn unscale(&self, norm: f64) -> f64 {
        ldexp(norm, self.scale)
    }

    /// The matrices A, B, C, D in compressed coordinates and balanced units, scaled.
    pub(super) fn matrices(&self) -> [MatRef<'_, f64>; 4] {
        [self.a.as_ref(), self.b.as_ref(), self.c.as_ref(), self.d.as_ref()]
    }

    /// Poles, one of each complex pair.
    pub(super) fn poles(&self) -> &[Pole] {
        &self.poles
    }

    /// `e^{i omega} I - A` of a system that is not modal, block by block, and the first state of each.
    fn resolvents(&self, omega: f64) -> Vec<(usize, Mat<c64>)> {
        let z = Pole { radius: 1.0, angle: omega, rate: 0.0 }.value();
        let mut first = 0;
        let block = |&n: &usize| {
            let a = self.a.submatrix(first, first, n, n);
            let at = |i, j| c64::new(-a[(i, j)], 0.0) + if i == j { z } else { c64::new(0.0, 0.0) };
            first += n;
            (first - n, Mat::from_fn(n, n, at))
        };
        self.blocks.iter().map(block).collect()
    }

    /// `(e^{i omega} I - A)^-1 B`, [d, k], for angles `omega` in [0, pi].
    fn states_at(&self, omega: f64) -> Mat<c64> {
        let z = Pole { radius: 1.0, angle: omega, rate: 0.0 };
        let k = self.b.ncols();
        let Some(modes) = &self.modes else {
            return solve(&factors(&self.resolvents(omega)), &to_complex(self.b.as_ref()));
        };
        let mut x = Mat::zeros(self.b.nrows(), k);
        let mut i = 0;
        for &mode in modes {
            match mode {
                Mode::Real(_) => {
                    let gain = z.minus(mode.pole()).inv();
                    for j in 0..k {
                        x[(i, j)] = gain * self.b[(i, j)];
                    }
                }
                Mode::Pair { radius, angle } => {
                    let pole = mode.pole();
                    let det = (z.minus(pole) * z.minus(pole.conj())).inv();
                    let (sin, cos) = sin_cos(angle);
                    let diagonal = (z.value() - radius * cos) * det;
                    let off = det * (radius * sin);
                    for j in 0..k {
                        let (b0, b1) = (self.b[(i, j)], self.b[(i + 1, j)]);
                        x[(i, j)] = diagonal * b0 - off * b1;
                        x[(i + 1, j)] = off * b0 + diagonal * b1;
                    }
                }
            }
            i += mode.states();
        }
        x
    }

    /// `C (e^{i omega} I - A)^-1 B + D` in compressed coordinates, scaled.
    fn scaled_at(&self, omega: f64) -> Mat<c64> {
        let x = self.states_at(omega);
        let part = |f: fn(c64) -> f64| {
            product(self.c.as_ref(), Mat::from_fn(x.nrows(), x.ncols(), |i, j| f(x[(i, j)])).as_ref())
        };
        let (re, im) = (part(|z| z.re), part(|z| z.im));
        Mat::from_fn(re.nrows(), re.ncols(), |i, j| c64::new(re[(i, j)] + self.d[(i, j)], im[(i, j)]))
    }

    /// Largest singular value of the transfer function at the angle `omega`.
    ///
    /// # Errors
    /// Singular values that do not converge.
    pub fn gain(&self, omega: f64) -> Result<f64> {
        Ok(self.unscale(self.scaled_gain(omega)?))
    }

    /// The gain for a picture: as [`FrequencyResponse::gain`], for many states in the coordinates of their eigenvectors, where it is
    /// had quickly and to fewer digits.
    ///
    /// # Errors
    /// Singular values that do not converge.
    pub fn quick_gain(&self, omega: f64) -> Result<f64> {
        Ok(self.unscale(self.search_gain(omega)?))
    }

    /// Angle in [0, pi] and distance from the unit circle of every pole, as a decay rate.
    pub fn rates(&self) -> impl Iterator<Item = (f64, f64)> {
        self.poles.iter().map(|pole| (pole.angle.abs(), pole.rate.abs()))
    }

    /// The gain of the scaled transfer function.
    pub(super) fn scaled_gain(&self, omega: f64) -> Result<f64> {
        complex_spectral_norm(self.scaled_at(omega).as_ref())
    }

    /// How far the scaled gain at `omega` may be from the true one by rounding: of the sums of products with C, and of a dense
    /// system as the correction by which one step of iterative refinement would change the states.
    pub(super) fn rounding(&self, omega: f64) -> f64 {
        let resolvents = if self.modes.is_some() { Vec::new() } else { self.resolvents(omega) };
        let factors = factors(&resolvents);
        let b = to_complex(self.b.as_ref());
        let x = if self.modes.is_some() { self.states_at(omega) } else { solve(&factors, &b) };
        let n = self.states() as f64;
        let sizes = Mat::from_fn(x.nrows(), x.ncols(), |i, j| x[(i, j)].norm());
        let c = Mat::from_fn(self.c.nrows(), self.c.ncols(), |i, j| self.c[(i, j)].abs());
        let of_products = (n + 8.0) * f64::EPSILON * product(c.as_ref(), sizes.as_ref()).norm_l2();
        if self.modes.is_some() {
            return of_products;
        }
        let mut residual = b;
        for (first, resolvent) in &resolvents {
            let (x, mut of_block) =
                (x.subrows(*first, resolvent.nrows()), residual.subrows_mut(*first, resolvent.nrows()));
            of_block -= complex_product(resolvent.as_ref(), x);
        }
        let correction = solve(&factors, &residual);
        of_products + 2.0 * complex_product(to_complex(self.c.as_ref()).as_ref(), correction.as_ref()).norm_l2()
    }

    /// The gain for a search: quick, where [`PartialFractions`] are known.
    pub(super) fn search_gain(&self, omega: f64) -> Result<f64> {
        match &self.partial_fractions {
            Some(fractions) => fractions.gain(omega),
            None => self.scaled_gain(omega),
        }
    }

    /// The coordinates in which searches are quick, where there are any: [`FrequencyResponse::search_gain`] is then another one than the
    /// gain.
    pub(super) fn fractions(&self) -> Option<&PartialFractions> {
        self.partial_fractions.as_ref()
    }

    /// Makes every search one by the gain itself.
    pub(super) fn without_partial_fractions(&self) -> Self {
        Self { partial_fractions: None, ..self.clone() }
    }

    /// The scaled gain at `omega` if it can exceed `floor`, else an upper bound below it that costs no decomposition.
    pub(super) fn gain_above(&self, omega: f64, floor: f64) -> Result<f64> {
        if self.partial_fractions.is_some() {
            let gain = self.search_gain(omega)?;
            return if gain < floor * (1.0 - 1e-6) { Ok(gain) } else { self.scaled_gain(omega) };
        }
        let g = self.scaled_at(omega);
        let frobenius = g.norm_l2();
        if frobenius <= floor { Ok(frobenius) } else { complex_spectral_norm(g.as_ref()) }
    }
}

/// LU factorisations of blocks.
fn factors(blocks: &[(usize, Mat<c64>)]) -> Vec<(usize, PartialPivLu<c64>)> {
    blocks.iter().map(|(first, block)| (*first, block.partial_piv_lu())).collect()
}

/// The solution of a block-diagonal system of equations.
fn solve(factors: &[(usize, PartialPivLu<c64>)], right: &Mat<c64>) -> Mat<c64> {
    let mut x = right.clone();
    for (first, factor) in factors {
        factor.solve_in_place(x.subrows_mut(*first, factor.L().nrows()));
    }
    x
}
