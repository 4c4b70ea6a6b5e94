//! Balancing-free square-root truncation: the transfer function of balanced truncation from orthonormal bases, where balancing
//! would be ill-conditioned.
//!
//! ```text
//! W = orth(Lo U_r)     V = orth(Lc V_r)     L = (W^T V)^-1 W^T     R = V
//! A_r = L A R     B_r = L B     C_r = C R
//! ```
//!
//! A. Varga, Proc. IEEE CDC 1991. Bound of balanced truncation. SLICOT: AB09AD with JOB = 'N'; pyMOR: `BTReductor` with
//! projection `bfsr`.

use super::units::Units;
use super::{Accepts, Bound, Definition, Method, Reduced, project};
use crate::linalg::product;
use crate::{HankelSpectrum, LinearSystem, LtiError, Result};
use faer::linalg::solvers::Solve;

/// Balancing-free square-root truncation.
pub const METHOD: Method = Method(&Definition {
    name: "bfsr",
    summary: "Balancing-free square root: the same system, better conditioned on the way (Glover bound)",
    bound: Bound::HankelSingularValues,
    bounds: None,
    gramians: Accepts::Any,
    direct_term: false,
    reduce,
});

fn reduce(system: &LinearSystem, spectrum: &HankelSpectrum, order: usize) -> Result<Reduced> {
    if order > spectrum.rank() {
        return Err(LtiError::OrderTooLarge { order, states: spectrum.rank() });
    }
    let (units, (left, right)) = (Units::of(system), spectrum.directions(order));
    let (w, v) = (units.rows_back(left).qr().compute_thin_Q(), units.rows(right).qr().compute_thin_Q());
    let left = product(w.transpose(), v.as_ref()).partial_piv_lu().solve(w.transpose());
    project(system, units.columns_back(left), units.rows_back(v), spectrum.guarantee(order))
}
