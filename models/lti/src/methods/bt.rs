//! Square-root balanced truncation.
//!
//! ```text
//! Lo^T Lc = U diag(sigma) V^T
//! L = diag(sigma_1..r)^-1/2 U_r^T Lo^T     R = Lc V_r diag(sigma_1..r)^-1/2     L R = I
//! A_r = L A R     B_r = L B     C_r = C R
//! ```
//!
//! M. S. Tombs and I. Postlethwaite, Int. J. Control 46 (1987). Error at most `2 (sigma_{r+1} + ... + sigma_d)` (K. Glover 1984;
//! in discrete time U. M. Al-Saggaf and G. F. Franklin, IEEE TAC 32 (1987)). SLICOT: AB09AD with JOB = 'B'; MATLAB: `balred`;
//! pyMOR: `BTReductor`.

use super::{Accepts, Bound, Definition, Method, Reduced, project};
use crate::{HankelSpectrum, LinearSystem, Result};

/// Balanced truncation, the default.
pub const METHOD: Method = Method(&Definition {
    name: "bt",
    summary: "Square-root balanced truncation (Glover bound)",
    bound: Bound::HankelSingularValues,
    bounds: None,
    gramians: Accepts::Any,
    direct_term: false,
    reduce,
});

/// The balanced realisation of all states above rounding, whatever poles it has next to the unit circle.
///
/// # Errors
/// Poles that rounding moves out of the unit circle.
pub fn balanced(system: &LinearSystem, spectrum: &HankelSpectrum) -> Result<Reduced> {
    reduce(system, spectrum, spectrum.rank())
}

fn reduce(system: &LinearSystem, spectrum: &HankelSpectrum, order: usize) -> Result<Reduced> {
    let (left, right) = spectrum.projections(order)?;
    project(system, left, right, spectrum.guarantee(order))
}
