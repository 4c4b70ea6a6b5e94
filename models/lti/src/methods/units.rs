//! Bases in units of the states that suit a system (SLICOT: EQUIL = 'S').
//!
//! With `x = T x'`, a basis of states is `T^-1 V`, one of what reads them `T W`. An orthonormal basis in the units of the file has no
//! digits of a state in small numbers beside one in large numbers.

use crate::LinearSystem;
use crate::norms::balance::suitable_units;
use faer::Mat;

/// The diagonal of T, powers of two: changing units is exact.
pub(super) struct Units(Vec<f64>);

impl Units {
    pub(super) fn of(system: &LinearSystem) -> Self {
        Units(suitable_units(system.a().to_dense().as_ref(), system.b(), system.c(), 1.0))
    }

    /// `T^-1 V`.
    pub(super) fn rows(&self, v: Mat<f64>) -> Mat<f64> {
        changed(v, |i, _| 1.0 / self.0[i])
    }

    /// `T V`; of a basis of what reads the states, that in units that suit.
    pub(super) fn rows_back(&self, v: Mat<f64>) -> Mat<f64> {
        changed(v, |i, _| self.0[i])
    }

    /// `L T`.
    pub(super) fn columns(&self, l: Mat<f64>) -> Mat<f64> {
        changed(l, |_, j| self.0[j])
    }

    /// `L T^-1`.
    pub(super) fn columns_back(&self, l: Mat<f64>) -> Mat<f64> {
        changed(l, |_, j| 1.0 / self.0[j])
    }
}

fn changed(mut matrix: Mat<f64>, by: impl Fn(usize, usize) -> f64) -> Mat<f64> {
    for j in 0..matrix.ncols() {
        for i in 0..matrix.nrows() {
            matrix[(i, j)] *= by(i, j);
        }
    }
    matrix
}
