//! Gramian factors of a dense system, and finite-horizon ones of any system, by doubling.

use super::linalg::{beside, compress_columns, parallelism, product};
use super::proof::double::Matrix;
use super::{LtiError, Result};
use faer::linalg::matmul::triangular::{BlockStructure, matmul};
use faer::{Accum, Mat, MatRef};

/// More doublings than this would mean a spectral radius that is 1 in double precision.
const MAX_DOUBLINGS: usize = 64;
/// Powers of a matrix that is far from normal grow before they decay. What is rounded in one of them is multiplied by the others: from here
/// on Gramians are computed in twice the precision.
const GROWTH: f64 = 4.0;
/// States of a system at most for which they are.
const TWICE: usize = 128;
/// Shares of a diagonal entry below this are rounding in twice the precision.
const LOST: f64 = 1e-28;

/// Factor L, [d, k <= d], of the solution of `A W A^T - W + B B^T = 0`, `W = L L^T`, for stable A.
///
/// Squared Smith iteration on the factor: `W_2n = W_n + A^n W_n (A^n)^T` becomes `L_2n = [L_n, A^n L_n]`, compressed by a
/// QR decomposition. The Gramian itself is never formed, so a small direction is not lost in the rounding of a large one, except in twice
/// the precision, where powers of A grow (R. A. Smith, Matrix equation XA + BX = C, SIAM J. Appl. Math. 16 (1968); T. Penzl, SIAM J. Sci. Comput. 21 (2000)).
pub fn stein_factor(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Result<Mat<f64>> {
    let is_twice = a.nrows() <= TWICE && growth(a) > GROWTH;
    let twice = is_twice.then(|| factor_in_twice_the_precision(a, b)).flatten();
    twice.map_or_else(|| doubled_factor(a, b), Ok)
}

/// As [`stein_factor`] in doubles, with all its columns however much is rounded: coordinates in which a Gramian is about the identity.
pub fn doubled_factor(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Result<Mat<f64>> {
    let mut l = compress_columns(b);
    let mut power = a.to_owned();
    for _ in 0..MAX_DOUBLINGS {
        if power.norm_l2() <= f64::EPSILON * f64::EPSILON || l.ncols() == 0 {
            return Ok(l);
        }
        l = compress_columns(beside(l.as_ref(), product(power.as_ref(), l.as_ref()).as_ref()).as_ref());
        power = product(power.as_ref(), power.as_ref());
        if !power.norm_l2().is_finite() {
            break;
        }
    }
    Err(LtiError::NoConvergence("the doubling iteration for a Gramian (a pole is too close to the unit circle)"))
}

/// The same by way of W in twice the precision; `None` where that is not finite.
fn factor_in_twice_the_precision(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Option<Mat<f64>> {
    let b = Matrix::of(b);
    let (mut w, mut power) = (b.times(&b.transposed()), Matrix::of(a));
    for _ in 0..MAX_DOUBLINGS {
        let norm = power.rounded().norm_l2();
        if norm <= f64::EPSILON * f64::EPSILON {
            let w = w.rounded().norm_max().is_finite().then_some(w)?;
            return Some(w.factor(LOST));
        }
        let next = power.times(&w).times_symmetric(&power.transposed());
        w = w.combined(&next, |one, two| one + two);
        power = power.times(&power);
    }
    None
}

/// By how much the powers of a stable A exceed those of a normal one: 1, or the largest Frobenius norm of `A^(2^k)` relative to that of the
/// identity.
pub fn growth(a: MatRef<'_, f64>) -> f64 {
    let size = (a.nrows().max(1) as f64).sqrt();
    Powers::of(a).0.iter().map(|power| power.norm_l2() / size).fold(1.0, f64::max)
}

/// `A, A^2, A^4, ...` until nothing is left of them, for several equations with one A.
pub struct Powers(Vec<Mat<f64>>);

impl Powers {
    /// Those of a stable A.
    pub fn of(a: MatRef<'_, f64>) -> Self {
        let mut powers = vec![a.to_owned()];
        while let Some(last) = powers.last().filter(|last| {
            let norm = last.norm_l2();
            norm.is_finite() && norm > f64::EPSILON * f64::EPSILON
        }) {
            if powers.len() > MAX_DOUBLINGS {
                break;
            }
            powers.push(product(last.as_ref(), last.as_ref()));
        }
        Self(powers)
    }

    /// The solution of `A X F - X + R = 0`, [d, k], for stable F [k, k]: `X_2n = X_n + A^n X_n F^n`.
    pub fn sylvester(&self, r: MatRef<'_, f64>, f: MatRef<'_, f64>) -> Mat<f64> {
        solve(self.0.iter().map(Mat::as_ref), r, f)
    }

    /// The solution of `A^T X F - X + R = 0`.
    pub fn transposed_sylvester(&self, r: MatRef<'_, f64>, f: MatRef<'_, f64>) -> Mat<f64> {
        solve(self.0.iter().map(Mat::transpose), r, f)
    }

    /// The solution of `A X F^T - X + R = 0`, [d, k], from the powers of F as well.
    pub fn sylvester_with(&self, r: MatRef<'_, f64>, f: &Self) -> Mat<f64> {
        solve_known(self.0.iter().map(Mat::as_ref), r, f.0.iter().map(Mat::transpose))
    }

    /// The solution of `A^T X F - X + R = 0`, from the powers of F as well.
    pub fn transposed_sylvester_with(&self, r: MatRef<'_, f64>, f: &Self) -> Mat<f64> {
        solve_known(self.0.iter().map(Mat::transpose), r, f.0.iter().map(Mat::as_ref))
    }
}

/// Ends with the shorter of both lists of powers: nothing is left of the next product.
fn solve_known<'a>(
    left: impl Iterator<Item = MatRef<'a, f64>>,
    r: MatRef<'_, f64>,
    right: impl Iterator<Item = MatRef<'a, f64>>,
) -> Mat<f64> {
    let mut x = r.to_owned();
    if x.nrows() == 0 || x.ncols() == 0 {
        return x;
    }
    for (left, right) in left.zip(right) {
        x += product(product(left, x.as_ref()).as_ref(), right);
    }
    x
}

fn solve<'a>(powers: impl Iterator<Item = MatRef<'a, f64>>, r: MatRef<'_, f64>, f: MatRef<'_, f64>) -> Mat<f64> {
    let mut x = r.to_owned();
    let mut right = f.to_owned();
    for left in powers {
        if x.norm_max() == 0.0 || left.norm_l2() * right.norm_l2() <= f64::EPSILON * f64::EPSILON {
            break;
        }
        x += product(product(left, x.as_ref()).as_ref(), right.as_ref());
        right = product(right.as_ref(), right.as_ref());
    }
    x
}

/// Factor of the finite-horizon Gramian `sum_{k < steps} A^k B B^T (A^k)^T`: no difference of two infinite ones is formed.
pub fn horizon_factor(a: MatRef<'_, f64>, b: MatRef<'_, f64>, steps: usize) -> Mat<f64> {
    let base = compress_columns(b);
    let d = a.nrows();
    let mut l = Mat::zeros(d, 0);
    let mut power = Mat::<f64>::identity(d, d);
    // Horner's scheme over the bits of `steps`: double the horizon, then lengthen it by one where the bit is set.
    for bit in (0..usize::BITS - steps.leading_zeros()).rev() {
        if l.ncols() > 0 {
            l = compress_columns(beside(l.as_ref(), product(power.as_ref(), l.as_ref()).as_ref()).as_ref());
            power = product(power.as_ref(), power.as_ref());
        }
        if steps >> bit & 1 == 1 {
            l = compress_columns(beside(base.as_ref(), product(a, l.as_ref()).as_ref()).as_ref());
            power = product(a, power.as_ref());
        }
    }
    l
}

/// `|| A W A^T - W + B B^T || / (||A W A^T|| + ||W|| + ||B B^T||)` in the Frobenius norm, with `W = L L^T`.
pub fn stein_residual(a: MatRef<'_, f64>, l: MatRef<'_, f64>, b: MatRef<'_, f64>) -> f64 {
    let (mut awa, w, bb) = (gram(product(a, l).as_ref()), gram(l), gram(compress_columns(b).as_ref()));
    let size = lower_norm(&awa) + lower_norm(&w) + lower_norm(&bb);
    if size == 0.0 {
        return 0.0;
    }
    for (column, (w, bb)) in awa.col_iter_mut().zip(w.col_iter().zip(bb.col_iter())) {
        column.iter_mut().zip(w.iter().zip(bb.iter())).for_each(|(x, (w, bb))| *x += bb - w);
    }
    lower_norm(&awa) / size
}

/// The lower triangle of `M M^T`; zeros above it.
fn gram(m: MatRef<'_, f64>) -> Mat<f64> {
    let mut out = Mat::zeros(m.nrows(), m.nrows());
    let (lower, whole) = (BlockStructure::TriangularLower, BlockStructure::Rectangular);
    let par = parallelism(m.nrows() * m.nrows(), m.ncols());
    matmul(out.as_mut(), lower, Accum::Replace, m, whole, m.transpose(), whole, 1.0, par);
    out
}

/// The Frobenius norm of a symmetric matrix by its lower triangle.
fn lower_norm(m: &Mat<f64>) -> f64 {
    let diagonal = (0..m.nrows()).map(|i| m[(i, i)]).fold(0.0, f64::hypot);
    let below = (0..m.ncols()).map(|j| m.col(j).subrows(j + 1, m.nrows() - j - 1).norm_l2()).fold(0.0, f64::hypot);
    diagonal.hypot(2.0_f64.sqrt() * below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::double::Double;

    fn system() -> (Mat<f64>, Mat<f64>) {
        let a = Mat::from_fn(4, 4, |i, j| if i == j { 0.9 - 0.2 * i as f64 } else { 0.1 * ((i + 2 * j) as f64).sin() });
        (a, Mat::from_fn(4, 2, |i, j| (1.0 + i as f64) / (1.0 + j as f64)))
    }

    #[test]
    fn doubling_solves_the_stein_equation() {
        let (a, b) = system();
        let l = stein_factor(a.as_ref(), b.as_ref()).unwrap();
        assert!(stein_residual(a.as_ref(), l.as_ref(), b.as_ref()) < 1e-15);
        let w = &l * l.transpose();
        let residual = &a * &w * a.transpose() - &w + &b * b.transpose();
        assert!(residual.norm_l2() < 1e-15 * w.norm_l2());
        assert!(stein_residual(a.as_ref(), Mat::identity(4, 4).as_ref(), b.as_ref()) > 1e-2);
    }

    /// The companion matrix of poles next to each other, whose powers reach 1e5 before they decay.
    #[test]
    fn far_from_normal_matrices_keep_their_digits() {
        let mut monic = vec![1.0];
        for pole in [0.88, 0.89, 0.9, 0.91, 0.92, 0.93] {
            let mut next = vec![0.0; monic.len() + 1];
            for (i, c) in monic.iter().enumerate() {
                next[i] += c;
                next[i + 1] -= pole * c;
            }
            monic = next;
        }
        let n = monic.len() - 1;
        let a = Mat::from_fn(n, n, |i, j| if i == 0 { -monic[j + 1] } else { f64::from(u8::from(i == j + 1)) });
        let b = Mat::from_fn(n, 1, |i, _| f64::from(u8::from(i == 0)));
        assert!(growth(a.as_ref()) > 1e4);
        assert!(growth(system().0.as_ref()) < 2.0);
        // What is observed of the first state by the input is the sum of the squares of the impulse response.
        let l = stein_factor(a.as_ref(), b.as_ref()).unwrap();
        assert!(stein_residual(a.as_ref(), l.as_ref(), b.as_ref()) < 1e-13);
        let (mut x, mut sum) = (Matrix::of(b.as_ref()), Double::of(0.0));
        let a = Matrix::of(a.as_ref());
        for _ in 0..2000 {
            sum = sum + x.at(0, 0) * x.at(0, 0);
            x = a.times(&x);
        }
        let found = l.row(0).norm_l2().powi(2);
        assert!((found - sum.hi).abs() < 1e-12 * sum.hi, "{found} {}", sum.hi);
    }

    #[test]
    fn doubling_solves_the_equation_of_two_systems() {
        let (a, b) = system();
        let f = Mat::from_fn(2, 2, |i, j| if i == j { 0.5 - i as f64 } else { 0.3 });
        let powers = Powers::of(a.as_ref());
        let x = powers.sylvester(b.as_ref(), f.as_ref());
        assert!((&a * &x * &f - &x + &b).norm_l2() < 1e-14 * x.norm_l2());
        let x = powers.transposed_sylvester(b.as_ref(), f.as_ref());
        assert!((a.transpose() * &x * &f - &x + &b).norm_l2() < 1e-14 * x.norm_l2());
        let others = Powers::of(f.as_ref());
        let x = powers.sylvester_with(b.as_ref(), &others);
        assert!((&a * &x * f.transpose() - &x + &b).norm_l2() < 1e-14 * x.norm_l2());
        let x = powers.transposed_sylvester_with(b.as_ref(), &others);
        assert!((a.transpose() * &x * &f - &x + &b).norm_l2() < 1e-14 * x.norm_l2());
        assert_eq!(powers.sylvester(Mat::zeros(4, 0).as_ref(), Mat::zeros(0, 0).as_ref()).ncols(), 0);
    }

    #[test]
    fn finite_horizons_are_partial_sums() {
        let (a, b) = system();
        let mut sum = Mat::<f64>::zeros(4, 4);
        let mut x = b.clone();
        for steps in 0..20 {
            let l = horizon_factor(a.as_ref(), b.as_ref(), steps);
            assert!((&l * l.transpose() - &sum).norm_l2() <= 1e-14 * sum.norm_l2(), "{steps}");
            sum += &x * x.transpose();
            x = &a * &x;
        }
    }
}
