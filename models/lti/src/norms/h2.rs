//! The H2 norm: root of the summed squares of the impulse response.

use crate::Result;
use crate::gramians::{GramianFactors, h2_norm_of};
use crate::linalg::{compress_scaled_columns, exponent, gain_exponents, ldexp, product, times_power_of_two};
use crate::system::LinearSystem;

/// `||G||_2 = sqrt(trace(C Wc C^T) + ||D||_F^2)`, as the Frobenius norm of `C Lc`.
///
/// With the factor in place of the Gramian nothing is squared, so that the norm of an error system is accurate relative to
/// the system and not only to the root of it.
pub fn h2_norm(system: &LinearSystem) -> Result<f64> {
    let (size_b, size_c) = gain_exponents(system.b(), system.c());
    // Orthogonal transformations of inputs and outputs change nothing.
    let b = compress_scaled_columns(system.b(), -size_b);
    let c = compress_scaled_columns(system.c().transpose(), -size_c);
    let norm = h2_norm_of(system, b.as_ref(), c.transpose())?;
    Ok(ldexp(norm, size_b + size_c).hypot(of_direct_term(system)))
}

/// [`h2_norm`] of a system whose Gramians are known.
pub fn h2_norm_by(system: &LinearSystem, factors: &GramianFactors) -> Result<f64> {
    // Those of modes are made for reduction: with poles as slow as Gramians take them.
    if factors.residual_c.is_none() || system.a().modes().is_some() {
        return h2_norm(system);
    }
    let (size_l, size_c) = (exponent(factors.lc.as_ref()), exponent(system.c()));
    let l = times_power_of_two(factors.lc.as_ref(), -size_l);
    let c = times_power_of_two(system.c(), -size_c);
    let norm = product(c.as_ref(), l.as_ref()).norm_l2();
    Ok(ldexp(norm, size_l + size_c).hypot(of_direct_term(system)))
}

fn of_direct_term(system: &LinearSystem) -> f64 {
    let size = system.d().map_or(0, exponent);
    system.d().map_or(0.0, |d| ldexp(times_power_of_two(d, -size).norm_l2(), size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, StateMatrix};
    use faer::Mat;

    /// `1 / (1 - a^2)` is the energy of the impulse response of `1 / (z - a)`, however slow.
    #[test]
    fn slow_poles_count_as_they_are() {
        for rate in [1e-3_f64, 1e-9, 1e-12] {
            let a = (-rate).exp();
            // What the rounded pole stands for.
            let expected = 1.0 / (-(2.0 * a.ln()).exp_m1()).sqrt();
            for mode in [Mode::Real(a), Mode::Real(-a), Mode::Pair { radius: a, angle: 1.0 }] {
                let d = mode.states();
                let b = Mat::from_fn(d, 1, |i, _| f64::from(u8::from(i == 0)));
                let system = LinearSystem::new(StateMatrix::Modal(vec![mode]), b, Mat::identity(d, d), None).unwrap();
                let found = h2_norm(&system).unwrap();
                assert!((found / expected - 1.0).abs() < 1e-12, "{mode:?}: {found} {expected}");
            }
        }
    }
}
