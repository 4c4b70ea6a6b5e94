//! Energy pruning: keeps the modes whose impulse responses have the most energy, and drops the others unchanged.
//!
//! ```text
//! E_i = sum_k ||G_i,k||^2 = ||b_i||^2 ||c_i||^2 / (1 - |a_i|^2)        a pair: the squared H2 norm of its two states
//! ```
//!
//! The closed form needs neither Gramians nor a decomposition: the cheap comparison. It ranks modes by the mean square of what they
//! do where [`modal`] ranks them by their peak, and knows as little of how they cancel. The score is that of AIRE-Prune
//! (A. P. Padhy, F. Camacho and S. Mukhopadhyay, ICLR 2026). Error at most the sum of the discarded H-infinity norms.

use super::modal::{self, mode_gains};
use super::{Accepts, Bound, Definition, Method, Reduced};
use crate::continuous::Bilinear;
use crate::norms::h2_norm;
use crate::{HankelSpectrum, LinearSystem, Mode, Result, StateMatrix};

/// Energy pruning.
pub const METHOD: Method = Method(&Definition {
    name: "energy",
    summary: "Keep the modes of the most impulse response energy as they are (sum of the dropped gains as bound)",
    bound: Bound::Modes,
    bounds: Some(bounds),
    gramians: Accepts::Unread,
    direct_term: false,
    reduce,
});

fn reduce(system: &LinearSystem, _: &HankelSpectrum, order: usize) -> Result<Reduced> {
    let map = system.map();
    modal::in_modal_form(system, |system| {
        modal::keep_largest(system, &energies(system, map)?, &mode_gains(system, map)?, order)
    })
}

/// Bounds of the error at all orders.
pub(super) fn bounds(system: &LinearSystem) -> Result<Vec<f64>> {
    let map = system.map();
    modal::bounds_by(system, |system| Ok((energies(system, map)?, mode_gains(system, map)?)))
}

/// Roots of the energies, whose squares might underflow. With a `map` they are those of continuous time.
fn energies(system: &LinearSystem, map: Option<Bilinear>) -> Result<Vec<f64>> {
    let mut state = 0;
    let mut energies = Vec::new();
    for mode in system.a().modes().unwrap_or_default() {
        let b = system.b().subrows(state, mode.states());
        let c = system.c().subcols(state, mode.states());
        // The image with the C of continuous time has the H2 norm there.
        let mapped = map.map(|map| map.continuous(&StateMatrix::Modal(vec![mode]), b, c, None)).transpose()?;
        let c = mapped.as_ref().map_or(c, |(_, _, c, _)| c.as_ref());
        energies.push(match mode {
            Mode::Real(_) => {
                let pole = mode.pole();
                b.norm_l2() * c.norm_l2() / pole.one_minus_product(pole).re.sqrt()
            }
            Mode::Pair { .. } => {
                h2_norm(&LinearSystem::new(StateMatrix::Modal(vec![mode]), b.to_owned(), c.to_owned(), None)?)?
            }
        });
        state += mode.states();
    }
    Ok(energies)
}
