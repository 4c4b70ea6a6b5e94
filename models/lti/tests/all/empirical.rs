//! Empirical and finite-horizon Gramians (R7).

use crate::common::{Golden, row_major};
use faer::Mat;
use hankel_lti::empirical::controllability_factor;
use hankel_lti::{GramianFactors, HankelSpectrum, LinearSystem, StateMatrix, methods, reduce};

fn case() -> (Golden, LinearSystem) {
    let case = Golden::load("hrm", "empirical_gramian");
    let a = StateMatrix::Diagonal(case.values("a"));
    let system = LinearSystem::new(a, case.matrix("b"), case.matrix("c"), None).unwrap();
    (case, system)
}

/// States of every sequence of the case from rest, [N T, d].
fn trajectories(case: &Golden, system: &LinearSystem) -> Mat<f64> {
    let shape = case.shape("h");
    let (sequences, steps, width) = (shape[0], shape[1], shape[2]);
    let inputs = case.values("h");
    let mut states = Mat::zeros(sequences * steps, system.states());
    for sequence in 0..sequences {
        let mut state = Mat::zeros(system.states(), 1);
        for step in 0..steps {
            let row = sequence * steps + step;
            let input = Mat::from_fn(width, 1, |j, _| inputs[row * width + j]);
            state = system.a().apply(state.as_ref()) + system.b() * input;
            for i in 0..system.states() {
                states[(row, i)] = state[(i, 0)];
            }
        }
    }
    states
}

#[test]
fn gramians_from_data_match_the_reference() {
    let (case, system) = case();
    let states = trajectories(&case, &system);
    let steps = case.shape("h")[1];
    let factors = GramianFactors::empirical(&system, states.as_ref(), steps).unwrap();
    case.check("Wc_emp", &row_major(&factors.controllability()));
    case.check("Wo_T", &row_major(&factors.observability()));
    let analytic = GramianFactors::analytic(&system).unwrap();
    case.check("Wc", &row_major(&analytic.controllability()));
    case.check("Wo", &row_major(&analytic.observability()));
    let gap = (factors.controllability() - analytic.controllability()).norm_l2() / analytic.controllability().norm_l2();
    let want = case.json["relative_gap_of_empirical_to_analytic"].as_f64().unwrap();
    assert!(gap < 2.0 * want, "white input of unit covariance gives nearly the analytic Gramian: {gap}");
}

#[test]
fn a_reduction_by_data_follows_what_the_data_excites() {
    // Data that never moves the slowest state: it is dropped although the analytic Gramians rank it first.
    let a = StateMatrix::Diagonal(vec![0.99, 0.5, 0.2]);
    let system = LinearSystem::new(a, Mat::identity(3, 3), Mat::identity(3, 3), None).unwrap();
    let states = Mat::from_fn(30, 3, |i, j| if j == 0 { 0.0 } else { ((i * (j + 1)) as f64).sin() });
    let factors = GramianFactors::empirical(&system, states.as_ref(), 30).unwrap();
    let spectrum = HankelSpectrum::new(&factors).unwrap();
    assert_eq!(spectrum.rank(), 2);
    let reduced = reduce(&system, &spectrum, methods::bt::METHOD, 2).unwrap().system;
    let mut poles: Vec<f64> = reduced.eigenvalues().iter().map(|l| l.re).collect();
    poles.sort_by(f64::total_cmp);
    assert!((poles[0] - 0.2).abs() < 1e-10 && (poles[1] - 0.5).abs() < 1e-10, "{poles:?}");
}

#[test]
fn nothing_recorded_and_nonsense_are_refused() {
    let error = |m: Mat<f64>| controllability_factor(3, m.as_ref()).unwrap_err().to_string();
    assert!(error(Mat::zeros(0, 3)).contains("no recorded states"));
    assert!(error(Mat::zeros(5, 2)).contains("(5, 2)"));
    assert!(error(Mat::from_fn(2, 3, |_, j| if j == 1 { f64::NAN } else { 0.0 })).contains("column 1"));
    let (_, system) = case();
    assert!(GramianFactors::time_limited(&system, 0).unwrap_err().to_string().contains("at least 1 step"));
}

/// With the exact observability Gramian a truncation stays stable, whatever states were recorded; with white noise it is the usual one.
#[test]
fn recorded_states_never_cost_stability() {
    // Numbers in (-1, 1) that look random: the fractional part of a steep sine.
    let number = |seed: usize, i: usize| (1e4 * ((seed * 997 + i) as f64 + 0.5).sin()).fract();
    for seed in 0..60 {
        let d = 3 + seed % 7;
        let poles: Vec<f64> = (0..d).map(|i| (1.0 - 10_f64.powf(-3.0 * number(seed, i).abs())).max(0.01)).collect();
        let b = Mat::from_fn(d, 2, |i, j| number(seed, 100 + 2 * i + j));
        let c = Mat::from_fn(2, d, |i, j| number(seed, 200 + d * i + j));
        let system = LinearSystem::new(StateMatrix::Diagonal(poles), b, c, None).unwrap();
        let analytic = GramianFactors::analytic(&system).unwrap();
        let usual = HankelSpectrum::new(&analytic).unwrap();
        let same = HankelSpectrum::new(&GramianFactors::recorded(&system, analytic.lc).unwrap()).unwrap();
        for (a, b) in same.values().iter().zip(usual.values()) {
            assert!((a - b).abs() <= 1e-12 * usual.values()[0], "{a} {b}");
        }
        // A Gramian that belongs to no input: any directions, of any size.
        let lc = Mat::from_fn(d, 1 + seed % d, |i, j| number(seed, 300 + d * i + j) * 10_f64.powi((j % 5) as i32 - 2));
        let spectrum = HankelSpectrum::new(&GramianFactors::recorded(&system, lc).unwrap()).unwrap();
        for order in 1..=spectrum.rank().min(d - 1) {
            let small = reduce(&system, &spectrum, methods::Method::default(), order).unwrap().system;
            let radius = small.spectral_radius();
            assert!(radius < 1.0, "seed {seed}, order {order}: {radius}");
        }
        let wrong = GramianFactors::recorded(&system, Mat::zeros(d + 1, 1)).unwrap_err().to_string();
        assert!(wrong.contains("the factor of recorded states"), "{wrong}");
    }
}
