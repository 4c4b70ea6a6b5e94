//! Norms of transfer functions on the unit circle.

pub(crate) mod balance;
mod bounded_real;
mod cover;
mod difference;
mod fractions;
mod h2;
mod hinf;
mod proved;
mod response;
mod stored;

pub use bounded_real::BoundedReal;
pub use difference::hinf_error;
pub use h2::{h2_norm, h2_norm_by, h2_norm_in};
pub use hinf::{HinfNorm, hinf_norm, hinf_norm_in, hinf_sweep};
pub use proved::{ErrorNorm, Proof, proved_error, without_shared};
pub use response::FrequencyResponse;
pub(crate) use stored::stored_gain;
pub use stored::{hinf_norm_of, hinf_sweep_of, rounding_of_entries};

use super::{LinearSystem, Result};
use std::f64::consts::PI;

/// `||G - H|| / ||G||` in the H-infinity norm (by the sweep), 0 if `G = H`. With more than 48 states G and H are taken for realisations
/// of one system: gains of H and of the difference are compared, at 0, pi and the angles of the poles of H only, where they peak.
pub fn deviation(g: &LinearSystem, h: &LinearSystem) -> Result<f64> {
    if g.states() > response::MANY_STATES {
        let (size, error) = (FrequencyResponse::direct(h), FrequencyResponse::direct(&g.difference(h)?));
        let mut angles: Vec<f64> = size.rates().map(|(angle, _)| angle).chain([0.0, PI]).collect();
        angles.sort_by(f64::total_cmp);
        angles.dedup();
        let gains = angles.iter().map(|&angle| Ok([size.gain(angle)?, error.gain(angle)?]));
        let [size, error] = gains.collect::<Result<Vec<[f64; 2]>>>()?.into_iter().fold([0.0; 2], |most, gains| {
            // A NaN stays NaN; `f64::max` would drop it.
            [0, 1].map(|i| if most[i] >= gains[i] || f64::is_nan(most[i]) { most[i] } else { gains[i] })
        });
        return Ok(if error == 0.0 { 0.0 } else { error / size });
    }
    let size = hinf_sweep(&FrequencyResponse::new(g))?.value;
    let error = hinf_sweep(&FrequencyResponse::new(&g.difference(h)?))?.value;
    Ok(if error == 0.0 { 0.0 } else { error / size })
}
