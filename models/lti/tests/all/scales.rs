//! Gains of any size: norms, enclosures and Hankel singular values follow the scale of B and C.

use faer::Mat;
use hankel_lti::norms::{FrequencyResponse, h2_norm, hinf_norm};
use hankel_lti::{GramianFactors, HankelSpectrum, LinearSystem, Mode, StateMatrix};

fn system(a: &StateMatrix, factor: f64) -> LinearSystem {
    let d = a.states();
    let b = Mat::from_fn(d, 2, |i, j| factor * (1.0 + (3 * i + 5 * j) as f64).sin());
    let c = Mat::from_fn(2, d, |i, j| factor * (2.0 + (7 * i + 2 * j) as f64).cos());
    LinearSystem::new(a.clone(), b, c, None).unwrap()
}

fn values(system: &LinearSystem) -> Vec<f64> {
    let (norm, enclosure) = hinf_norm(&FrequencyResponse::new(system).unwrap()).unwrap();
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
        let expected = values(&system(&a, 1.0));
        for exponent in [-498, -133, 133, 498] {
            let found = values(&system(&a, 2_f64.powi(exponent)));
            for (found, expected) in found.iter().zip(&expected) {
                let expected = expected * 2_f64.powi(exponent) * 2_f64.powi(exponent);
                assert!((found - expected).abs() <= 1e-13 * expected, "{exponent}: {found:e} {expected:e}");
            }
        }
    }
}
