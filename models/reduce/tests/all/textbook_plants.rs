//! Plants of which theory tells the numbers: integrators, slow poles, damping that hardly is any, gains of any size.

use faer::Mat;
use faer::linalg::solvers::DenseSolveCore;
use hankel_files::system_file::{StoredSystem, Time};
use hankel_lti::weighted::Weights;
use hankel_lti::{GramianSource, Method, StateMatrix};
use hankel_reduce::{Gramians, LayerAnalysis, Plant, verify_layer, weigh_with};

/// One input, one output.
fn stored(a: StateMatrix, b: &[f64], c: &[f64], time: Time) -> StoredSystem {
    let (b, c) = (Mat::from_fn(b.len(), 1, |i, _| b[i]), Mat::from_fn(1, c.len(), |_, j| c[j]));
    StoredSystem { a, written: None, turned: Vec::new(), b, c, d: None, time }
}

fn dense(n: usize, entry: impl Fn(usize, usize) -> f64) -> StateMatrix {
    StateMatrix::Dense(Mat::from_fn(n, n, entry))
}

fn analysed(stored: &StoredSystem) -> (Plant, LayerAnalysis) {
    let plant = Plant::new(stored).unwrap();
    let layer = plant.analyse("system").unwrap();
    (plant, layer)
}

#[track_caller]
fn close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    let off = found
        .iter()
        .zip(expected)
        .map(|(found, expected)| (found / expected - 1.0).abs())
        .max_by(f64::total_cmp)
        .unwrap_or(0.0);
    assert!(off < tolerance, "{found:?} {expected:?}");
}

/// The values of the sum of `c / (s + p)`.
fn of_fractions(poles: &[f64], residues: &[f64]) -> Vec<f64> {
    let a = StateMatrix::Diagonal(poles.iter().map(|p| -p).collect());
    let (_, layer) = analysed(&stored(a, &vec![1.0; poles.len()], residues, Time::Continuous));
    layer.spectrum.values().to_vec()
}

/// Rounding makes k poles out of a k-fold integrator, which were once taken for the slowest of the others.
#[test]
fn integrators_of_any_order_are_kept() {
    for k in 1..=4 {
        for (p, q) in [(1.0, 2.0), (1.0, 4.0), (3.0, 0.7)] {
            // 1 / (s^k (s + p) (s + q)) in controller form.
            let n = k + 2;
            let first = move |j: usize| [-(p + q), -p * q].get(j).copied().unwrap_or(0.0);
            let a = dense(n, |i, j| if i == 0 { first(j) } else { f64::from(u8::from(j + 1 == i)) });
            let unit = |at: usize| (0..n).map(|i| f64::from(u8::from(i == at))).collect::<Vec<_>>();
            let (plant, layer) = analysed(&stored(a, &unit(0), &unit(n - 1), Time::Continuous));
            assert_eq!(plant.kept.a.states(), k);
            let residue = |at: f64, other: f64| 1.0 / ((-at).powi(k as i32) * (other - at));
            let expected = of_fractions(&[p, q], &[residue(p, q), residue(q, p)]);
            close(layer.spectrum.values(), &expected, 1e-6);
            for name in ["bt", "spa"] {
                let (small, whole) =
                    plant.reduce(&layer, Method::named(name).unwrap(), 1, &Gramians::Analytic).unwrap();
                assert_eq!((small.certificate.holds, whole.a.states()), (Some(true), k + 1));
                close(&[small.certificate.hinf_error], &[2.0 * expected[1]], 1e-3);
            }
        }
    }
}

/// `1 / (s^2 (s + p) (s + 2 p))` in coordinates in which nothing is 0.
#[test]
fn a_double_integrator_is_told_from_slow_lags() {
    let h = |i: usize, j: usize| {
        if [(1, 1), (1, 3), (2, 2), (2, 3), (3, 1), (3, 2)].contains(&(i, j)) { -0.5 } else { 0.5 }
    };
    for p in [0.1, 0.05, 0.02_f64] {
        let chain = |i: usize, j: usize| match (i, j) {
            (2, 2) => -p,
            (3, 3) => -2.0 * p,
            _ => f64::from(u8::from(j == i + 1)),
        };
        let entry = |i: usize, j: usize| -> f64 {
            (0..4).flat_map(|k| (0..4).map(move |l| (k, l))).map(|(k, l)| h(i, k) * chain(k, l) * h(l, j)).sum()
        };
        let column = |j: usize| (0..4).map(|i| h(i, j)).collect::<Vec<_>>();
        let (plant, layer) = analysed(&stored(dense(4, entry), &column(3), &column(0), Time::Continuous));
        assert_eq!(plant.kept.a.states(), 2, "{p}");
        let expected = of_fractions(&[p, 2.0 * p], &[p.powi(-3), -0.25 * p.powi(-3)]);
        close(layer.spectrum.values(), &expected, 1e-4);
    }
}

#[test]
fn h2_norms_are_infinite_where_there_is_a_direct_term() {
    let mut direct = stored(StateMatrix::Diagonal(vec![-1e-9]), &[1.0], &[1.0], Time::Continuous);
    direct.d = Some(Mat::from_fn(1, 1, |_, _| 0.9));
    let slow = stored(StateMatrix::Diagonal(vec![-1e-9, -1.0]), &[1.0, 1.0], &[1.0, 1.0], Time::Continuous);
    for (system, order, method, error_is_finite) in
        [(&direct, 0, "bt", true), (&slow, 1, "spa", false), (&slow, 1, "bt", true)]
    {
        let (plant, layer) = analysed(system);
        let (small, _) = plant.reduce(&layer, Method::named(method).unwrap(), order, &Gramians::Analytic).unwrap();
        let norms = [small.certificate.h2_norm, small.certificate.h2_error].map(f64::is_finite);
        assert_eq!(norms, [system.d.is_none(), error_is_finite], "{method}");
    }
}

/// The weight is 11 powers of ten slower than the plant, whose rate its image is made with.
#[test]
fn weighted_errors_are_no_larger_than_their_upper_ends() {
    let (plant, layer) = analysed(&stored(StateMatrix::Diagonal(vec![-1e9]), &[1e9], &[1.0], Time::Continuous));
    let weight = dense(2, |i, j| [[0.0, 1.0], [-1e-5, -0.011]][i][j]);
    let weight = plant.weight(&stored(weight, &[0.0, 1.0], &[1.0, 0.0], Time::Continuous)).unwrap();
    let weights = Weights { input: Some(weight), output: None };
    let layer = weigh_with(layer, GramianSource::Analytic, &weights).unwrap();
    let (small, _) = plant.reduce(&layer, Method::default(), 0, &Gramians::Analytic).unwrap();
    let upper = small.certificate.weighted.unwrap().hinf_error_upper;
    assert!((1e5..1.1e5).contains(&upper), "{upper}");
}

/// The largest value is off by the rounding of the slowest pole, the others are not.
#[test]
fn a_slow_pole_hides_no_values() {
    let slow = |pole: f64| {
        let t = [[1.0, 0.5, 0.2, 0.1], [0.3, 1.0, 0.4, 0.2], [0.1, 0.2, 1.0, 0.3], [0.2, 0.1, 0.3, 1.0]];
        let t = Mat::from_fn(4, 4, |i, j| t[i][j]);
        let poles = [pole, 0.9, 0.5, -0.3];
        let modes = Mat::from_fn(4, 4, |i, j| if i == j { poles[i] } else { 0.0 });
        let a = &t * modes * t.partial_piv_lu().inverse();
        stored(StateMatrix::Dense(a), &[1.0; 4], &[1.0, 0.5, -0.4, 1.0], Time::Unstated)
    };
    for pole in [1.0 - 1e-5, 1.0 - 1e-7, 1.0 - 1e-8] {
        let (_, layer) = analysed(&slow(pole));
        assert_eq!(layer.spectrum.rank(), 4, "{pole}");
        close(&layer.spectrum.values()[1..], &[2.58, 0.6956, 0.0593], 2e-2);
    }
}

/// Three masses between springs, with a hundred-millionth of critical damping.
#[test]
fn lightly_damped_modes_are_kept_as_they_are() {
    let springs = [[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 2.0]];
    let a = dense(6, |i, j| match (i < 3, j < 3) {
        (true, true) => 0.0,
        (true, false) => f64::from(u8::from(i + 3 == j)),
        (false, of_place) => springs[i - 3][j % 3] * if of_place { -1.0 } else { -1e-8 },
    });
    let system = stored(a, &[0.0, 0.0, 0.0, 1.0, 0.0, 0.0], &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0], Time::Continuous);
    let (plant, layer) = analysed(&system);
    for name in ["modal", "energy"] {
        let (small, _) = plant.reduce(&layer, Method::named(name).unwrap(), 4, &Gramians::Analytic).unwrap();
        assert_eq!(small.certificate.holds, Some(true), "{name}");
        assert!(small.certificate.hinf_error < 0.1 * small.certificate.hinf_norm, "{name}");
    }
}

/// A without loops does not tell the units of its states.
#[test]
fn the_size_of_the_gain_changes_nothing() {
    let errors = |name: &str, gain: f64| {
        let a = dense(4, |i, j| if i == j { 0.9 } else { f64::from(u8::from(i < j)) });
        let (plant, layer) = analysed(&stored(a, &[gain; 4], &[1.0; 4], Time::Unstated));
        let (small, _) = plant.reduce(&layer, Method::named(name).unwrap(), 2, &Gramians::Analytic).unwrap();
        assert_eq!(small.certificate.holds, Some(true), "{name} {gain:e}");
        small.certificate.hinf_error / gain
    };
    for name in ["bt", "bfsr", "spa"] {
        let expected = errors(name, 1.0);
        for exponent in [-70, -100, -240, 200] {
            let found = errors(name, 2_f64.powi(exponent));
            assert!((found / expected - 1.0).abs() < 1e-6, "{name} 2^{exponent}: {found} {expected}");
        }
    }
}

/// Hankel singular values of `b c / (z - a)` are `b c / (1 - a^2)`; here far from each other in their sizes.
#[test]
fn poles_in_files_are_as_slow_as_they_are() {
    let a = StateMatrix::Diagonal(vec![1.0 - 1e-9, 0.5]);
    let (plant, layer) = analysed(&stored(a, &[1e-3, 1.0], &[1e-3, 1.0], Time::Unstated));
    close(layer.spectrum.values(), &[500.0, 4.0 / 3.0], 1e-5);
    let (small, _) = plant.reduce(&layer, Method::default(), 1, &Gramians::Analytic).unwrap();
    assert_eq!((small.certificate.holds, small.certificate.clamped_poles), (Some(true), 0));
    close(&[small.certificate.error_bound.unwrap()], &[8.0 / 3.0], 1e-5);
}

/// Slow poles that are kept apart have no bound, whatever the method guarantees elsewhere.
#[test]
fn reductions_of_slow_poles_are_verified() {
    let poles = [0.9, 1.0 - 2e-8, -1.0 + 3e-8, -1.0 + 4e-9, 0.3, 0.999, -1.0 + 1.4e-5];
    let a = || StateMatrix::Diagonal(poles.to_vec());
    let c = [-0.4, 0.3, -0.4, 0.6, 0.8, -0.1, 0.2];
    let mut verified = 0;
    for b in [[-0.1, 0.0, 0.7, -0.7, 0.0, 1.1, 0.0], [-0.1, 0.2, 0.7, -0.7, 0.3, 1.1, 0.4]] {
        let (plant, layer) = analysed(&stored(a(), &b, &c, Time::Unstated));
        for &method in Method::ALL {
            for order in 0..poles.len() {
                let Ok((small, _)) = plant.reduce(&layer, method, order, &Gramians::Analytic) else { continue };
                let found = verify_layer(&layer, &small.system, 1.0, Some(&small.certificate)).unwrap();
                assert_eq!(found.problems, [""; 0], "{}, order {order}", method.name());
                verified += 1;
            }
        }
    }
    assert!(verified > 80, "{verified} of 112");
}

/// What no input reaches is no state of the result.
#[test]
fn slow_poles_without_an_input_are_not_kept() {
    let a = StateMatrix::Diagonal(vec![1.0 - 1e-9, 0.5, -1.0 + 1e-9]);
    let (plant, layer) = analysed(&stored(a, &[0.0, 1.0, 1.0], &[1.0, 1.0, 1.0], Time::Unstated));
    for name in ["bt", "hankel", "spa"] {
        let (small, _) = plant.reduce(&layer, Method::named(name).unwrap(), 2, &Gramians::Analytic).unwrap();
        assert!(small.certificate.hinf_error < 1e-6, "{name}: {}", small.certificate.hinf_error);
    }
}
