//! Eigenvalues and eigenvectors of the blocks of a dense state matrix, computed once per system.

use super::Result;
use super::linalg::{eigenvalues, eigenvectors, invert_complex};
use super::system::Mode;
use faer::{Mat, MatRef, c64};
use std::f64::consts::FRAC_1_SQRT_2;
use std::sync::OnceLock;

/// Blocks above this size get eigenvectors with their eigenvalues: what follows from them is faster than any dense computation.
const LARGE: usize = 96;

/// Eigenvectors worse conditioned than this are of no use.
const MAX_CONDITION: f64 = 1e8;

/// A diagonalisation `A = V diag(values) V^-1`.
#[derive(Debug, Clone)]
pub struct Basis {
    /// Eigenvectors, the columns of V.
    pub vectors: Mat<c64>,
    /// The inverse of V.
    pub inverse: Mat<c64>,
}

/// One block on the diagonal of a state matrix.
#[derive(Debug)]
pub struct Eigen {
    /// The block, [n, n].
    a: Mat<f64>,
    /// Its eigenvalues, complex ones with their conjugates.
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
        let (mut values, mut vectors) = (Vec::with_capacity(n), Mat::zeros(n, n));
        for mode in modes {
            let (i, value) = (values.len(), mode.pole().value());
            values.push(value);
            if mode.states() == 1 {
                vectors[(i, i)] = c64::new(1.0, 0.0);
            } else {
                // [re -im; im re] (1, -i) = (re + i im) (1, -i).
                values.push(value.conj());
                for (column, sign) in [(i, -1.0), (i + 1, 1.0)] {
                    vectors[(i, column)] = c64::new(FRAC_1_SQRT_2, 0.0);
                    vectors[(i + 1, column)] = c64::new(0.0, sign * FRAC_1_SQRT_2);
                }
            }
        }
        let inverse = vectors.adjoint().to_owned();
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
}

/// Eigenvalues and, where they are well enough conditioned, eigenvectors of unit length.
fn decompose(a: MatRef<'_, f64>) -> Result<(Vec<c64>, Option<Basis>)> {
    let (values, mut vectors) = eigenvectors(a)?;
    for column in vectors.col_iter_mut() {
        let norm = column.norm_l2();
        column.iter_mut().for_each(|x| *x *= 1.0 / norm);
    }
    let inverse = invert_complex(vectors.as_ref());
    // The rows of the inverse are the condition numbers of the eigenvalues.
    let worst = inverse.row_iter().map(|row| row.norm_l2()).fold(0.0, f64::max);
    let usable = worst.is_finite() && worst <= MAX_CONDITION;
    Ok((values, usable.then_some(Basis { vectors, inverse })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(eigen: &Eigen) {
        let basis = eigen.basis().unwrap();
        let n = eigen.states();
        let scaled = Mat::from_fn(n, n, |i, j| eigen.values[i] * basis.inverse[(i, j)]);
        let back = &basis.vectors * &scaled;
        for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
            assert!((back[(i, j)] - c64::new(eigen.a[(i, j)], 0.0)).norm() < 1e-12, "{i} {j}");
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
