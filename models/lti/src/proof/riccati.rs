//! A matrix P that should fulfil the bounded-real inequality. Nothing here is proved: what is found is checked afterwards.
//!
//! ```text
//! P = A^T P (I - W P)^-1 A + V          W = B B^T (1 + ...), V = C^T C + ...
//! ```
//!
//! by doubling (E. K.-W. Chu, H.-Y. Fan, W.-W. Lin, C.-S. Wang, Structure-preserving algorithms for periodic discrete-time algebraic
//! Riccati equations, Int. J. Control 77 (2004)): with A, W, V of 2^k steps,
//!
//! ```text
//! X = (I - W V)^-1:    A <- A X A    W <- W + A X W A^T    V <- V + A^T V X A        V -> P
//! ```
//!
//! In double precision it is then refined by Newton's method with a residual in twice the precision.

use super::double::Matrix;
use crate::linalg::product;
use faer::linalg::solvers::Solve;
use faer::{Mat, Scale};

/// Doublings: a closed loop of spectral radius `1 - 2^-50` has come to rest by then.
const DOUBLINGS: usize = 60;

/// Beyond this P is on its way to infinity: the norm is above the level.
const LARGEST: f64 = 1e60;

/// Refinements of P.
const REFINEMENTS: usize = 8;

/// The data of the equation, in twice the precision.
pub struct Riccati {
    /// A, [n, n].
    pub a: Matrix,
    /// W, [n, n].
    pub w: Matrix,
    /// V, [n, n].
    pub v: Matrix,
}

fn transposed_product(a: &Mat<f64>, b: &Mat<f64>) -> Mat<f64> {
    product(a.transpose(), b.as_ref())
}

fn symmetric(m: &Mat<f64>) -> Mat<f64> {
    (m + m.transpose()) * Scale(0.5)
}

fn identity(n: usize) -> Mat<f64> {
    Mat::identity(n, n)
}

impl Riccati {
    /// The solution by doubling in double precision; `None` where it breaks down.
    pub fn solve(&self) -> Option<Matrix> {
        let (mut a, mut w, mut v) = (self.a.rounded(), self.w.rounded(), self.v.rounded());
        let n = a.nrows();
        for _ in 0..DOUBLINGS {
            let lu = (identity(n) - product(w.as_ref(), v.as_ref())).partial_piv_lu();
            let (xa, xw) = (lu.solve(&a), lu.solve(&w));
            let step = transposed_product(&a, &product(v.as_ref(), xa.as_ref()));
            w += product(product(a.as_ref(), xw.as_ref()).as_ref(), a.transpose());
            a = product(a.as_ref(), xa.as_ref());
            v += &step;
            (w, v) = (symmetric(&w), symmetric(&v));
            let (change, size) = (step.norm_max(), v.norm_max());
            if !(size < LARGEST && change.is_finite()) {
                return None;
            }
            if change <= 1e-17 * size {
                return Some(Matrix::of(v.as_ref()));
            }
        }
        None
    }

    /// The same in twice the precision.
    pub fn solve_precisely(&self) -> Option<Matrix> {
        let (mut a, mut w, mut v) = (self.a.clone(), self.w.clone(), self.v.clone());
        let n = a.rows();
        let add = |a: &Matrix, b: &Matrix| a.combined(b, |a, b| a + b).symmetric();
        for _ in 0..DOUBLINGS {
            let wv = w.times(&v);
            let one_minus = Matrix::identity(n).combined(&wv, |one, wv| one - wv);
            let both = Matrix::from_fn(n, 2 * n, |i, j| if j < n { a.at(i, j) } else { w.at(i, j - n) });
            let x = one_minus.solve(&both);
            let part = |first: usize| Matrix::from_fn(n, n, |i, j| x.at(i, first + j));
            let (xa, xw, transposed) = (part(0), part(n), a.transposed());
            let step = transposed.times_symmetric(&v.times(&xa));
            w = add(&w, &a.times(&xw).times_symmetric(&transposed));
            a = a.times(&xa);
            v = add(&v, &step);
            let (change, size) = (step.moduli().norm_max(), v.moduli().norm_max());
            if !(size < LARGEST && change.is_finite()) {
                return None;
            }
            if change <= 1e-32 * size {
                return Some(v);
            }
        }
        None
    }

    /// A solution whose residual is at most `tolerance`, from one near it; `None` where Newton's method does not lead there.
    ///
    /// With `L` near `P (I - W P)^-1 A` and `K = A + W L` the residual is `V - P + K^T P K - L^T W L` up to the square of what L is
    /// off by, and nothing has to be solved in twice the precision.
    pub fn refined(&self, mut p: Matrix, tolerance: f64) -> Option<Matrix> {
        let (a, w) = (self.a.rounded(), self.w.rounded());
        let n = a.nrows();
        let mut last = f64::INFINITY;
        for _ in 0..REFINEMENTS {
            let rounded = p.rounded();
            let lu = (identity(n) - product(w.as_ref(), rounded.as_ref())).partial_piv_lu();
            let closed = lu.solve(&a);
            let l = Matrix::of(product(rounded.as_ref(), closed.as_ref()).as_ref());
            let wl = self.w.times(&l);
            let k = self.a.combined(&wl, |a, b| a + b);
            let gained = k.transposed().times_symmetric(&p.times(&k));
            let spent = l.transposed().times_symmetric(&wl);
            let residual = self.v.combined(&p, |a, b| a - b).combined(&gained, |a, b| a + b);
            let residual = residual.combined(&spent, |a, b| a - b).rounded();
            let size = residual.norm_max();
            if size <= tolerance {
                return Some(p);
            }
            if size.is_nan() || size > 0.5 * last {
                return None;
            }
            last = size;
            let change = Matrix::of(sum_of_powers(closed, residual).as_ref());
            p = p.combined(&change, |a, b| a + b).symmetric();
        }
        None
    }
}

/// `sum_k (A^T)^k R A^k` by doubling.
fn sum_of_powers(mut a: Mat<f64>, mut sum: Mat<f64>) -> Mat<f64> {
    for _ in 0..DOUBLINGS {
        let step = transposed_product(&a, &product(sum.as_ref(), a.as_ref()));
        sum = symmetric(&(&sum + &step));
        // What is not finite is seen in the next residual.
        if step.norm_max() <= 1e-17 * sum.norm_max() || !sum.norm_max().is_finite() {
            break;
        }
        a = product(a.as_ref(), a.as_ref());
    }
    sum
}
