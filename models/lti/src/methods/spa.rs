//! Singular perturbation approximation: the discarded states are taken at rest.
//!
//! ```text
//! x1' = A11 x1 + A12 x2 + B1 u     x2 = A21 x1 + A22 x2 + B2 u
//! A_r = A11 + A12 (I - A22)^-1 A21     B_r = B1 + A12 (I - A22)^-1 B2
//! C_r = C1 + C2 (I - A22)^-1 A21       D_r = D + C2 (I - A22)^-1 B2
//! ```
//!
//! It keeps the gain at frequency 0 and makes a direct term. Y. Liu and B. D. O. Anderson, Int. J. Control 50 (1989). Bound of
//! balanced truncation. SLICOT: AB09BD; MATLAB: `balred` with `StateProjection = 'MatchDC'`.

use super::units::Units;
use super::{Accepts, Bound, Definition, Method, Reduced};
use crate::linalg::{above, beside, product};
use crate::{HankelSpectrum, LinearSystem, Result, StateMatrix};
use faer::linalg::solvers::Solve;
use faer::{Mat, MatRef};

/// Singular perturbation approximation.
pub const METHOD: Method = Method(&Definition {
    name: "spa",
    summary: "Singular perturbation: keeps the gain at frequency 0, adds a direct term D (Glover bound)",
    bound: Bound::HankelSingularValues,
    bounds: None,
    gramians: Accepts::Any,
    direct_term: true,
    reduce,
});

fn reduce(system: &LinearSystem, spectrum: &HankelSpectrum, order: usize) -> Result<Reduced> {
    // The result depends on the subspace of the discarded states, not on the basis in it: complements of the kept directions
    // are exact where the balanced directions of tiny singular values are mostly rounding. States that are not controllable or
    // not observable are left out beforehand: at rest, rounding would couple a slow one back in.
    let (units, (w, v)) = (Units::of(system), spectrum.directions(spectrum.rank()));
    let (w, v) = (units.rows_back(w).qr().compute_thin_Q(), units.rows(v).qr().compute_thin_Q());
    let w = product(w.transpose(), v.as_ref()).partial_piv_lu().solve(w.transpose());
    let (left, right) = spectrum.projections(order)?;
    let (left, right) = (units.columns(left), units.rows(right));
    let (complement, dual) = (
        null_space(product(left.as_ref(), v.as_ref()).as_ref()),
        null_space(product(w.as_ref(), right.as_ref()).transpose()),
    );
    let dual = product(dual.transpose(), complement.as_ref()).partial_piv_lu().solve(dual.transpose());
    let (complement, dual) = (product(v.as_ref(), complement.as_ref()), product(dual.as_ref(), w.as_ref()));
    let rest = spectrum.rank() - order;
    let left = units.columns_back(above(left.as_ref(), dual.as_ref()));
    let right = units.rows_back(beside(right.as_ref(), complement.as_ref()));
    let a = product(left.as_ref(), system.a().apply(right.as_ref()).as_ref());
    let b = product(left.as_ref(), system.b());
    let c = product(system.c(), right.as_ref());
    let block = |i: usize, j: usize, rows: usize, cols: usize| a.submatrix(i, j, rows, cols);
    // x2 = A21 x1 + A22 x2 + B2 u, solved for x2 = X x1 + U u.
    let at_rest = (Mat::<f64>::identity(rest, rest) - block(order, order, rest, rest)).partial_piv_lu();
    let x = at_rest.solve(block(order, 0, rest, order));
    let u = at_rest.solve(b.subrows(order, rest));
    let (a12, c2) = (block(0, order, order, rest), c.subcols(order, rest));
    let a_r = block(0, 0, order, order) + product(a12, x.as_ref());
    let b_r = b.subrows(0, order) + product(a12, u.as_ref());
    let c_r = c.subcols(0, order) + product(c2, x.as_ref());
    let mut d_r = product(c2, u.as_ref());
    if let Some(d) = system.d() {
        d_r += d;
    }
    Ok(Reduced {
        system: LinearSystem::new(StateMatrix::Dense(a_r), b_r, c_r, Some(d_r))?,
        projection: None,
        bound: spectrum.guarantee(order),
        kept: None,
    })
}

/// Orthonormal basis, [d, d - r], of the vectors that the r independent rows of `m` [r, d] map to zero.
fn null_space(m: MatRef<'_, f64>) -> Mat<f64> {
    let q = m.transpose().qr().compute_Q();
    q.subcols(m.nrows(), m.ncols() - m.nrows()).to_owned()
}
