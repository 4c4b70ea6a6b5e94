//! Reduction under weights and in bands: 150 random systems here, 10,000 with `cargo test -- --ignored`.

use faer::Mat;
use faer::linalg::solvers::Solve;
use hankel_lti::certificate::bound_holds;
use hankel_lti::norms::{FrequencyResponse, h2_norm, hinf_norm, hinf_sweep};
use hankel_lti::weighted::{Band, Emphasis, Weighted, WeightedFacts, Weights};
use hankel_lti::{GramianFactors, HankelSpectrum, LinearSystem, Mode, StateMatrix, methods, reduce};
use std::f64::consts::PI;

/// SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn between(&mut self, low: f64, high: f64) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        low + (high - low) * ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        self.between(0.0, n as f64) as usize
    }

    fn matrix(&mut self, rows: usize, columns: usize) -> Mat<f64> {
        Mat::from_fn(rows, columns, |_, _| self.between(-1.0, 1.0))
    }

    /// Poles with memories from one step to 1/`slowest`.
    fn modes(&mut self, count: usize, slowest: f64) -> StateMatrix {
        let radius = |numbers: &mut Self| (-(10f64.powf(numbers.between(slowest.log10(), 0.5)))).exp();
        let modes = (0..count).map(|_| match self.below(4) {
            0 => Mode::Pair { radius: radius(self), angle: self.between(0.05, 3.1) },
            1 => Mode::Real(-radius(self)),
            _ => Mode::Real(radius(self)),
        });
        StateMatrix::Modal(modes.collect())
    }

    fn system(&mut self, most: usize, inputs: usize, outputs: usize, slowest: f64, direct: bool) -> LinearSystem {
        let count = self.below(most + 1);
        let a = self.modes(count, slowest);
        let d = a.states();
        let (b, c) = (self.matrix(d, inputs), self.matrix(outputs, d));
        let d = direct.then(|| self.matrix(outputs, inputs) * faer::Scale(10f64.powf(self.between(-6.0, 0.5))));
        LinearSystem::new(a, b, c, d).unwrap()
    }
}

fn analysis(system: &LinearSystem) -> (GramianFactors, HankelSpectrum) {
    let factors = GramianFactors::analytic(system).unwrap();
    let spectrum = HankelSpectrum::new(&factors).unwrap();
    (factors, spectrum)
}

fn enclosure(system: &LinearSystem) -> (f64, f64) {
    let (norm, check) = hinf_norm(&FrequencyResponse::new(system)).unwrap();
    (norm.value, check.upper)
}

/// Rounding of a dense reduced system counts relative to the distance of its poles from the circle.
fn rounding(system: &LinearSystem) -> f64 {
    1e-13 / (1.0 - system.spectral_radius())
}

/// Reduces by `weighted` to every order and holds the errors to the bounds.
fn check_bounds(what: &str, system: &LinearSystem, weighted: &Weighted, emphasis: &Emphasis) {
    let norm = enclosure(system).0;
    for order in 0..=weighted.spectrum.rank() {
        let method = [methods::bt::METHOD, methods::bfsr::METHOD, methods::spa::METHOD][(order + system.inputs()) % 3];
        let reduced = reduce(system, &weighted.spectrum, method, order).unwrap_or_else(|e| panic!("{what}: {e}"));
        let slack = 1.0 + 1e9 * (rounding(&reduced.system) + rounding(system));
        let claim = (weighted.spectrum.values(), weighted.bound(order));
        let facts = WeightedFacts::measure((system, &reduced.system), 1.0, emphasis, claim, None).unwrap();
        let bound = facts.error_bound.unwrap();
        assert!(
            bound_holds(facts.hinf_error, bound, facts.hinf_norm * slack),
            "{what}, {method:?}, order {order}: weighted error {:e} above {bound:e}",
            facts.hinf_error
        );
        assert!(facts.hinf_error <= facts.hinf_error_upper * (1.0 + 1e-12));
        // The upper end lies above what rounding could hide.
        assert!(
            facts.hinf_error_upper <= facts.hinf_error * (1.0 + 1e-6) + 1e-9 * facts.hinf_norm,
            "{what}: {facts:?}"
        );
        let (error, _) = enclosure(&system.difference(&reduced.system).unwrap());
        assert!(
            bound_holds(error, reduced.bound.unwrap(), norm * slack),
            "{what}, {method:?}, order {order}: {error:e}"
        );
        assert!(reduced.system.spectral_radius() < 1.0);
        assert_eq!(facts.contradictions(&facts), Vec::<String>::new());
    }
}

fn close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= tolerance * expected[0].max(1e-300), "{what}: {found:?} {expected:?}");
    }
}

/// `T A T^-1, T B, C T^-1`.
fn turned(system: &LinearSystem, t: &Mat<f64>) -> LinearSystem {
    let inverse = t.partial_piv_lu().solve(Mat::<f64>::identity(t.nrows(), t.nrows()));
    let a = t * system.a().to_dense() * &inverse;
    system.with_realization(StateMatrix::Dense(a), t * system.b(), system.c() * &inverse).unwrap()
}

fn check(seed: u64) {
    let numbers = &mut Numbers(seed);
    let (inputs, outputs) = (1 + numbers.below(4), 1 + numbers.below(4));
    // The slowest poles are those that a dense cascade still tells from the circle.
    let system = numbers.system(6, inputs, outputs, 1e-4, false);
    if system.states() == 0 {
        return;
    }
    let (factors, spectrum) = analysis(&system);
    let direct = numbers.below(4) > 0;
    let drives = 1 + numbers.below(4);
    let input = numbers.system(4, drives, inputs, 1e-3, direct);
    let reads = 1 + numbers.below(3);
    let output = numbers.system(3, outputs, reads, 1e-3, true);
    let weights = match numbers.below(3) {
        0 => Weights { input: Some(input), output: None },
        1 => Weights { input: None, output: Some(output) },
        _ => Weights { input: Some(input), output: Some(output) },
    };
    let what = format!("seed {seed}");
    match Weighted::modified(&system, &spectrum, &weights) {
        // No states and no direct term: a weight of zero.
        Err(error) => assert!(error.to_string().contains("the weight vanishes"), "{what}: {error}"),
        Ok(weighted) => {
            check_bounds(&what, &system, &weighted, &Emphasis::Weights(weights.clone()));
            let t = Mat::<f64>::identity(system.states(), system.states())
                + numbers.matrix(system.states(), system.states()) * faer::Scale(0.2);
            let units = Mat::from_fn(t.nrows(), t.ncols(), |i, j| t[(i, j)] * 2f64.powi([9, -11, 3, 0][i % 4]));
            let other = turned(&system, &units);
            let again = Weighted::modified(&other, &analysis(&other).1, &weights).unwrap();
            close(&what, again.spectrum.values(), weighted.spectrum.values(), 1e-5);
        }
    }
    if let Ok(enns) = Weighted::enns(&system, &factors, &weights) {
        assert_eq!(enns.bound(0), None);
    }
    let low = numbers.between(0.0, 3.0);
    let band = Band::new(low, numbers.between(low + 0.01, PI)).unwrap();
    let limited = Weighted::band(&system, &spectrum, band).unwrap();
    check_bounds(&format!("{what}, {band:?}"), &system, &limited, &Emphasis::Band(band));
}

#[test]
fn random_weights_and_bands() {
    (0..150).for_each(check);
}

/// `HANKEL_SEEDS=1000..3000` runs a part.
#[test]
#[ignore = "the long run: about half an hour"]
fn many_random_weights_and_bands() {
    let seeds = std::env::var("HANKEL_SEEDS").unwrap_or_else(|_| "1000..11000".into());
    let (first, end) = seeds.split_once("..").expect("two numbers with .. between them");
    let seeds = first.parse().expect("a number")..end.parse().expect("a number");
    for seed in seeds {
        check(seed);
        if seed % 100 == 99 {
            eprintln!("seeds up to {seed}: every claim holds");
        }
    }
}

#[test]
fn a_weight_that_changes_nothing_changes_nothing() {
    for seed in 0..20 {
        let numbers = &mut Numbers(seed);
        let system = numbers.system(6, 3, 2, 1e-5, false);
        let (factors, spectrum) = analysis(&system);
        let identity = |n: usize| {
            LinearSystem::new(
                StateMatrix::Diagonal(vec![]),
                Mat::zeros(0, n),
                Mat::zeros(n, 0),
                Some(Mat::identity(n, n)),
            )
            .unwrap()
        };
        let weights = Weights { input: Some(identity(3)), output: Some(identity(2)) };
        let all = Weighted::band(&system, &spectrum, Band::new(0.0, PI).unwrap()).unwrap();
        let modified = Weighted::modified(&system, &spectrum, &weights).unwrap();
        let enns = Weighted::enns(&system, &factors, &weights).unwrap();
        for (what, weighted) in [("identity", &modified), ("Enns", &enns), ("all frequencies", &all)] {
            close(what, weighted.spectrum.values(), spectrum.values(), 1e-6);
        }
        let plain = reduce(&system, &spectrum, methods::bt::METHOD, spectrum.rank() / 2).unwrap().system;
        let same = reduce(&system, &modified.spectrum, methods::bt::METHOD, spectrum.rank() / 2).unwrap().system;
        let change = hinf_sweep(&FrequencyResponse::new(&plain.difference(&same).unwrap())).unwrap().value;
        assert!(change <= 1e-6 * enclosure(&system).0, "{seed}: {change}");
    }
}

/// `x' = pole x + u`, times `gain`, with a direct term.
fn first_order(pole: f64, gain: f64, direct: f64) -> LinearSystem {
    let (b, c, d) =
        (Mat::from_fn(1, 1, |_, _| 1.0), Mat::from_fn(1, 1, |_, _| gain), Mat::from_fn(1, 1, |_, _| direct));
    LinearSystem::new(StateMatrix::Diagonal(vec![pole]), b, c, Some(d)).unwrap()
}

#[test]
fn weights_near_every_edge() {
    let single = |poles: Vec<f64>, b: f64| {
        let d = poles.len();
        let c = Mat::from_fn(1, d, |_, j| 1.0 + j as f64);
        LinearSystem::new(StateMatrix::Diagonal(poles), Mat::from_fn(d, 1, |i, _| b * (1.0 - 0.3 * i as f64)), c, None)
            .unwrap()
    };
    let systems = [
        ("one state", single(vec![0.5], 1.0)),
        ("no input", single(vec![0.5, 0.9], 0.0)),
        ("slow poles", single(vec![1.0 - 1e-9, 1.0 - 1e-3, 0.3], 1.0)),
        ("poles at 0", single(vec![0.0, 0.0, 0.5], 1.0)),
        ("tiny", single(vec![0.9, 0.2], 1e-200)),
        ("huge", single(vec![0.9, 0.2], 1e200)),
    ];
    let weights = [
        ("slow", first_order(1.0 - 1e-9, 1e-9, 1e-12)),
        ("almost singular", first_order(0.5, 1e-14, 1e-14)),
        ("a zero at frequency 0", first_order(0.9, -0.1, 1.0)),
        ("tiny", first_order(0.9, 1e-150, 1e-150)),
        ("huge", first_order(0.9, 1e120, 1e120)),
    ];
    for (name, system) in &systems {
        let (_, spectrum) = analysis(system);
        for (of, weight) in &weights {
            // A product of two extremes leaves the range of numbers.
            if [*name, of].iter().all(|name| ["tiny", "huge"].contains(name)) {
                continue;
            }
            let what = format!("{name}, weight {of}");
            for weights in [
                Weights { input: Some(weight.clone()), output: None },
                Weights { input: None, output: Some(weight.clone()) },
            ] {
                let weighted =
                    Weighted::modified(system, &spectrum, &weights).unwrap_or_else(|e| panic!("{what}: {e}"));
                for order in 0..=weighted.spectrum.rank() {
                    let reduced = reduce(system, &weighted.spectrum, methods::bt::METHOD, order).unwrap();
                    let emphasis = Emphasis::Weights(weights.clone());
                    // Clamped poles have no guarantee.
                    let claim = (weighted.spectrum.values(), weighted.bound(order));
                    assert_eq!(claim.1.is_none(), *name == "slow poles" && order < system.states(), "{what}");
                    let facts = WeightedFacts::measure((system, &reduced.system), 1.0, &emphasis, claim, None);
                    let facts = facts.unwrap_or_else(|e| panic!("{what}: {e}"));
                    // Rounding of a dense A moves a pole at 1 - 1e-9 by a tenth of a millionth of its distance from the circle.
                    if *name == "slow poles" && order == system.states() {
                        assert!(facts.hinf_error < 1e-5 * facts.hinf_norm, "{what}: {facts:?}");
                        continue;
                    }
                    assert_ne!(facts.holds, Some(false), "{what}, order {order}: {facts:?}");
                }
            }
        }
    }
    let (_, spectrum) = analysis(&systems[0].1);
    let zero = LinearSystem::new(StateMatrix::Diagonal(vec![]), Mat::zeros(0, 1), Mat::zeros(1, 0), None).unwrap();
    let refused = |weight| {
        let weights = Weights { input: Some(weight), output: None };
        Weighted::modified(&systems[0].1, &spectrum, &weights).unwrap_err().to_string()
    };
    assert!(refused(zero).contains("the weight vanishes"));
    let two = Mat::<f64>::identity(2, 2);
    let wide = LinearSystem::new(StateMatrix::Diagonal(vec![]), Mat::zeros(0, 2), Mat::zeros(2, 0), Some(two)).unwrap();
    assert!(refused(wide).contains("2 outputs, the system 1 inputs"));
}

#[test]
fn what_the_weight_does_not_excite_is_dropped() {
    // Equal modes at a low and a high frequency; the weight lets the high one through.
    let modes = vec![Mode::Real(0.95), Mode::Real(-0.95)];
    let (b, c) = (Mat::from_fn(2, 1, |i, _| 1.0 - 0.2 * i as f64), Mat::from_fn(1, 2, |_, _| 1.0));
    let system = LinearSystem::new(StateMatrix::Modal(modes), b, c, None).unwrap();
    let (factors, spectrum) = analysis(&system);
    let weights = Weights { input: Some(first_order(-0.9, 0.1, 1e-3)), output: None };
    let emphasis = Emphasis::Weights(weights.clone());
    let error = |spectrum: &HankelSpectrum| {
        let reduced = reduce(&system, spectrum, methods::bt::METHOD, 1).unwrap().system;
        WeightedFacts::measure((&system, &reduced), 1.0, &emphasis, (&[], None), None).unwrap()
    };
    let plain = error(&spectrum);
    let modified = error(&Weighted::modified(&system, &spectrum, &weights).unwrap().spectrum);
    let enns = error(&Weighted::enns(&system, &factors, &weights).unwrap().spectrum);
    let band = error(&Weighted::band(&system, &spectrum, Band::new(2.8, PI).unwrap()).unwrap().spectrum);
    for better in [modified, enns, band] {
        assert!(better.hinf_error < 0.2 * plain.hinf_error, "{better:?} {plain:?}");
        assert!(better.h2_error.unwrap() < 0.2 * plain.h2_error.unwrap());
    }
}

#[test]
fn errors_in_a_band_are_enclosed_there() {
    for seed in 0..60 {
        let numbers = &mut Numbers(seed);
        let system = numbers.system(6, 2, 2, 1e-4, seed % 2 == 0);
        let response = FrequencyResponse::new(&system);
        let low = numbers.between(0.0, 3.0);
        let high = numbers.between(low + 1e-3, PI);
        let (norm, check) = hankel_lti::norms::hinf_norm_in(&response, (low, high)).unwrap();
        assert!((low..=high).contains(&norm.frequency));
        let largest = (0..=2000).map(|k| low + (high - low) * f64::from(k) / 2000.0);
        let largest = largest.map(|omega| response.gain(omega).unwrap()).max_by(f64::total_cmp).unwrap();
        assert!(largest <= check.upper && norm.value <= check.upper * (1.0 + 1e-12), "{seed}: {largest} {check:?}");
        assert!(check.upper <= norm.value * (1.0 + 1e-6), "{seed}: {norm:?} {check:?}");
    }
}

#[test]
fn the_h2_error_is_never_above_that_of_balanced_truncation() {
    let mut better = 0;
    for seed in 0..80 {
        let numbers = &mut Numbers(seed);
        let system = numbers.system(7, 2, 2, 1e-4, seed % 3 == 0);
        let (_, spectrum) = analysis(&system);
        for order in 0..=spectrum.rank() {
            let error = |method| {
                let reduced = reduce(&system, &spectrum, method, order).unwrap();
                assert_eq!(reduced.bound.is_some(), method == methods::bt::METHOD);
                h2_norm(&system.difference(&reduced.system).unwrap()).unwrap()
            };
            let (optimal, balanced) = (error(methods::h2::METHOD), error(methods::bt::METHOD));
            assert!(optimal <= balanced, "{seed} {order}: {optimal} {balanced}");
            better += u32::from(optimal < 0.999 * balanced);
        }
    }
    assert!(better > 30, "{better}");
}

/// `|| W (G - G_r) V ||_2`.
fn weighted_h2_error(system: &LinearSystem, reduced: &LinearSystem, weights: &Weights) -> f64 {
    h2_norm(&weights.around(&system.difference(reduced).unwrap()).unwrap()).unwrap()
}

#[test]
fn the_weighted_h2_error_is_never_above_that_of_any_start() {
    let mut better = 0;
    for seed in 0..60 {
        let numbers = &mut Numbers(seed);
        let system = numbers.system(6, 2, 3, 1e-3, seed % 3 == 0);
        let (_, spectrum) = analysis(&system);
        let (input, output) = (numbers.system(3, 2, 2, 1e-2, true), numbers.system(2, 3, 2, 1e-2, true));
        let weights = match seed % 3 {
            0 => Weights { input: Some(input), output: None },
            1 => Weights { input: None, output: Some(output) },
            _ => Weights { input: Some(input), output: Some(output) },
        };
        let weighted = Weighted::modified(&system, &spectrum, &weights).unwrap();
        for order in 0..=weighted.spectrum.rank().min(4) {
            let reduced =
                methods::weighted_h2::reduce_weighted(&system, &spectrum, &weighted, &weights, order).unwrap();
            assert!(reduced.bound.is_none() && reduced.system.spectral_radius() < 1.0);
            assert_eq!((reduced.system.states(), reduced.system.d()), (order, system.d()));
            let error = weighted_h2_error(&system, &reduced.system, &weights);
            let start = reduce(&system, &weighted.spectrum, methods::bt::METHOD, order).unwrap().system;
            let mut starts = vec![weighted_h2_error(&system, &start, &weights)];
            if let Ok(other) = reduce(&system, &spectrum, methods::h2::METHOD, order) {
                starts.push(weighted_h2_error(&system, &other.system, &weights));
            }
            let least = starts.into_iter().fold(f64::INFINITY, f64::min);
            // Where all states are kept, both are rounding.
            let rounding = 1e-12 * h2_norm(&weights.around(&system).unwrap()).unwrap();
            assert!(error <= least.max(rounding), "{seed}, order {order}: {error} {least}");
            better += u32::from(error < 0.99 * least);
        }
    }
    assert!(better > 60, "{better}");
}

#[test]
fn the_h2_optimum_under_a_weight_that_changes_nothing_is_the_unweighted_one() {
    let (mut alike, mut all) = (0, 0);
    for seed in 0..20 {
        let numbers = &mut Numbers(seed);
        let system = numbers.system(6, 2, 2, 1e-3, false);
        let (_, spectrum) = analysis(&system);
        let identity = LinearSystem::new(
            StateMatrix::Diagonal(vec![]),
            Mat::zeros(0, 2),
            Mat::zeros(2, 0),
            Some(Mat::identity(2, 2)),
        );
        let weights = Weights { input: Some(identity.unwrap()), output: None };
        let weighted = Weighted::modified(&system, &spectrum, &weights).unwrap();
        for order in 1..spectrum.rank().min(4) {
            let plain = reduce(&system, &spectrum, methods::h2::METHOD, order).unwrap().system;
            let expected = h2_norm(&system.difference(&plain).unwrap()).unwrap();
            let found = methods::weighted_h2::reduce_weighted(&system, &spectrum, &weighted, &weights, order).unwrap();
            let error = h2_norm(&system.difference(&found.system).unwrap()).unwrap();
            // There are several local optima, of which the search from two starts may find a better one.
            assert!(error <= expected * (1.0 + 1e-12), "{seed} {order}: {error} {expected}");
            (alike, all) = (alike + u32::from(error > 0.999 * expected), all + 1);
        }
    }
    assert!(10 * alike >= 7 * all, "{alike} of {all}");
}

#[test]
fn the_weighted_h2_optimum_does_not_depend_on_coordinates() {
    for seed in 0..12 {
        let numbers = &mut Numbers(seed);
        let system = numbers.system(5, 2, 2, 1e-2, false);
        let weights = Weights { input: Some(numbers.system(3, 2, 2, 1e-2, true)), output: None };
        let n = system.states();
        let t = Mat::<f64>::identity(n, n) + numbers.matrix(n, n) * faer::Scale(0.2);
        let other = turned(&system, &Mat::from_fn(n, n, |i, j| t[(i, j)] * 2f64.powi([5, -6, 2, 0][i % 4])));
        let errors = [&system, &other].map(|system| {
            let (_, spectrum) = analysis(system);
            let weighted = Weighted::modified(system, &spectrum, &weights).unwrap();
            let order = spectrum.rank() / 2;
            let found = methods::weighted_h2::reduce_weighted(system, &spectrum, &weighted, &weights, order).unwrap();
            weighted_h2_error(system, &found.system, &weights)
        });
        assert!((errors[0] - errors[1]).abs() <= 1e-3 * errors[0], "{seed}: {errors:?}");
    }
}

#[test]
fn energy_pruning_keeps_the_most_energy_and_its_bound() {
    // Gain 10 and energy 1 / (1 - 0.9^2) against gain 4 and energy 4^2.
    let (b, c) = (Mat::from_fn(2, 1, |_, _| 1.0), Mat::from_fn(1, 2, |_, j| [1.0, 4.0][j]));
    let system = LinearSystem::new(StateMatrix::Diagonal(vec![0.9, 0.0]), b, c, None).unwrap();
    let (_, spectrum) = analysis(&system);
    let kept = |method| reduce(&system, &spectrum, method, 1).unwrap().kept;
    assert_eq!(kept(methods::modal::METHOD), Some(vec![0]));
    assert_eq!(kept(methods::energy::METHOD), Some(vec![1]));
    for seed in 0..40 {
        let system = Numbers(seed).system(6, 2, 2, 1e-4, false);
        let (_, spectrum) = analysis(&system);
        for order in 0..=system.states() {
            let reduced = reduce(&system, &spectrum, methods::energy::METHOD, order).unwrap();
            let (error, _) = enclosure(&system.difference(&reduced.system).unwrap());
            assert!(bound_holds(error, reduced.bound.unwrap(), enclosure(&system).0), "{seed} {order}");
        }
    }
}
