//! Filters by the coefficients of their transfer functions, whose Gramians are lost in doubles in the states of the file.

use faer::Mat;
use hankel_files::system_file::{StoredSystem, Time};
use hankel_lti::norms::FrequencyResponse;
use hankel_lti::{LinearSystem, Method, StateMatrix};
use hankel_reduce::{Gramians, Plant, verify_layer};

/// `z^n / prod (z - pole)`, less its direct term: a companion matrix.
fn filter(poles: &[f64]) -> StoredSystem {
    let mut monic = vec![1.0];
    for pole in poles {
        let shifted: Vec<f64> = std::iter::once(0.0).chain(monic.iter().map(|c| c * pole)).collect();
        monic.push(0.0);
        monic.iter_mut().zip(shifted).for_each(|(c, shifted)| *c -= shifted);
    }
    let n = poles.len();
    let a = Mat::from_fn(n, n, |i, j| if i == 0 { -monic[j + 1] } else { f64::from(u8::from(i == j + 1)) });
    StoredSystem {
        a: StateMatrix::Dense(a),
        written: None,
        turned: Vec::new(),
        b: Mat::from_fn(n, 1, |i, _| f64::from(u8::from(i == 0))),
        c: Mat::from_fn(1, n, |_, j| -monic[j + 1]),
        d: None,
        time: Time::Unstated,
    }
}

/// The poles -1 ... -n with residues of 1, in states that are sheared: T is the product of a lower and an upper triangle of ones on the diagonal
/// and k elsewhere, whose inverse has integers, too, so that no number is rounded.
fn sheared(n: usize, k: f64) -> StoredSystem {
    let triangle = |is_in: fn(usize, usize) -> bool| {
        Mat::from_fn(n, n, |i, j| if i == j { 1.0 } else { k * f64::from(u8::from(is_in(i, j))) })
    };
    // Of 1 + k N with the nilpotent N of ones: the columns of its inverse are k (1 - k)^(i - j - 1) below the diagonal, negative.
    let inverse = |is_in: fn(usize, usize) -> bool| {
        Mat::from_fn(n, n, |i, j| match i.abs_diff(j) {
            0 => 1.0,
            steps if is_in(i, j) => -k * (1.0 - k).powi(steps as i32 - 1),
            _ => 0.0,
        })
    };
    let (lower, upper) = ((|i, j| i > j) as fn(usize, usize) -> bool, (|i, j| i < j) as fn(usize, usize) -> bool);
    let (t, back) = (triangle(lower) * triangle(upper), inverse(upper) * inverse(lower));
    assert_eq!((&t * &back - Mat::<f64>::identity(n, n)).norm_max(), 0.0);
    let poles = Mat::from_fn(n, n, |i, j| if i == j { -(1.0 + i as f64) } else { 0.0 });
    StoredSystem {
        a: StateMatrix::Dense(&t * poles * &back),
        written: None,
        turned: Vec::new(),
        b: &t * Mat::<f64>::ones(n, 1),
        c: Mat::<f64>::ones(1, n) * &back,
        d: None,
        time: Time::Continuous,
    }
}

/// Poles and residues.
fn by_modes(poles: &[f64], residue: impl Fn(usize) -> f64, time: Time) -> StoredSystem {
    let n = poles.len();
    StoredSystem {
        a: StateMatrix::Diagonal(poles.to_vec()),
        written: None,
        turned: Vec::new(),
        b: Mat::from_fn(n, 1, |i, _| residue(i)),
        c: Mat::from_fn(1, n, |_, _| 1.0),
        d: None,
        time,
    }
}

/// The filter's.
fn modes_of_filter(poles: &[f64]) -> StoredSystem {
    let residue = |i: usize| {
        let apart: f64 = (0..poles.len()).filter(|&j| j != i).map(|j| poles[i] - poles[j]).product();
        poles[i].powi(poles.len() as i32) / apart
    };
    by_modes(poles, residue, Time::Unstated)
}

/// Reductions to half of the states, against those of the modes; proofs are asked for where digits suffice.
fn check(stored: &StoredSystem, modes: &StoredSystem, proved: bool) {
    let (plant, modes) = (Plant::new(stored).unwrap(), Plant::new(modes).unwrap());
    assert!(plant.system.stored().is_some() && modes.system.stored().is_none());
    let (layer, expected) = (plant.analyse("system").unwrap(), modes.analyse("system").unwrap());
    let (values, others) = (layer.hankel_singular_values(), expected.hankel_singular_values());
    for (found, expected) in values.iter().zip(&others) {
        assert!((found - expected).abs() < 1e-10 * others[0], "{found} {expected}");
    }
    for name in ["bt", "spa", "hankel", "modal", "h2"] {
        let method = Method::named(name).unwrap();
        let order = stored.a.states() / 2;
        let (reduction, whole) = plant.reduce(&layer, method, order, &Gramians::Analytic).unwrap();
        let facts = &reduction.certificate;
        assert!(!facts.is_broken() && (facts.proved || !proved), "{name}: {}", facts.proof);
        // The error is that of the file from the system by its modes.
        let reduced = modes.beside(&whole).unwrap().system;
        let error = FrequencyResponse::new(&modes.system.difference(&reduced).unwrap());
        let at_peak = match (plant.map, modes.map) {
            (Some(own), Some(other)) => other.angle(own.frequency(facts.hinf_error_frequency)),
            _ => facts.hinf_error_frequency,
        };
        let gain = error.gain(at_peak).unwrap();
        assert!((gain - facts.hinf_error).abs() < 1e-8 * facts.hinf_norm, "{name}: {gain} {}", facts.hinf_error);
        // A fresh measurement agrees.
        let beside = plant.beside(&whole).unwrap();
        let verdict = verify_layer(&layer, &beside.system, 1.0, Some(facts)).unwrap();
        assert!(verdict.problems.is_empty(), "{name}: {:?}", verdict.problems);
    }
    // Where all states are kept, nothing is changed.
    let (reduction, whole) = plant.reduce(&layer, Method::default(), stored.a.states(), &Gramians::Analytic).unwrap();
    let facts = &reduction.certificate;
    assert_eq!((facts.hinf_error, facts.hinf_error_upper, facts.proved), (0.0, 0.0, true));
    assert_eq!((&whole.a, &whole.b, &whole.c), (&stored.a, &stored.b, &stored.c));
}

/// 32nds, so that no coefficient is rounded.
fn near_poles() -> Vec<f64> {
    (24..32).map(|k| f64::from(k) / 32.0).collect()
}

#[test]
fn in_discrete_time() {
    check(&filter(&near_poles()), &modes_of_filter(&near_poles()), true);
}

#[test]
fn in_continuous_time() {
    for (states, proved) in [(3, true), (4, false)] {
        let poles: Vec<f64> = (1..=states).map(|pole| -f64::from(pole)).collect();
        check(&sheared(poles.len(), 16.0), &by_modes(&poles, |_| 1.0, Time::Continuous), proved);
    }
}

/// As a weight, too.
#[test]
fn weights_have_the_gains_of_their_modes() {
    let one = Mat::from_fn(1, 1, |_, _| 1.0);
    let system = LinearSystem::new(StateMatrix::Diagonal(vec![0.5]), one.clone(), one, None).unwrap();
    let plant = Plant::new(&StoredSystem::new(&system, Time::Unstated)).unwrap();
    let weights = [filter(&near_poles()), modes_of_filter(&near_poles())];
    let [found, expected] = weights.map(|weight| FrequencyResponse::new(&plant.weight(&weight).unwrap()));
    let largest = expected.gain(0.0).unwrap();
    for angle in [0.0, 0.01, 0.3, 3.0] {
        let (found, expected) = (found.gain(angle).unwrap(), expected.gain(angle).unwrap());
        assert!((found - expected).abs() < 1e-10 * largest, "{angle}: {found} {expected}");
    }
}
