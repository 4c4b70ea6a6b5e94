//! Norms of transfer functions on the unit circle.

mod balance;
mod bounded_real;
mod cover;
mod difference;
mod fractions;
mod h2;
mod hinf;
mod proved;
mod response;

pub use bounded_real::BoundedReal;
pub use difference::hinf_error;
pub use h2::h2_norm;
pub use hinf::{HinfNorm, hinf_norm, hinf_norm_in, hinf_sweep};
pub use proved::{ErrorNorm, Proof, proved_error, without_shared};
pub use response::FrequencyResponse;

use super::{LinearSystem, Result};

/// `||G - H|| / ||G||` in the H-infinity norm (by the sweep), 0 if both vanish.
pub fn deviation(g: &LinearSystem, h: &LinearSystem) -> Result<f64> {
    let size = hinf_sweep(&FrequencyResponse::new(g)?)?.value;
    let error = hinf_sweep(&FrequencyResponse::new(&g.difference(h)?)?)?.value;
    Ok(if error == 0.0 { 0.0 } else { error / size })
}
