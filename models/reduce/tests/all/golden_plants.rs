//! Plants against values made by `tests/golden/plants/generate.py` with SLICOT, pyMOR and scipy.

use crate::common::folder;
use faer::linalg::solvers::Solve;
use faer::{Mat, c64};
use hankel_files::system_file::{StoredSystem, Time};
use hankel_lti::norms::h2_norm;
use hankel_lti::weighted::Weights;
use hankel_lti::{GramianSource, LinearSystem, Method, StateMatrix};
use hankel_reduce::{Gramians, LayerReduction, Plant, Purpose, reduce_system, verify_layer, weigh_with};
use serde_json::Value;

const PURPOSE: Purpose = Purpose { direct_term: true, single: false };

fn golden() -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder("plants").join("plants.json")).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn stored(value: &Value, continuous: bool) -> StoredSystem {
    let matrix = |name: &str| {
        let rows: Vec<Vec<f64>> = value[name].as_array().unwrap().iter().map(numbers).collect();
        Mat::from_fn(rows.len(), rows[0].len(), |i, j| rows[i][j])
    };
    let time = if continuous { Time::Continuous } else { Time::Unstated };
    StoredSystem {
        a: StateMatrix::from_square(matrix("A")),
        written: Some(matrix("A")),
        turned: Vec::new(),
        b: matrix("B"),
        c: matrix("C"),
        d: Some(matrix("D")),
        time,
    }
}

/// `C (z - A)^-1 B + D`, row by row.
fn response(system: &StoredSystem, z: c64) -> Vec<c64> {
    let complex = |m: &Mat<f64>| Mat::from_fn(m.nrows(), m.ncols(), |i, j| c64::new(m[(i, j)], 0.0));
    let a = system.a.to_dense();
    let shifted =
        Mat::from_fn(a.nrows(), a.nrows(), |i, j| if i == j { z - a[(i, j)] } else { c64::new(-a[(i, j)], 0.0) });
    let x = shifted.partial_piv_lu().solve(complex(&system.b));
    let y = complex(&system.c) * x;
    let d = |i, j| system.d.as_ref().map_or(0.0, |d| d[(i, j)]);
    (0..y.nrows()).flat_map(|i| (0..y.ncols()).map(move |j| (i, j))).map(|(i, j)| y[(i, j)] + d(i, j)).collect()
}

#[track_caller]
fn all_close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, value) in found.iter().zip(expected) {
        assert!((found - value).abs() < tolerance * expected[0], "{found} {value} of {expected:?}");
    }
}

fn order(case: &Value) -> usize {
    case["order"].as_u64().unwrap() as usize
}

#[test]
fn plants_are_reduced_as_slicot_reduces_them() {
    let golden = golden();
    let frequencies = numbers(&golden["frequencies"]);
    for case in golden["slicot"].as_array().unwrap() {
        let continuous = case["continuous"].as_bool().unwrap();
        let plant = Plant::new(&stored(&case["system"], continuous)).unwrap();
        let kept = case["kept"].as_u64().unwrap() as usize;
        assert_eq!(plant.kept.a.states(), kept);
        let layer = plant.analyse("system").unwrap();
        all_close(layer.spectrum.values(), &numbers(&case["values"]), 1e-9);
        let method = Method::named(case["method"].as_str().unwrap()).unwrap();
        let small = reduce_system(&layer, method, order(case) - kept, &Gramians::Analytic, PURPOSE).unwrap();
        assert_eq!(small.certificate.holds, Some(true));
        let whole = plant.assemble(&small.system, small.projection.as_ref()).unwrap();
        assert_eq!(whole.a.states(), order(case));
        for (omega, expected) in frequencies.iter().zip(case["response"].as_array().unwrap()) {
            let z = if continuous { c64::new(0.0, *omega) } else { c64::from_polar(1.0, *omega) };
            let expected: Vec<c64> = expected
                .as_array()
                .unwrap()
                .iter()
                .map(|v| c64::new(v[0].as_f64().unwrap(), v[1].as_f64().unwrap()))
                .collect();
            let largest = expected.iter().map(|v| v.norm()).fold(0.0, f64::max);
            for (found, expected) in response(&whole, z).iter().zip(&expected) {
                let off = (*found - *expected).norm() / largest;
                assert!(off < 1e-8, "{} {method:?} {continuous} at {omega}: off by {off:e}", case["routine"]);
            }
        }
    }
}

/// The H2 norm of a strictly proper system in continuous time, as that of the image with C as it is.
fn continuous_h2(plant: &Plant, other: &StoredSystem) -> f64 {
    let map = plant.map.unwrap();
    let image = |system: &StoredSystem| {
        assert!(system.d.as_ref().is_none_or(|d| d.norm_max() < 1e-9));
        let (a, b, _, _) = map.discrete(&system.a, system.b.as_ref(), system.c.as_ref(), None).unwrap();
        LinearSystem::new(a, b, system.c.clone(), None).unwrap()
    };
    let full = plant.assemble(&plant.system, None).unwrap();
    h2_norm(&image(&full).difference(&image(other)).unwrap()).unwrap()
}

#[test]
fn h2_optimal_plants_are_those_of_pymor() {
    for case in golden()["h2"].as_array().unwrap() {
        let plant = Plant::new(&stored(&case["system"], true)).unwrap();
        let layer = plant.analyse("system").unwrap();
        let error = |name: &str| {
            let method = Method::named(name).unwrap();
            let (small, whole) = plant.reduce(&layer, method, order(case), &Gramians::Analytic).unwrap();
            let found = continuous_h2(&plant, &whole);
            assert!((small.certificate.h2_error / found - 1.0).abs() < 1e-9);
            found
        };
        let expected = |name: &str| case["h2_errors"][name].as_f64().unwrap();
        assert!((error("bt") / expected("bt") - 1.0).abs() < 1e-7);
        // TSIA is the iteration that this is; IRKA is another one, which may end in another optimum.
        let found = error("h2");
        assert!((found / expected("tsia") - 1.0).abs() < 1e-5, "{found} {}", case["h2_errors"]);
        assert!(found < 1.0001 * expected("irka"), "{found} {}", case["h2_errors"]);
        assert!(found < error("bt"));
    }
}

/// What `bt reduce` certifies: the system of the file.
fn weighted(plant: &Plant, case: &Value, gramians: &Gramians, weights: &Weights) -> (LayerReduction, Vec<f64>, f64) {
    let layer = weigh_with(plant.analyse("system").unwrap(), gramians.source(), weights).unwrap();
    let small = reduce_system(&layer, Method::default(), order(case), gramians, PURPOSE).unwrap();
    let whole = plant.assemble(&small.system, small.projection.as_ref()).unwrap();
    let again = plant.beside(&whole).unwrap();
    let found = verify_layer(&layer, &again.system, 1.0, Some(&small.certificate)).unwrap().measured.weighted.unwrap();
    // The modified ones hold their bound, measured on the continuous matrices; of the others some have one.
    let holds = found.holds.unwrap_or(*gramians != Gramians::Weighted);
    assert!(holds, "{found:?}");
    (small, found.singular_values, found.hinf_error)
}

#[test]
fn weights_and_bands_in_continuous_time() {
    let golden = golden();
    for case in golden["weighted"].as_array().unwrap() {
        let plant = Plant::new(&stored(&case["system"], true)).unwrap();
        let weight = |name: &str| Some(plant.weight(&stored(&case[name], true)).unwrap());
        let weights = Weights { input: weight("input_weight"), output: weight("output_weight") };
        let (small, values, error) = weighted(&plant, case, &Gramians::Enns, &weights);
        assert_eq!(small.certificate.gramians, GramianSource::Enns);
        all_close(&values, &numbers(&case["values"]), 1e-8);
        let expected = case["weighted_error"].as_f64().unwrap();
        assert!((error / expected - 1.0).abs() < 1e-6, "{error} {expected}");
        let (_, _, modified) = weighted(&plant, case, &Gramians::Weighted, &weights);
        assert!(modified > 0.0);
    }
    for case in golden["band"].as_array().unwrap() {
        let plant = Plant::new(&stored(&case["system"], true)).unwrap();
        let ends = numbers(&case["band"]);
        let band = plant.band((ends[0], ends[1])).unwrap();
        let (_, values, error) = weighted(&plant, case, &Gramians::FrequencyLimited(band), &Weights::default());
        all_close(&values, &numbers(&case["values"]), 1e-6);
        let expected = case["error_in_band"].as_f64().unwrap();
        assert!((error / expected - 1.0).abs() < 1e-4, "{error} {expected}");
    }
}
