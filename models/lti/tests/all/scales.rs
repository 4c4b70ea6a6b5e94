//! Gains of any size: norms, enclosures and Hankel singular values follow the scale of B and C.

use faer::Mat;
use hankel_lti::modal::to_modal;
use hankel_lti::norms::{FrequencyResponse, h2_norm, hinf_norm};
use hankel_lti::{GramianFactors, HankelSpectrum, LinearSystem, Method, Mode, StateMatrix, reduce};

fn system(a: &StateMatrix, of_b: f64, of_c: f64) -> LinearSystem {
    let d = a.states();
    let b = Mat::from_fn(d, 2, |i, j| of_b * (1.0 + (3 * i + 5 * j) as f64).sin());
    let c = Mat::from_fn(2, d, |i, j| of_c * (2.0 + (7 * i + 2 * j) as f64).cos());
    LinearSystem::new(a.clone(), b, c, None).unwrap()
}

fn values(system: &LinearSystem) -> Vec<f64> {
    let (norm, enclosure) = hinf_norm(&FrequencyResponse::new(system)).unwrap();
    let factors = GramianFactors::analytic(system).unwrap();
    let mut values = vec![norm.value, enclosure.upper, h2_norm(system).unwrap()];
    values.extend(HankelSpectrum::new(&factors).unwrap().values());
    values
}

#[test]
fn norms_follow_the_scale_of_the_system() {
    let modal = StateMatrix::Modal(vec![Mode::Real(0.9), Mode::Pair { radius: 0.99, angle: 1.0 }, Mode::Real(-0.3)]);
    let diagonal = StateMatrix::Diagonal(vec![0.999, 0.7, -0.2, 0.1]);
    let dense = StateMatrix::Dense(modal.to_dense() + Mat::from_fn(4, 4, |i, j| if i < j { 0.01 } else { 0.0 }));
    for a in [modal, diagonal, dense] {
        let expected = values(&system(&a, 1.0, 1.0));
        for exponent in [-498, -133, 133, 498] {
            let factor = 2_f64.powi(exponent);
            let found = values(&system(&a, factor, factor));
            for (found, expected) in found.iter().zip(&expected) {
                let expected = expected * 2_f64.powi(exponent) * 2_f64.powi(exponent);
                assert!((found - expected).abs() <= 1e-13 * expected, "{exponent}: {found:e} {expected:e}");
            }
        }
    }
}

/// A reduced system is in balanced units, whatever those of the full one: their difference mixes both.
#[test]
fn units_of_the_states_change_no_norm() {
    let jordan = Mat::from_fn(6, 6, |i, j| {
        if i == j {
            0.65
        } else if j == i + 1 {
            1.0
        } else {
            0.0
        }
    });
    let a = StateMatrix::Dense(jordan);
    let error = |exponent: i32| {
        let full = system(&a, 2_f64.powi(exponent), 2_f64.powi(-exponent));
        let spectrum = HankelSpectrum::new(&GramianFactors::analytic(&full).unwrap()).unwrap();
        let small = reduce(&full, &spectrum, Method::default(), 3).unwrap();
        let difference = full.difference(&small.system).unwrap();
        let (norm, enclosure) = hinf_norm(&FrequencyResponse::new(&difference)).unwrap();
        [norm.value, enclosure.upper, h2_norm(&difference).unwrap(), small.bound.unwrap()]
    };
    let expected = error(0);
    for exponent in [-498, -133, 133, 498] {
        for (found, expected) in error(exponent).iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-6, "{exponent}: {found:e} {expected:e}");
        }
    }
}

/// SLICOT's EQUIL = 'S': each state in units of its own, up to 1e16 apart.
#[test]
fn units_of_single_states_change_no_method() {
    const D: usize = 12;
    let coupled =
        Mat::from_fn(
            D,
            D,
            |i, j| {
                if i == j { 0.9 - 0.07 * i as f64 } else { 0.05 * (1.0 + (3 * i + 5 * j) as f64).sin() }
            },
        );
    let plain = system(&StateMatrix::Dense(coupled), 1.0, 1.0);
    let unit = |i: usize| 2_f64.powi([-27, 13, 0, 26, -8][i % 5]);
    let a = plain.a().to_dense();
    let apart = LinearSystem::new(
        StateMatrix::Dense(Mat::from_fn(D, D, |i, j| a[(i, j)] * unit(i) / unit(j))),
        Mat::from_fn(D, 2, |i, j| plain.b()[(i, j)] * unit(i)),
        Mat::from_fn(2, D, |i, j| plain.c()[(i, j)] / unit(j)),
        None,
    )
    .unwrap();
    let of = |full: &LinearSystem, method: Method| {
        let spectrum = HankelSpectrum::new(&GramianFactors::analytic(full).unwrap()).unwrap();
        let small = reduce(full, &spectrum, method, 5).unwrap().system;
        let error = hinf_norm(&FrequencyResponse::new(&full.difference(&small).unwrap())).unwrap().0.value;
        [error, FrequencyResponse::new(&small).gain(0.0).unwrap()]
    };
    for name in ["bt", "bfsr", "spa", "hankel"] {
        let method = Method::named(name).unwrap();
        for (found, expected) in of(&apart, method).iter().zip(of(&plain, method)) {
            assert!((found / expected - 1.0).abs() < 1e-8, "{name}: {found:e} {expected:e}");
        }
    }
}

/// Poles at 0, of which rounding leaves any small number, say nothing of the units of states: three equal lags, seen in discrete time.
#[test]
fn poles_near_zero_are_no_units() {
    let lags = |pole: f64| {
        let a = Mat::from_fn(3, 3, |i, j| match i.cmp(&j) {
            std::cmp::Ordering::Equal => pole * (1.0 + 0.1 * i as f64),
            std::cmp::Ordering::Greater => 0.5_f64.powi((i - j) as i32),
            std::cmp::Ordering::Less => 0.0,
        });
        system(&StateMatrix::Dense(a), 1.0, 1.0)
    };
    for name in ["bt", "bfsr", "spa", "svd"] {
        let method = Method::named(name).unwrap();
        let of = |pole: f64| {
            let full = lags(pole);
            let spectrum = HankelSpectrum::new(&GramianFactors::analytic(&full).unwrap()).unwrap();
            let small = reduce(&full, &spectrum, method, 2).unwrap().system;
            let error = hinf_norm(&FrequencyResponse::new(&full.difference(&small).unwrap())).unwrap().0.value;
            [error, FrequencyResponse::new(&small).gain(0.0).unwrap()]
        };
        for pole in [1e-17, 1e-16, 1e-12, 1e-8] {
            for (found, expected) in of(pole).iter().zip(of(0.0)) {
                assert!((found / expected - 1.0).abs() < 1e-6, "{name}, {pole:e}: {found:e} {expected:e}");
            }
        }
    }
}

/// Two poles that are far apart have two vectors, whatever the states are counted in.
#[test]
fn states_in_distant_units_have_a_modal_form() {
    let a = Mat::from_fn(2, 2, |i, j| [[0.5, 2e12], [1e-14, 0.3]][i][j]);
    let b = Mat::from_fn(2, 1, |i, _| [5e12, 1.0][i]);
    let c = Mat::from_fn(1, 2, |_, j| [1e-13, 1.0][j]);
    let system = LinearSystem::new(StateMatrix::Dense(a), b, c, None).unwrap();
    let modal = to_modal(&system).unwrap();
    assert!(modal.condition < 10.0 && modal.deviation < 1e-12, "{} {}", modal.condition, modal.deviation);
    // 0.4 -+ sqrt(0.01 + 0.02).
    let root = 0.03_f64.sqrt();
    let modes = modal.system.a().modes().unwrap();
    for (mode, expected) in modes.iter().zip([0.4 + root, 0.4 - root]) {
        assert!(matches!(mode, Mode::Real(pole) if (pole - expected).abs() < 1e-14), "{modes:?}");
    }
    let back = &modal.inverse * &modal.transformation;
    for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let unit = [5e12, 1.0];
        let expected = f64::from(u8::from(i == j));
        assert!((back[(i, j)] / unit[i] * unit[j] - expected).abs() < 1e-13, "{i} {j}");
    }
}
