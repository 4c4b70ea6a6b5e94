//! Projection on the leading left singular vectors of B, blind to C and to the dynamics.
//!
//! ```text
//! B = U S V^T     L = U_r^T     R = U_r     A_r = L A R     B_r = L B     C_r = C R
//! ```
//!
//! No error bound, and the reduced system may be unstable: it is here to be compared with.

use super::{Accepts, Bound, Definition, Method, Reduced, project};
use crate::linalg::{beside, compress_columns};
use crate::{HankelSpectrum, LinearSystem, LtiError, Result};
use faer::{Mat, MatRef};

/// Projection on the singular vectors of B.
pub const METHOD: Method = Method(&Definition {
    name: "svd",
    summary: "Singular vectors of B, blind to the dynamics (no guarantee)",
    bound: Bound::None,
    bounds: None,
    gramians: Accepts::Unread,
    direct_term: false,
    reduce,
});

fn reduce(system: &LinearSystem, _: &HankelSpectrum, order: usize) -> Result<Reduced> {
    let small = compress_columns(system.b());
    // Padded to d columns, so that a B of low rank still has d left singular vectors.
    let padded = beside(small.as_ref(), Mat::zeros(small.nrows(), small.nrows() - small.ncols()).as_ref());
    let svd = padded.svd().map_err(|_| LtiError::NoConvergence("the singular value decomposition"))?;
    let u: MatRef<'_, f64> = svd.U().subcols(0, order);
    project(system, u.transpose().to_owned(), u.to_owned(), None)
}
