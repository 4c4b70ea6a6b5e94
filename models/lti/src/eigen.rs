//! Eigenvalues and eigenvectors of the blocks of a dense state matrix, computed once per system.

use super::Result;
use super::linalg::{eigenvalues, eigenvectors, invert, product};
use super::system::Mode;
use faer::{Mat, MatRef, c64};
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};
use std::sync::OnceLock;

/// Blocks above this size get eigenvectors with their eigenvalues: what follows from them is faster than any dense computation.
const LARGE: usize = 96;

/// Eigenvectors worse conditioned than this are of no use.
const MAX_CONDITION: f64 = 1e8;

/// A diagonalisation `A = V diag(values) V^-1` in real numbers: of a pair of poles, whose eigenvectors are `x +- i y`, the basis has
/// the columns x and y.
#[derive(Debug, Clone)]
pub struct Basis {
    /// Eigenvectors of real poles, real and imaginary parts of those of pairs; [n, n].
    vectors: Mat<f64>,
    /// The inverse.
    inverse: Mat<f64>,
}

/// One block on the diagonal of a state matrix.
#[derive(Debug)]
pub struct Eigen {
    /// The block, [n, n].
    a: Mat<f64>,
    /// Its eigenvalues, complex ones with their conjugates: that above the real axis first.
    pub values: Vec<c64>,
    basis: OnceLock<Option<Basis>>,
}

impl Eigen {
    /// Of a dense block.
    pub fn dense(a: MatRef<'_, f64>) -> Result<Self> {
        let block = |values, basis| Self { a: a.to_owned(), values, basis };
        if a.nrows() <= LARGE {
            return Ok(block(eigenvalues(a)?, OnceLock::new()));
        }
        let (values, basis) = decompose(a)?;
        Ok(block(values, OnceLock::from(basis)))
    }

    /// Of blocks `[re -im; im re]` and real numbers, which a unitary change of coordinates makes diagonal.
    pub fn modal(modes: &[Mode], a: Mat<f64>) -> Self {
        let n = a.nrows();
        let (mut values, mut vectors, mut inverse) = (Vec::with_capacity(n), Mat::zeros(n, n), Mat::zeros(n, n));
        for mode in modes {
            let (i, value) = (values.len(), mode.pole().value());
            values.push(value);
            if mode.states() == 1 {
                vectors[(i, i)] = 1.0;
                inverse[(i, i)] = 1.0;
            } else {
                // [re -im; im re] (1, -i) = (re + i im) (1, -i).
                values.push(value.conj());
                (vectors[(i, i)], vectors[(i + 1, i + 1)]) = (FRAC_1_SQRT_2, -FRAC_1_SQRT_2);
                (inverse[(i, i)], inverse[(i + 1, i + 1)]) = (SQRT_2, -SQRT_2);
            }
        }
        Self { a, values, basis: OnceLock::from(Some(Basis { vectors, inverse })) }
    }

    /// Number of states.
    pub fn states(&self) -> usize {
        self.a.nrows()
    }

    /// The eigenvectors; `None` where they are too close to dependent.
    pub fn basis(&self) -> Option<&Basis> {
        self.basis.get_or_init(|| decompose(self.a.as_ref()).ok().and_then(|found| found.1)).as_ref()
    }

    /// Inputs of the diagonal coordinates, `(V^-1 B)^T`, [m, n], from B [n, m].
    pub fn inputs(&self, basis: &Basis, b: MatRef<'_, f64>) -> Mat<c64> {
        let turned = product(basis.inverse.as_ref(), b);
        let mut out = Mat::zeros(b.ncols(), self.states());
        self.for_each_mode(|i, pair| {
            for k in 0..b.ncols() {
                if pair {
                    let row = c64::new(turned[(i, k)], -turned[(i + 1, k)]) * 0.5;
                    (out[(k, i)], out[(k, i + 1)]) = (row, row.conj());
                } else {
                    out[(k, i)] = c64::new(turned[(i, k)], 0.0);
                }
            }
        });
        out
    }

    /// Outputs of the diagonal coordinates, `C V`, [p, n], from C [p, n].
    pub fn outputs(&self, basis: &Basis, c: MatRef<'_, f64>) -> Mat<c64> {
        let turned = product(c, basis.vectors.as_ref());
        let mut out = Mat::zeros(c.nrows(), self.states());
        self.for_each_mode(|i, pair| {
            for k in 0..c.nrows() {
                if pair {
                    let column = c64::new(turned[(k, i)], turned[(k, i + 1)]);
                    (out[(k, i)], out[(k, i + 1)]) = (column, column.conj());
                } else {
                    out[(k, i)] = c64::new(turned[(k, i)], 0.0);
                }
            }
        });
        out
    }

    /// The rows of L, `[Re T L, Im T L]`, that [`Basis::vectors`] turns into `[Re V L, Im V L]`.
    fn parts(&self, l: MatRef<'_, c64>, of_pair: impl Fn(c64, c64) -> (c64, c64)) -> Mat<f64> {
        let columns = l.ncols();
        let mut out = Mat::zeros(self.states(), 2 * columns);
        let mut put = |i: usize, k: usize, z: c64| (out[(i, k)], out[(i, columns + k)]) = (z.re, z.im);
        for k in 0..columns {
            self.for_each_mode(|i, pair| {
                if pair {
                    let (first, second) = of_pair(l[(i, k)], l[(i + 1, k)]);
                    put(i, k, first);
                    put(i + 1, k, second);
                } else {
                    put(i, k, l[(i, k)]);
                }
            });
        }
        out
    }

    /// `(X, M)` with `X M = [Re V L, Im V L]`: back from the diagonal coordinates.
    pub fn back<'a>(&self, basis: &'a Basis, l: MatRef<'_, c64>) -> (MatRef<'a, f64>, Mat<f64>) {
        // V = X [1 1; i -i] for a pair.
        let i = c64::new(0.0, 1.0);
        (basis.vectors.as_ref(), self.parts(l, |z, w| (z + w, (z - w) * i)))
    }

    /// `(X, M)` with `X M = [Re V^-T L, Im V^-T L]`.
    pub fn back_transposed<'a>(&self, basis: &'a Basis, l: MatRef<'_, c64>) -> (MatRef<'a, f64>, Mat<f64>) {
        // V^-1 = [1 -i; 1 i] / 2 X^-1 for a pair.
        let half = c64::new(0.0, -0.5);
        (basis.inverse.transpose(), self.parts(l, |z, w| ((z + w) * 0.5, (z - w) * half)))
    }

    fn for_each_mode(&self, mut f: impl FnMut(usize, bool)) {
        let mut i = 0;
        while i < self.values.len() {
            let pair = self.values[i].im != 0.0;
            f(i, pair);
            i += if pair { 2 } else { 1 };
        }
    }
}

/// Eigenvalues and, where they are well enough conditioned, eigenvectors of unit length.
fn decompose(a: MatRef<'_, f64>) -> Result<(Vec<c64>, Option<Basis>)> {
    let (values, vectors) = eigenvectors(a)?;
    let inverse = invert(vectors.as_ref());
    // The rows of V^-1 are the condition numbers of the eigenvalues.
    let mut worst: f64 = 0.0;
    let mut i = 0;
    while i < values.len() {
        let row = |i: usize| inverse.row(i).norm_l2();
        let pair = values[i].im != 0.0;
        worst = worst.max(if pair { 0.5 * row(i).hypot(row(i + 1)) } else { row(i) });
        i += if pair { 2 } else { 1 };
    }
    let usable = worst.is_finite() && worst <= MAX_CONDITION;
    Ok((values, usable.then_some(Basis { vectors, inverse })))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `V diag(values) V^-1` applied to the unit vectors by the parts that others use.
    fn check(eigen: &Eigen) {
        let basis = eigen.basis().unwrap();
        let n = eigen.states();
        let identity = Mat::<f64>::identity(n, n);
        let (inputs, outputs) = (eigen.inputs(basis, identity.as_ref()), eigen.outputs(basis, identity.as_ref()));
        let scaled = Mat::from_fn(n, n, |i, j| eigen.values[i] * inputs[(j, i)]);
        let back = &outputs * &scaled;
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
            assert!((back[(i, j)] - c64::new(eigen.a[(i, j)], 0.0)).norm() < 1e-12, "{i} {j}");
        }
        let l = Mat::from_fn(n, 2, |i, k| c64::new((i as f64).sin(), (i + k) as f64 / n as f64));
        for ((x, m), expected) in
            [(eigen.back(basis, l.as_ref()), &outputs * &l), (eigen.back_transposed(basis, l.as_ref()), inputs * &l)]
        {
            let found = x * &m;
            for (i, k) in (0..n).flat_map(|i| (0..2).map(move |k| (i, k))) {
                let found = c64::new(found[(i, k)], found[(i, 2 + k)]);
                assert!((found - expected[(i, k)]).norm() < 1e-10 * expected.norm_max());
            }
        }
    }

    #[test]
    fn bases_make_their_blocks_diagonal() {
        for n in [3, LARGE + 1] {
            let a =
                Mat::from_fn(n, n, |i, j| ((i * 7 + j * 13) as f64).sin() / n as f64 + if i == j { 0.3 } else { 0.0 });
            check(&Eigen::dense(a.as_ref()).unwrap());
        }
        let modes = [Mode::Real(0.5), Mode::Pair { radius: 0.9, angle: 1.0 }, Mode::Real(-0.25)];
        let a = crate::StateMatrix::Modal(modes.to_vec()).to_dense();
        check(&Eigen::modal(&modes, a));
        let jordan = Mat::from_fn(3, 3, |i, j| if i == j { 0.5 } else { f64::from(u8::from(j == i + 1)) });
        assert!(Eigen::dense(jordan.as_ref()).unwrap().basis().is_none());
    }
}
