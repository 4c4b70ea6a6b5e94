//! Cholesky-like factors of the Gramians of a system with known poles, without ever forming the Gramian.
//!
//! For poles l_i and input rows b_i the Gramian is the Cauchy-like matrix `W_ij = b_i b_j^H / (1 - l_i conj(l_j))`. One
//! step of outer-product Cholesky keeps that shape: with the pivot row rotated to `(beta, 0, ..., 0)`,
//!
//! ```text
//! column:           L_j = b_j0 sqrt(1 - |l_p|^2) / (1 - l_j conj(l_p))
//! Schur complement: b_j0 <- b_j0 (l_j - l_p) / (1 - l_j conj(l_p))
//! ```
//!
//! (the generalised Schur algorithm with diagonal pivoting, T. Kailath and A. H. Sayed, Displacement structure, SIAM
//! Review 37 (1995)). Nothing is subtracted but poles, so there is no square root of a rounded, slightly negative pivot:
//! rank deficiency (zero rows, repeated poles) ends the recursion instead of breaking it. Rows keep an error relative to
//! their own size; with one input every *entry* is a product of a few accurate factors, and small Hankel singular values
//! come out with all their digits.

use super::poles::Pole;
use faer::{Mat, c64};
use pulp::Arch;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, SubAssign};

/// The numbers of the coordinates in which A is diagonal: real where all poles are.
pub trait Number:
    faer::traits::ComplexField<Real = f64>
    + Copy
    + From<f64>
    + Add<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    /// Of a complex number, which is real if this type is.
    fn of(value: c64) -> Self;
    /// The complex conjugate.
    fn conjugate(self) -> Self;
    /// The modulus.
    fn modulus(self) -> f64;
    /// Its square.
    fn square(self) -> f64;
}

/// The poles, by what the factorisation needs of them.
pub trait Poles {
    /// How many.
    fn count(&self) -> usize;
    /// `1 - l_i conj(l_j)`.
    fn one_minus_product(&self, i: usize, j: usize) -> c64;
    /// `l_i - l_j`.
    fn minus(&self, i: usize, j: usize) -> c64;
}

/// Poles that are known: differences without cancellation.
impl Poles for [Pole] {
    fn count(&self) -> usize {
        self.len()
    }
    fn one_minus_product(&self, i: usize, j: usize) -> c64 {
        self[i].one_minus_product(self[j])
    }
    fn minus(&self, i: usize, j: usize) -> c64 {
        self[i].minus(self[j])
    }
}

/// Eigenvalues that were computed: the rounding of differences is no more than they have themselves.
impl Poles for [c64] {
    fn count(&self) -> usize {
        self.len()
    }
    fn one_minus_product(&self, i: usize, j: usize) -> c64 {
        if i == j {
            let modulus = self[i].norm();
            return c64::new((1.0 - modulus) * (1.0 + modulus), 0.0);
        }
        c64::new(1.0, 0.0) - self[i] * self[j].conj()
    }
    fn minus(&self, i: usize, j: usize) -> c64 {
        self[i] - self[j]
    }
}

impl Number for f64 {
    fn of(value: c64) -> Self {
        value.re
    }
    fn conjugate(self) -> Self {
        self
    }
    fn modulus(self) -> f64 {
        self.abs()
    }
    fn square(self) -> f64 {
        self * self
    }
}

impl Number for c64 {
    fn of(value: c64) -> Self {
        value
    }
    fn conjugate(self) -> Self {
        self.conj()
    }
    fn modulus(self) -> f64 {
        self.norm()
    }
    fn square(self) -> f64 {
        self.norm_sqr()
    }
}

/// Factor L, [d, k], with `L L^H = W` for the given poles and input rows; k is the rank. `inputs` is [m, d], its column i the
/// row b_i.
pub fn cauchy_factor<N: Number, P: Poles + ?Sized>(poles: &P, inputs: Mat<N>) -> Mat<N> {
    let d = poles.count();
    let zero = N::from(0.0);
    let roots: Vec<f64> = (0..d).map(|i| poles.one_minus_product(i, i).re.sqrt()).collect();
    let mut rows = Rows { states: (0..d).collect(), columns: Vec::with_capacity(inputs.nrows()) };
    for row in inputs.row_iter() {
        rows.columns.push(row.iter().copied().collect());
    }
    drop(inputs);
    let mut columns: Vec<Vec<N>> = Vec::new();
    let mut norms = vec![0.0; d];
    loop {
        rows.norms(&mut norms);
        let weights = norms.iter().zip(&rows.states).map(|(norm, &i)| norm / roots[i]);
        let Some((position, weight)) = weights.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        if weight == 0.0 {
            break;
        }
        let (p, row) = rows.take(position);
        rows.rotate_to_first_entry(&row, norms[position]);
        let mut column = vec![zero; d];
        column[p] = N::from(weight);
        let root = N::from(roots[p]);
        if let Some(firsts) = rows.columns.first_mut() {
            for (first, &j) in firsts.iter_mut().zip(&rows.states) {
                let denominator = N::of(poles.one_minus_product(j, p));
                column[j] = *first * root / denominator;
                *first *= N::of(poles.minus(j, p)) / denominator;
            }
        }
        columns.push(column);
    }
    Mat::from_fn(d, columns.len(), |i, k| columns[k][i])
}

/// The input rows of the states that are left, input by input, so that all states are worked on side by side.
struct Rows<N> {
    /// Which states they belong to.
    states: Vec<usize>,
    /// Per input an entry of every state left.
    columns: Vec<Vec<N>>,
}

impl<N: Number> Rows<N> {
    /// The Euclidean norms, without overflow or underflow; not a number if an entry is none.
    fn norms(&self, norms: &mut Vec<f64>) {
        norms.clear();
        norms.resize(self.states.len(), 0.0);
        Arch::new().dispatch(|| {
            for column in &self.columns {
                norms.iter_mut().zip(column).for_each(|(sum, x)| *sum += x.square());
            }
        });
        for (i, norm) in norms.iter_mut().enumerate() {
            let squares = *norm;
            if (1e-280..1e280).contains(&squares) || squares.is_nan() {
                *norm = squares.sqrt();
                continue;
            }
            let entries = || self.columns.iter().map(|column| column[i].modulus());
            let largest = entries().fold(0.0_f64, f64::max);
            let sum = || entries().map(|x| (x / largest).powi(2)).sum::<f64>();
            *norm = if largest == 0.0 { 0.0 } else { largest * sum().sqrt() };
        }
    }

    /// Takes a state out, with its row.
    fn take(&mut self, position: usize) -> (usize, Vec<N>) {
        let row = self.columns.iter_mut().map(|column| column.swap_remove(position)).collect();
        (self.states.swap_remove(position), row)
    }

    /// Applies to all rows the unitary transformation that maps `row`, of norm `length`, to `(length, 0, ..., 0)`.
    fn rotate_to_first_entry(&mut self, row: &[N], length: f64) {
        let first = row[0];
        let phase = if first.modulus() == 0.0 { N::from(1.0) } else { first / N::from(first.modulus()) };
        // Householder vector v = row^H + phase^* norm e_0: the sign that does not cancel. It maps the row to -phase norm e_0^T.
        let mut v: Vec<N> = row.iter().map(|x| x.conjugate() / N::from(length)).collect();
        v[0] += phase.conjugate();
        let scale = N::from(2.0 / v.iter().map(|v| v.square()).sum::<f64>());
        let turn = N::from(-1.0) * phase.conjugate();
        let mut dots = vec![N::from(0.0); self.states.len()];
        Arch::new().dispatch(|| {
            for (column, &v) in self.columns.iter().zip(&v) {
                dots.iter_mut().zip(column).for_each(|(dot, &x)| *dot += x * v);
            }
            for (column, v) in self.columns.iter_mut().zip(&v) {
                let back = scale * v.conjugate();
                dots.iter().zip(column).for_each(|(&dot, x)| *x -= dot * back);
            }
            if let Some(firsts) = self.columns.first_mut() {
                firsts.iter_mut().for_each(|x| *x *= turn);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(d: usize, m: usize) -> Mat<c64> {
        Mat::from_fn(d, m, |i, k| c64::new(((3 * i + k) as f64).sin(), ((i + 5 * k) as f64).cos()))
    }

    fn check(poles: &[Pole], b: &Mat<c64>, rank: usize) {
        let l = cauchy_factor(poles, b.transpose().to_owned());
        assert_eq!(l.ncols(), rank);
        let values: Vec<c64> = poles.iter().map(|pole| pole.value()).collect();
        let rounded = cauchy_factor(&values[..], b.transpose().to_owned());
        let apart = (&rounded * rounded.adjoint() - &l * l.adjoint()).norm_l2();
        assert!(apart < 1e-13 * (&l * l.adjoint()).norm_l2(), "{apart}");
        let gram = &l * l.adjoint();
        let bb = b * b.adjoint();
        let w = Mat::from_fn(poles.len(), poles.len(), |i, j| bb[(i, j)] / poles[i].one_minus_product(poles[j]));
        assert!((&gram - &w).norm_l2() < 1e-14 * w.norm_l2(), "{}", (&gram - &w).norm_l2() / w.norm_l2());
    }

    #[test]
    fn factor_reproduces_the_gramian() {
        let poles: Vec<Pole> = (0..6).map(|i| Pole::polar(0.3 + 0.1 * f64::from(i), f64::from(i) - 2.5)).collect();
        check(&poles, &rows(6, 1), 6);
        check(&poles, &rows(6, 3), 6);
        check(&poles, &rows(6, 6), 6);
    }

    /// Real poles in real and in complex numbers: the same factor.
    #[test]
    fn real_numbers_do_for_real_poles() {
        let poles: Vec<Pole> = [0.3, -0.4, 0.999, -0.9999, 0.0, 0.7].map(Pole::real).to_vec();
        let inputs = Mat::from_fn(4, 6, |k, i| ((3 * i + k) as f64).sin() * 10_f64.powi(-3 * i as i32));
        let complex = cauchy_factor(&poles[..], Mat::from_fn(4, 6, |k, i| c64::new(inputs[(k, i)], 0.0)));
        let real = cauchy_factor(&poles[..], inputs);
        for (i, k) in (0..6).flat_map(|i| (0..6).map(move |k| (i, k))) {
            let (found, expected) = (real[(i, k)], complex[(i, k)]);
            assert!((found - expected.re).abs() <= 1e-14 * real.row(i).norm_l2() && expected.im == 0.0);
        }
    }

    #[test]
    fn tiny_rows_keep_their_rank_and_broken_ones_are_not_taken_for_zeros() {
        let poles = [0.5, 0.9].map(Pole::real);
        let l = cauchy_factor(&poles[..], Mat::from_fn(3, 2, |k, i| 1e-200 * (1 + k + 2 * i) as f64));
        assert_eq!(l.ncols(), 2);
        for (row, squares, defect) in [(0, 14_f64, 0.75_f64), (1, 50.0, 0.19)] {
            let length = l[(row, 0)].hypot(l[(row, 1)]);
            assert!((length / (1e-200 * squares.sqrt() / defect.sqrt()) - 1.0).abs() < 1e-14, "{length}");
        }
        let l = cauchy_factor(&poles[..], Mat::from_fn(3, 2, |k, _| if k == 0 { f64::NAN } else { 1.0 }));
        assert!(l.as_ref().norm_max().is_nan() || l.row(0).iter().any(|x| x.is_nan()));
    }

    #[test]
    fn repeated_poles_and_zero_rows_lower_the_rank() {
        let mut b = rows(5, 2);
        b[(1, 0)] = c64::new(0.0, 0.0);
        b[(1, 1)] = c64::new(0.0, 0.0);
        let poles = [0.5, 0.6, 0.7, 0.8, 0.9].map(Pole::real);
        check(&poles, &b, 4);
        // Four states at one pole and two inputs: rank 2.
        check(&[Pole::real(0.5); 4], &rows(4, 1), 1);
        assert_eq!(cauchy_factor::<c64, _>(&poles[..], Mat::zeros(2, 5)).ncols(), 0);
    }
}
