//! The H2 norm: root of the summed squares of the impulse response.

use crate::lti::Result;
use crate::lti::gramians::GramianFactors;
use crate::lti::linalg::product;
use crate::lti::system::LinearSystem;

/// `||G||_2 = sqrt(trace(C Wc C^T) + ||D||_F^2)`, as the Frobenius norm of `C Lc`.
///
/// With the factor in place of the Gramian nothing is squared, so that the norm of an error system is accurate relative to
/// the system and not only to the root of it.
pub fn h2_norm(system: &LinearSystem) -> Result<f64> {
    let factors = GramianFactors::analytic(system)?;
    let direct = system.d().map_or(0.0, |d| d.norm_l2());
    Ok(product(system.c(), factors.lc.as_ref()).norm_l2().hypot(direct))
}
