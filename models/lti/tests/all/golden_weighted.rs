//! Weighted, frequency-limited and H2-optimal reduction against values made by `tests/golden/weighted/generate.py`.

use crate::common::folder;
use faer::Mat;
use hankel_lti::methods::weighted_h2::reduce_weighted;
use hankel_lti::norms::h2_norm;
use hankel_lti::weighted::{Band, Emphasis, Weighted, WeightedFacts, Weights};
use hankel_lti::{GramianFactors, HankelSpectrum, LinearSystem, StateMatrix, methods, reduce};
use serde_json::Value;

fn cases(kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder("weighted").join("weighted.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[kind].as_array().unwrap().clone()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn system(value: &Value) -> LinearSystem {
    let matrix = |name: &str| {
        let rows: Vec<Vec<f64>> = value[name].as_array().unwrap().iter().map(numbers).collect();
        Mat::from_fn(rows.len(), rows[0].len(), |i, j| rows[i][j])
    };
    LinearSystem::new(StateMatrix::from_square(matrix("A")), matrix("B"), matrix("C"), Some(matrix("D"))).unwrap()
}

#[track_caller]
fn close(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() < tolerance, "{found} {expected}");
}

#[track_caller]
fn all_close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, value) in found.iter().zip(expected) {
        assert!((found - value).abs() < tolerance * expected[0], "{found} {value} of {expected:?}");
    }
}

fn analysis(system: &LinearSystem) -> (GramianFactors, HankelSpectrum) {
    let factors = GramianFactors::analytic(system).unwrap();
    let spectrum = HankelSpectrum::new(&factors).unwrap();
    (factors, spectrum)
}

#[test]
fn weighted_values_and_errors() {
    for case in cases("weighted") {
        let full = system(&case["system"]);
        let (factors, spectrum) = analysis(&full);
        let weights =
            Weights { input: Some(system(&case["input_weight"])), output: Some(system(&case["output_weight"])) };
        let order = case["order"].as_u64().unwrap() as usize;
        let enns = Weighted::enns(&full, &factors, &weights).unwrap();
        let modified = Weighted::modified(&full, &spectrum, &weights).unwrap();
        for (name, weighted) in [("enns", enns), ("modified", modified)] {
            // The upper ends of two enclosures, each within 5e-7.
            all_close(weighted.spectrum.values(), &numbers(&case[format!("{name}_values")]), 2e-6);
            let reduced = reduce(&full, &weighted.spectrum, methods::bt::METHOD, order).unwrap();
            let claim = (weighted.spectrum.values(), weighted.bound(order));
            let emphasis = Emphasis::Weights(weights.clone());
            let facts = WeightedFacts::measure((&full, &reduced.system), 1.0, &emphasis, claim, None).unwrap();
            let error = &case[format!("{name}_error")];
            close(facts.hinf_error, error["hinf"].as_f64().unwrap(), 1e-6);
            close(facts.h2_error.unwrap(), error["h2"].as_f64().unwrap(), 1e-6);
            if let (Some(weighted), Some(unweighted)) = (facts.error_bound, reduced.bound) {
                close(unweighted / weighted, case["unweighted_factor"].as_f64().unwrap(), 1e-5);
            }
        }
    }
}

#[test]
fn values_and_errors_in_a_band() {
    for case in cases("band") {
        let full = system(&case["system"]);
        let (_, spectrum) = analysis(&full);
        let ends = numbers(&case["band"]);
        let band = Band::new(ends[0], ends[1]).unwrap();
        let limited = Weighted::band(&full, &spectrum, band).unwrap();
        all_close(limited.spectrum.values(), &numbers(&case["values"]), 1e-6);
        let order = case["order"].as_u64().unwrap() as usize;
        let reduced = reduce(&full, &limited.spectrum, methods::bt::METHOD, order).unwrap().system;
        let facts = WeightedFacts::measure((&full, &reduced), 1.0, &Emphasis::Band(band), (&[], None), None).unwrap();
        close(facts.hinf_error, case["hinf_in_band"].as_f64().unwrap(), 1e-6);
    }
}

#[test]
fn h2_optimal_errors() {
    for case in cases("h2") {
        let full = system(&case["system"]);
        let (_, spectrum) = analysis(&full);
        let order = case["order"].as_u64().unwrap() as usize;
        let error = |method| {
            let reduced = reduce(&full, &spectrum, method, order).unwrap().system;
            h2_norm(&full.difference(&reduced).unwrap()).unwrap()
        };
        close(error(methods::bt::METHOD), case["bt_h2_error"].as_f64().unwrap(), 1e-6);
        close(error(methods::h2::METHOD), case["optimal_h2_error"].as_f64().unwrap(), 1e-5);
    }
}

/// The weight and, beside it, white noise of a twentieth of its mean square: [`reduce_weighted`] lowers the error under both.
fn with_noise(weight: &LinearSystem) -> LinearSystem {
    let channels = weight.outputs();
    let size = (0.05 / channels as f64).sqrt() * h2_norm(weight).unwrap();
    let (states, inputs) = (weight.states(), weight.inputs());
    let b = Mat::from_fn(states, inputs + channels, |i, j| if j < inputs { weight.b()[(i, j)] } else { 0.0 });
    let own = weight.d().unwrap();
    let d = Mat::from_fn(channels, inputs + channels, |i, j| match j.checked_sub(inputs) {
        None => own[(i, j)],
        Some(k) => size * f64::from(u8::from(i == k)),
    });
    LinearSystem::new(weight.a().clone(), b, weight.c().to_owned(), Some(d)).unwrap()
}

fn transposed(system: &LinearSystem) -> LinearSystem {
    let a = StateMatrix::Dense(system.a().to_dense().transpose().to_owned());
    let d = system.d().map(|d| d.transpose().to_owned());
    LinearSystem::new(a, system.c().transpose().to_owned(), system.b().transpose().to_owned(), d).unwrap()
}

#[test]
fn weighted_h2_optimal_errors() {
    for case in cases("weighted_h2") {
        let full = system(&case["system"]);
        let weight = |name: &str| Some(&case[name]).filter(|value| !value.is_null()).map(system);
        let weights = Weights { input: weight("input_weight"), output: weight("output_weight") };
        let noisy = Weights {
            input: weights.input.as_ref().map(with_noise),
            output: weights.output.as_ref().map(|w| transposed(&with_noise(&transposed(w)))),
        };
        let error = |reduced: &LinearSystem, weights: &Weights| {
            h2_norm(&weights.around(&full.difference(reduced).unwrap()).unwrap()).unwrap()
        };
        let expected = |name: &str| case[name].as_f64().unwrap();
        // The norms are the same, and so is the optimum.
        let optimum = system(&case["optimum"]);
        close(error(&optimum, &weights), expected("optimal_error"), 1e-8);
        close(error(&optimum, &noisy), expected("optimal_error_with_noise"), 1e-8);
        let (_, spectrum) = analysis(&full);
        let weighted = Weighted::modified(&full, &spectrum, &weights).unwrap();
        let order = case["order"].as_u64().unwrap() as usize;
        let bt = reduce(&full, &spectrum, methods::bt::METHOD, order).unwrap().system;
        close(error(&bt, &weights), expected("bt_error"), 1e-6);
        let found = reduce_weighted(&full, &spectrum, &weighted, &weights, order).unwrap().system;
        close(error(&found, &noisy), expected("optimal_error_with_noise"), 1e-4);
        assert!(error(&found, &weights) < expected("bt_error"));
    }
}
