//! Proofs of H-infinity errors in continuous time, against gains in 60 digits (`tests/golden/proof/continuous.py`).

use crate::common::{check_proof, folder};
use faer::Mat;
use hankel_files::system_file::{StoredSystem, Time};
use hankel_lti::norms::{FrequencyResponse, hinf_sweep, proved_error, without_shared};
use hankel_lti::{GramianFactors, HankelSpectrum, StateMatrix};
use hankel_reduce::Plant;
use serde_json::Value;

fn matrix(value: &Value, columns: usize) -> Mat<f64> {
    let rows = value.as_array().unwrap();
    let columns = rows.first().map_or(columns, |row| row.as_array().unwrap().len());
    Mat::from_fn(rows.len(), columns, |i, j| rows[i][j].as_f64().unwrap())
}

fn stored(value: &Value, inputs: usize) -> StoredSystem {
    let (b, d) = (matrix(&value["b"], inputs), matrix(&value["d"], inputs));
    let a = match value["a"]["diagonal"].as_array() {
        Some(poles) => StateMatrix::Diagonal(poles.iter().map(|x| x.as_f64().unwrap()).collect()),
        None => StateMatrix::Dense(matrix(&value["a"]["square"], 0)),
    };
    let c = matrix(&value["c"], b.nrows());
    // Pairs that are written out are found again.
    StoredSystem { a, written: None, turned: Vec::new(), b, c, d: Some(d), time: Time::Continuous }.as_written()
}

#[test]
fn no_gain_in_continuous_time_is_above_an_upper_end_that_is_proved() {
    let text = std::fs::read_to_string(folder("proof").join("continuous.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut unproved = Vec::new();
    for case in &cases {
        let (name, inputs) = (case["name"].as_str().unwrap(), case["inputs"].as_u64().unwrap() as usize);
        let plant = Plant::new(&stored(&case["full"], inputs)).unwrap();
        let reduced = plant.beside(&stored(&case["reduced"], inputs)).unwrap().system;
        let size = hinf_sweep(&FrequencyResponse::new(&plant.system)).unwrap().value;
        // Only the test in floating point of many states reads them.
        let none = Mat::zeros(plant.system.states(), plant.system.states());
        let spectrum = HankelSpectrum::new(&GramianFactors::without_equation(none.clone(), none, 1.0)).unwrap();
        let (one, two) = without_shared(&plant.system, &reduced).unwrap();
        let error = proved_error(&one, &two, &spectrum, size, None).unwrap();
        unproved.extend(check_proof(name, &error, case["gain"].as_f64().unwrap(), size));
    }
    assert!(unproved.len() * 20 <= cases.len(), "{} of {}: {unproved:#?}", unproved.len(), cases.len());
}
