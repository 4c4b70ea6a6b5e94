//! The H2 norm: root of the summed squares of the impulse response.

use crate::Result;
use crate::continuous::{Bilinear, DirectTerm};
use crate::gramians::{GramianFactors, h2_norm_of};
use crate::linalg::{compress_scaled_columns, exponent, gain_exponents, ldexp, product, times_power_of_two};
use crate::system::LinearSystem;

/// `||G||_2 = sqrt(trace(C Wc C^T) + ||D||_F^2)`, as the Frobenius norm of `C Lc`.
///
/// With the factor in place of the Gramian nothing is squared, so that the norm of an error system is accurate relative to
/// the system and not only to the root of it.
///
/// # Errors
/// Those of [`GramianFactors::analytic`].
pub fn h2_norm(system: &LinearSystem) -> Result<f64> {
    // Squares of inputs that are further apart leave the range of numbers together.
    const RANGE: i32 = 200;
    if let Some(system) = system.in_units_of_inputs(RANGE) {
        return h2_norm(&system);
    }
    let (size_b, size_c) = gain_exponents(system.b(), system.c());
    // Orthogonal transformations of inputs and outputs change nothing.
    let b = compress_scaled_columns(system.b(), -size_b);
    let c = compress_scaled_columns(system.c().transpose(), -size_c);
    let norm = h2_norm_of(system, b.as_ref(), c.transpose())?;
    Ok(ldexp(norm, size_b + size_c).hypot(of_direct_term(system)))
}

/// [`h2_norm`] of a system whose Gramians are known.
///
/// # Errors
/// Those of [`h2_norm`].
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

/// The H2 norm by `norm` of a system in discrete time, or of the one in continuous time that it is the image of: infinite where that has a
/// direct term.
///
/// # Errors
/// Those of `norm` and of the map.
pub fn h2_norm_in(
    map: Option<Bilinear>,
    system: &LinearSystem,
    direct: DirectTerm,
    norm: impl FnOnce(&LinearSystem) -> Result<f64>,
) -> Result<f64> {
    match map {
        None => norm(system),
        Some(map) => map.strictly_proper(system, direct)?.map_or(Ok(f64::INFINITY), |proper| norm(&proper)),
    }
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

    fn continuous(a: &StateMatrix, b: &Mat<f64>, c: &Mat<f64>, direct: f64) -> (Bilinear, LinearSystem) {
        let map = Bilinear { rate: 3.0 };
        let d = Mat::from_fn(c.nrows(), b.ncols(), |_, _| direct);
        let (a, b, c, d) = map.discrete(a, b.as_ref(), c.as_ref(), Some(d.as_ref())).unwrap();
        (map, LinearSystem::new(a, b, c, Some(d)).unwrap())
    }

    /// `1 / (s + a)` has the norm `1 / sqrt(2 a)`, `1 / ((s + a) (s + b))` the norm `1 / sqrt(2 a b (a + b))`; with a direct term it is
    /// infinite.
    #[test]
    fn in_continuous_time_it_is_that_of_the_impulse_response_there() {
        let one = Mat::from_fn(1, 1, |_, _| 1.0);
        for a in [0.01, 1.0, 250.0_f64] {
            let (map, image) = continuous(&StateMatrix::Diagonal(vec![-a]), &one, &one, 0.0);
            let norm = |image: &LinearSystem| {
                h2_norm_in(Some(map), image, DirectTerm::Computed { gain: 1.0 / a }, h2_norm).unwrap()
            };
            assert!((norm(&image) * (2.0 * a).sqrt() - 1.0).abs() < 1e-13);
            // An error that is small beside the system has its digits, too.
            let (_, near) = continuous(&StateMatrix::Diagonal(vec![-a * (1.0 + 1e-6)]), &one, &one, 0.0);
            let b = a * (1.0 + 1e-6);
            let expected = 1e-6 * a / (2.0 * a * b * (a + b)).sqrt();
            assert!((norm(&image.difference(&near).unwrap()) / expected - 1.0).abs() < 1e-6);
            let (_, direct) = continuous(&StateMatrix::Diagonal(vec![-a]), &one, &one, 1e-3 / a);
            assert_eq!(norm(&direct), f64::INFINITY);
            assert!(norm(&direct.difference(&direct).unwrap()) < 1e-13 * norm(&image));
        }
        let a = StateMatrix::Dense(Mat::from_fn(2, 2, |i, j| [[-1.0, 1.0], [0.0, -4.0]][i][j]));
        let (b, c) = (Mat::from_fn(2, 1, |i, _| i as f64), Mat::from_fn(1, 2, |_, j| 1.0 - j as f64));
        let (map, image) = continuous(&a, &b, &c, 0.0);
        let factors = GramianFactors::analytic(&image).unwrap();
        let found =
            h2_norm_in(Some(map), &image, DirectTerm::Known(false), |system| h2_norm_by(system, &factors)).unwrap();
        assert!((found * 40.0_f64.sqrt() - 1.0).abs() < 1e-13, "{found}");
    }

    /// The product of `p / (s + p)` as a chain of integrators, whose coefficients are 20 powers of ten apart, and by its modes.
    #[test]
    fn a_chain_of_integrators_has_the_norm_of_its_modes() {
        let poles = [1.0, 10.0, 100.0, 1e3, 1e4_f64];
        let n = poles.len();
        // Of the product of (s + p), from the constant on.
        let mut coefficients = vec![1.0];
        for p in poles {
            let shifted = std::iter::once(0.0).chain(coefficients.iter().copied());
            let scaled = coefficients.iter().map(|c| c * p).chain([0.0]);
            coefficients = shifted.zip(scaled).map(|(a, b)| a + b).collect();
        }
        let size: f64 = poles.iter().product();
        let chain = StateMatrix::Dense(Mat::from_fn(n, n, |i, j| match (i, j) {
            (i, j) if i + 1 == n => -coefficients[j],
            (i, j) if j == i + 1 => 1.0,
            _ => 0.0,
        }));
        let (b, c) = (
            Mat::from_fn(n, 1, |i, _| f64::from(u8::from(i + 1 == n))),
            Mat::from_fn(1, n, |_, j| if j == 0 { size } else { 0.0 }),
        );
        let residue = |i: usize| size / (0..n).filter(|j| *j != i).map(|j| poles[j] - poles[i]).product::<f64>();
        let pairs = || (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
        let expected = pairs().map(|(i, j)| residue(i) * residue(j) / (poles[i] + poles[j])).sum::<f64>().sqrt();
        let map = Bilinear::of(&chain).unwrap();
        for unit in [1.0, 1e12, 1e-12, 1e60, 1e-60_f64] {
            let units: Vec<f64> = (0..n).map(|i| unit.powf(i as f64 / n as f64)).collect();
            let dense = chain.to_dense();
            let a = StateMatrix::Dense(Mat::from_fn(n, n, |i, j| dense[(i, j)] * units[i] / units[j]));
            let (b, c) =
                (Mat::from_fn(n, 1, |i, _| b[(i, 0)] * units[i]), Mat::from_fn(1, n, |_, j| c[(0, j)] / units[j]));
            let (a, b, c, d) = map.discrete(&a, b.as_ref(), c.as_ref(), None).unwrap();
            let image = LinearSystem::new(a, b, c, Some(d)).unwrap();
            let found = h2_norm_in(Some(map), &image, DirectTerm::Known(false), h2_norm).unwrap();
            assert!((found / expected - 1.0).abs() < 1e-6, "{unit}: {found} {expected}");
        }
    }

    /// Two systems whose states have units that are 300 powers of ten apart, of few and of many states.
    #[test]
    fn units_of_states_change_nothing() {
        for d in [4, 120] {
            let dense = |unit: f64| {
                let a = Mat::from_fn(d, d, |i, j| match i.abs_diff(j) {
                    0 => 0.4 + 0.3 * (i as f64).sin(),
                    1 => 0.1,
                    _ => 0.0,
                });
                let b = Mat::from_fn(d, 1, |i, _| unit * (1.0 + i as f64).cos());
                let c = Mat::from_fn(1, d, |_, j| (2.0 + j as f64).cos() / unit);
                LinearSystem::new(StateMatrix::Dense(a), b, c, None).unwrap()
            };
            let expected = h2_norm(&dense(1.0).difference(&dense(1.0).scaled(0.5)).unwrap()).unwrap();
            let found = h2_norm(&dense(1e-150).difference(&dense(1e150).scaled(0.5)).unwrap()).unwrap();
            assert!((found / expected - 1.0).abs() < 1e-9, "{d}: {found} {expected}");
        }
    }

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
