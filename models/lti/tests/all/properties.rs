//! What must hold for every stable system: 500 random ones here, 10,000 with `cargo test -- --ignored`.

use faer::Mat;
use hankel_lti::certificate::bound_holds;
use hankel_lti::modal::{to_dense, to_modal};
use hankel_lti::norms::{FrequencyResponse, deviation, hinf_norm, hinf_sweep};
use hankel_lti::{GramianFactors, HankelSpectrum, LinearSystem, Mode, StateMatrix, methods, reduce};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

/// How a random matrix is degraded.
#[derive(Debug, Clone, Copy)]
enum Defect {
    None,
    ZeroRow,
    RankOne,
    Zero,
    Tiny,
}

#[derive(Debug, Clone)]
struct Recipe {
    poles: Vec<Mode>,
    repeat: bool,
    dense: bool,
    inputs: usize,
    outputs: usize,
    defects: (Defect, Defect),
    numbers: Vec<f64>,
}

fn mode() -> impl Strategy<Value = Mode> {
    // Rates from a few steps to a million, so that poles crowd at 1.
    let radius = (-6.0..0.7f64).prop_map(|x| (-(10f64.powf(x))).exp());
    prop_oneof![
        4 => radius.clone().prop_map(Mode::Real),
        1 => radius.clone().prop_map(|r| Mode::Real(-r)),
        1 => Just(Mode::Real(0.0)),
        2 => (radius, 0.01..3.13f64).prop_map(|(radius, angle)| Mode::Pair { radius, angle }),
    ]
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let defect = prop_oneof![
        6 => Just(Defect::None),
        1 => Just(Defect::ZeroRow),
        1 => Just(Defect::RankOne),
        1 => Just(Defect::Tiny),
    ];
    let defect = prop_oneof![20 => defect, 1 => Just(Defect::Zero)];
    (
        prop::collection::vec(mode(), 1..7),
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.3),
        1..5usize,
        1..5usize,
        (defect.clone(), defect),
        prop::collection::vec(-1.0..1.0f64, 300),
    )
        .prop_map(|(poles, repeat, dense, inputs, outputs, defects, numbers)| Recipe {
            poles,
            repeat,
            dense,
            inputs,
            outputs,
            defects,
            numbers,
        })
}

impl Recipe {
    fn system(&self) -> LinearSystem {
        let mut modes = self.poles.clone();
        if self.repeat {
            modes = vec![modes[0]; modes.len()];
        }
        if self.dense {
            // With 1e-6 the uncertainty of a dense system's slow poles would leave nothing to be tested.
            for mode in &mut modes {
                let (radius, angle) = mode.polar();
                *mode = Mode::from_polar(radius.min(1.0 - 1e-4), angle);
            }
        }
        let a = if modes.iter().all(|m| m.states() == 1) {
            StateMatrix::Diagonal(modes.iter().map(|m| m.pole().value().re).collect())
        } else {
            StateMatrix::Modal(modes)
        };
        let d = a.states();
        let mut b = self.matrix(0, d, self.inputs, self.defects.0);
        let mut c = self.matrix(97, d, self.outputs, self.defects.1).transpose().to_owned();
        let a = if self.dense {
            // A random, moderately conditioned change of coordinates.
            let t =
                Mat::from_fn(d, d, |i, j| f64::from(u8::from(i == j)) + 0.3 * self.numbers[150 + (i * d + j) % 150]);
            let lu = t.partial_piv_lu();
            use faer::linalg::solvers::Solve;
            let dense = &t * a.to_dense() * lu.solve(Mat::<f64>::identity(d, d));
            b = &t * b;
            c = c * lu.solve(Mat::<f64>::identity(d, d));
            StateMatrix::Dense(dense)
        } else {
            a
        };
        // A pole within rounding of 1 may cross it in the change of coordinates: such a draw is not a stable system.
        LinearSystem::new(a, b, c, None).unwrap_or_else(|_| {
            LinearSystem::new(StateMatrix::Diagonal(vec![0.5]), Mat::identity(1, 1), Mat::identity(1, 1), None).unwrap()
        })
    }

    fn matrix(&self, offset: usize, rows: usize, cols: usize, defect: Defect) -> Mat<f64> {
        let at = |i: usize, j: usize| self.numbers[(offset + i * cols + j) % self.numbers.len()];
        Mat::from_fn(rows, cols, |i, j| match defect {
            Defect::None => at(i, j),
            Defect::ZeroRow => at(i, j) * f64::from(u8::from(i != 0)),
            Defect::RankOne => at(i, 0) * at(0, j),
            Defect::Zero => 0.0,
            Defect::Tiny => at(i, j) * 1e-8,
        })
    }
}

/// Size of the rounding errors in Hankel singular values: relative to the factors, whose product may cancel, and for dense A
/// multiplied by how far a rounding of A moves its slowest pole towards the circle.
fn noise(system: &LinearSystem) -> f64 {
    let factors = GramianFactors::analytic(system).unwrap();
    let size = factors.lc.norm_l2() * factors.lo.norm_l2();
    1e-14 * size * if system.a().modes().is_some() { 1.0 } else { 10.0 * amplification(system) }
}

/// A pole's angle may be a rounding away from a point of the uniform grid, with the peak on either side of both.
#[test]
fn a_peak_is_found_beside_two_points_at_nearly_one_angle() {
    for step in 1..24 {
        let exact = std::f64::consts::PI * f64::from(step) / 24.0;
        for angle in [exact, exact.next_up(), exact.next_down()] {
            for output in [-2.0, -0.3, 0.4, 3.0] {
                let a = StateMatrix::Modal(vec![Mode::Pair { radius: 0.8, angle }]);
                let (b, c) = (Mat::from_fn(2, 1, |i, _| [1.0, 0.2][i]), Mat::from_fn(1, 2, |_, j| [1.0, output][j]));
                let g = FrequencyResponse::new(&LinearSystem::new(a, b, c, None).unwrap());
                let (found, tested) = (hinf_sweep(&g).unwrap().value, hinf_norm(&g).unwrap().0.value);
                let dense = (0..=2_000).map(|i| g.gain(std::f64::consts::PI * f64::from(i) / 2_000.0).unwrap());
                let most = dense.max_by(f64::total_cmp).unwrap();
                assert!(
                    found >= most * (1.0 - 1e-9) && tested >= most * (1.0 - 1e-9),
                    "{angle} {output}: {found} {most}"
                );
            }
        }
    }
}

fn spectrum(system: &LinearSystem) -> HankelSpectrum {
    HankelSpectrum::new(&GramianFactors::analytic(system).unwrap()).unwrap()
}

fn check(recipe: &Recipe) -> Result<(), TestCaseError> {
    let system = recipe.system();
    let full = spectrum(&system);
    let sigma = full.values();
    prop_assert!(sigma.windows(2).all(|w| w[0] >= w[1]) && sigma.iter().all(|s| s.is_finite() && *s >= 0.0));
    let norm = hinf_sweep(&FrequencyResponse::new(&system)).unwrap().value;
    // sigma_1 <= ||G|| <= 2 sum sigma: Hankel norm and the bound of truncating everything.
    let noise = noise(&system);
    let slack = 1e-9 * norm + noise;
    if !sigma.is_empty() {
        prop_assert!(sigma[0] <= norm * (1.0 + 1e-6) + slack, "{} {norm}", sigma[0]);
    }
    prop_assert!(norm <= full.bound(0) * (1.0 + 1e-6) + slack);
    for order in 0..=full.rank() {
        for method in [methods::bt::METHOD, if order % 2 == 0 { methods::bfsr::METHOD } else { methods::spa::METHOD }] {
            let reduced =
                reduce(&system, &full, method, order).map_err(|e| TestCaseError::fail(format!("{method:?} {e}")))?;
            prop_assert!(reduced.system.spectral_radius() < 1.0);
            let error = FrequencyResponse::new(&system.difference(&reduced.system).unwrap());
            let (hinf, enclosure) = hinf_norm(&error).unwrap();
            let bound = reduced.bound.unwrap();
            // The reduced system is dense: rounding counts relative to the distance of its poles from the circle. Where the full
            // system is dense, or singular perturbation takes a slow state to be at rest, that of the full poles enters too;
            // where both, it enters twice: what rounding makes of A is multiplied by the inverse of I - A22.
            let rounding = match (system.a().modes(), method.name()) {
                (None, "spa") => 1e-13 * amplification(&system) + 1e-15 * amplification(&system).powi(2),
                (None, _) => 1e-13 * amplification(&system),
                (Some(_), "spa") => 1e-13 + 1e-15 * amplification(&system),
                (Some(_), _) => 1e-13,
            } * amplification(&reduced.system);
            let slack = slack + rounding * norm;
            prop_assert!(hinf.value <= bound * (1.0 + 1e-6) + slack, "{method:?} r={order} {} > {bound}", hinf.value);
            prop_assert!(hinf.value <= enclosure.upper && enclosure.upper <= hinf.value * (1.0 + 1e-6) + slack);
            let next = sigma.get(order).copied().unwrap_or(0.0);
            prop_assert!(hinf.value >= next * (1.0 - 1e-6) - slack, "{method:?} below the lower bound");
            let again = spectrum(&reduced.system);
            for (i, (s, r)) in sigma.iter().zip(again.values()).enumerate() {
                let tolerance = 1e-9 * s + rounding * sigma[0] + noise;
                prop_assert!(*r <= s + tolerance, "{method:?} r={order}: sigma_{i} grew from {s:e} to {r:e}");
                if method == methods::spa::METHOD {
                    prop_assert!((r - s).abs() <= tolerance, "spa r={order}: sigma_{i} {s:e} became {r:e}");
                }
            }
            if order == full.rank() {
                prop_assert!(hinf.value <= full.bound(order) + slack, "full order must reproduce the system");
            }
            if let Ok(modal) = to_modal(&reduced.system) {
                prop_assert!(deviation(&reduced.system, &modal.system).unwrap() <= 1e-8);
            }
        }
    }
    for order in 0..=system.states() {
        if let Ok(reduced) = reduce(&system, &full, methods::modal::METHOD, order) {
            let error = FrequencyResponse::new(&system.difference(&reduced.system).unwrap());
            let error = hinf_sweep(&error).unwrap().value;
            prop_assert!(bound_holds(error, reduced.bound.unwrap(), norm + 1e5 * noise), "modal {order}");
        }
    }
    invariance(&system, &full)
}

proptest! {
    #![proptest_config(Config { cases: 60, failure_persistence: None, ..Config::default() })]
    /// No system of the order is closer in the Hankel norm, and balanced truncation is not closer.
    #[test]
    fn optimal_approximations_reach_the_lower_end(
        poles in prop::collection::vec(prop_oneof![
            (-0.9..0.97f64).prop_map(Mode::Real),
            (0.1..0.97f64, 0.1..3.0f64).prop_map(|(radius, angle)| Mode::Pair { radius, angle }),
        ], 1..6),
        inputs in 1..4usize,
        outputs in 1..4usize,
        numbers in prop::collection::vec(-1.0..1.0f64, 60),
    ) {
        let a = StateMatrix::Modal(poles);
        let d = a.states();
        let at = |i: usize| numbers[i % numbers.len()] + 0.1 * i as f64;
        let b = Mat::from_fn(d, inputs, |i, j| at(i * inputs + j));
        let c = Mat::from_fn(outputs, d, |i, j| at(31 + i * d + j).sin());
        let system = LinearSystem::new(a, b, c, None).unwrap();
        let full = spectrum(&system);
        let sigma = full.values();
        for order in 1..full.rank() {
            let (above, here) = (sigma[order - 1], sigma[order]);
            // Equal values have no optimum of this order, and what is below rounding cannot be reached.
            if here > above * (1.0 - 1e-3) || here < 1e-6 * sigma[0] {
                continue;
            }
            let reduced = reduce(&system, &full, methods::hankel::METHOD, order)
                .map_err(|e| TestCaseError::fail(format!("order {order} of {sigma:?}: {e}")))?;
            prop_assert_eq!(reduced.system.states(), order);
            let error = system.difference(&reduced.system).unwrap();
            let hankel_norm = spectrum(&error).values()[0];
            prop_assert!((hankel_norm / here - 1.0).abs() < 1e-6, "order {}: {} {}", order, hankel_norm, here);
            let hinf = hinf_sweep(&FrequencyResponse::new(&error)).unwrap().value;
            prop_assert!(hinf <= reduced.bound.unwrap() * (1.0 + 1e-6));
            let bt = reduce(&system, &full, methods::bt::METHOD, order).unwrap();
            let bt = spectrum(&system.difference(&bt.system).unwrap()).values()[0];
            prop_assert!(bt >= here * (1.0 - 1e-9));
        }
    }
}

/// Rounding of a pole at distance 1 - |a| from the circle moves everything by this factor.
fn amplification(system: &LinearSystem) -> f64 {
    1.0 / (1.0 - system.spectral_radius())
}

/// The same system with its states in other units; the two states of a pair share one.
fn in_other_units(system: &LinearSystem) -> Option<LinearSystem> {
    let blocks = system.a().modes().map_or(vec![1; system.states()], |m| m.iter().map(|m| m.states()).collect());
    let unit = |block: usize| 2f64.powi([27, -30, 12, -9, 0][block % 5]);
    let units: Vec<f64> = (0..).zip(blocks).flat_map(|(block, states)| vec![unit(block); states]).collect();
    let a = match system.a() {
        StateMatrix::Dense(a) => {
            StateMatrix::Dense(Mat::from_fn(a.nrows(), a.ncols(), |i, j| a[(i, j)] * units[i] / units[j]))
        }
        other => other.clone(),
    };
    let b = Mat::from_fn(system.states(), system.inputs(), |i, j| system.b()[(i, j)] * units[i]);
    let c = Mat::from_fn(system.outputs(), system.states(), |i, j| system.c()[(i, j)] / units[j]);
    LinearSystem::new(a, b, c, None).ok() // rounding may carry a pole near the circle across it
}

/// Hankel singular values do not depend on the coordinates of the state, nor norms on its units.
fn invariance(system: &LinearSystem, full: &HankelSpectrum) -> Result<(), TestCaseError> {
    let d = system.states();
    let rotate = |i: usize, j: usize| {
        // The orthogonal matrix I - 2 v v^T / d with v = (1, ..., 1).
        f64::from(u8::from(i == j)) - 2.0 / d as f64
    };
    let t = Mat::from_fn(d, d, rotate);
    let a = &t * system.a().to_dense() * &t;
    let Ok(turned) = LinearSystem::new(StateMatrix::Dense(a), &t * system.b(), system.c() * &t, None) else {
        return Ok(()); // a pole within rounding of the circle crossed it
    };
    let tolerance = noise(system) + noise(&turned);
    for (a, b) in full.values().iter().zip(spectrum(&turned).values()) {
        prop_assert!((a - b).abs() <= tolerance, "{a:e} {b:e}");
    }
    if let Some(other) = in_other_units(system) {
        let reduced = reduce(system, full, methods::bt::METHOD, full.rank() / 2).unwrap().system;
        let norm = |system: &LinearSystem| hinf_norm(&FrequencyResponse::new(system)).unwrap().0.value;
        let [here, there] = [system, &other].map(|system| norm(&system.difference(&reduced).unwrap()));
        let tolerance = 1e-6 * here + 1e-9 * norm(system) + noise(system);
        prop_assert!((here - there).abs() <= tolerance, "error {here:e} in these units, {there:e} in others");
    }
    Ok(())
}

#[test]
fn states_in_units_far_apart_are_measured_alike() {
    // 1 / (z - 0.5) and 1 / (z - 0.4), side by side.
    let diagonal = |x: f64, y: f64| Mat::from_fn(2, 2, |i, j| if i == j { [x, y][i] } else { 0.0 });
    let poles = StateMatrix::Diagonal(vec![0.5, 0.4]);
    let system = LinearSystem::new(poles, diagonal(1e9, 1e-9), diagonal(1e-9, 1e9), None).unwrap();
    for dense in [false, true] {
        let system = if dense { to_dense(&system).unwrap() } else { system.clone() };
        let full = spectrum(&system);
        let reduced = reduce(&system, &full, methods::bt::METHOD, 1).unwrap().system;
        let (error, check) = hinf_norm(&FrequencyResponse::new(&system.difference(&reduced).unwrap())).unwrap();
        assert!((error.value - 1.0 / 0.6).abs() < 1e-9 && error.value >= full.values()[1], "{error:?}");
        assert!((1.0..1.0 + 1e-6).contains(&(check.upper / error.value)));
    }
}

fn run(cases: u32, rng_seed: RngSeed) {
    let mut runner = TestRunner::new(Config { cases, rng_seed, failure_persistence: None, ..Config::default() });
    runner.run(&recipe(), |recipe| check(&recipe)).unwrap();
}

#[test]
fn reductions_of_random_systems() {
    run(500, RngSeed::Fixed(1));
}

#[test]
#[ignore = "the nightly run: several minutes"]
fn reductions_of_many_random_systems() {
    run(10_000, RngSeed::Random);
}

#[test]
fn conversions_refuse_what_they_cannot_represent() {
    let jordan = Mat::from_fn(2, 2, |i, j| if i == j { 0.5 } else { f64::from(u8::from(j > i)) });
    let ones = Mat::from_fn(2, 1, |_, _| 1.0);
    let system = |a: Mat<f64>| {
        LinearSystem::new(StateMatrix::Dense(a), ones.clone(), ones.transpose().to_owned(), None).unwrap()
    };
    let error = to_modal(&system(jordan)).unwrap_err().to_string();
    assert!(error.contains("modal") && error.contains("condition number"), "{error}");
    let rotation = Mat::from_fn(2, 2, |i, j| if i == j { 0.3 } else { 0.4 * (i as f64 - j as f64) });
    let modal = to_modal(&system(rotation)).unwrap();
    let Some([Mode::Pair { radius, angle }]) =
        modal.system.a().modes().as_deref().map(|m| <[Mode; 1]>::try_from(m).unwrap())
    else {
        panic!("one complex pair")
    };
    assert!((radius - 0.5).abs() < 1e-15 && (angle - f64::atan2(0.4, 0.3)).abs() < 1e-15);
}

#[test]
fn unstable_and_misshapen_systems_are_refused() {
    let ones = |rows, cols| Mat::from_fn(rows, cols, |_, _| 1.0);
    let message = |a, b, c, d| LinearSystem::new(a, b, c, d).unwrap_err().to_string();
    let error = message(StateMatrix::Diagonal(vec![0.5, -1.25]), ones(2, 1), ones(1, 2), None);
    assert!(error.contains("eigenvalue -1.25") && error.contains("state 1"), "{error}");
    let spiral = Mat::from_fn(2, 2, |i, j| if i == j { 0.8 } else { i as f64 - j as f64 });
    let error = message(StateMatrix::Dense(spiral), ones(2, 1), ones(1, 2), None);
    assert!(error.contains("eigenvalue 0.8") && error.contains('i'), "{error}");
    let error = message(StateMatrix::Diagonal(vec![0.5, f64::NAN]), ones(2, 1), ones(1, 2), None);
    assert!(error.contains("A holds NaN at row 1"), "{error}");
    let error = message(StateMatrix::Diagonal(vec![0.5; 2]), ones(3, 1), ones(1, 2), None);
    assert!(error.contains("B has shape (3, 1), expected (2, 1)"), "{error}");
    let error = message(StateMatrix::Diagonal(vec![0.5; 2]), ones(2, 1), ones(1, 2), Some(ones(2, 2)));
    assert!(error.contains("D has shape (2, 2), expected (1, 1)"), "{error}");
    let error = message(StateMatrix::Dense(ones(2, 3)), ones(2, 1), ones(1, 2), None);
    assert!(error.contains("A has shape (2, 3)"), "{error}");
}
