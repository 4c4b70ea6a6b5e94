//! Proofs of H-infinity errors, against gains in 60 digits (`tests/golden/proof/generate.py`).

use crate::common::{check_proof, folder};
use faer::Mat;
use hankel_lti::norms::{FrequencyResponse, hinf_sweep, proved_error, without_shared};
use hankel_lti::{GramianFactors, HankelSpectrum, LinearSystem, Mode, StateMatrix};
use serde_json::Value;

fn rows(value: &Value) -> Vec<Vec<f64>> {
    let numbers = |row: &Value| row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    value.as_array().unwrap().iter().map(numbers).collect()
}

fn matrix(value: &Value, columns: usize) -> Mat<f64> {
    let rows = rows(value);
    Mat::from_fn(rows.len(), rows.first().map_or(columns, Vec::len), |i, j| rows[i][j])
}

fn system(value: &Value, inputs: usize) -> LinearSystem {
    let a = &value["a"];
    let mut written = None;
    let a = if let Some(poles) = a["diagonal"].as_array() {
        StateMatrix::Diagonal(poles.iter().map(|x| x.as_f64().unwrap()).collect())
    } else if !a["polar"].is_null() {
        StateMatrix::Modal(rows(&a["polar"]).iter().map(|pair| Mode::from_polar(pair[0], pair[1])).collect())
    } else {
        let square = matrix(&a["square"], 0);
        written = Some(square.clone());
        StateMatrix::from_square(square)
    };
    let (b, d) = (matrix(&value["b"], inputs), matrix(&value["d"], inputs));
    let states = b.nrows();
    let system = LinearSystem::new(a, b, matrix(&value["c"], states), Some(d)).unwrap();
    written.map_or(Ok(system.clone()), |a| system.with_written(a)).unwrap()
}

#[test]
fn no_gain_is_above_an_upper_end_that_is_proved() {
    let text = std::fs::read_to_string(folder("proof").join("errors.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut unproved = Vec::new();
    for case in &cases {
        let (name, inputs) = (case["name"].as_str().unwrap(), case["inputs"].as_u64().unwrap() as usize);
        let (full, reduced) = (system(&case["full"], inputs), system(&case["reduced"], inputs));
        let size = hinf_sweep(&FrequencyResponse::new(&full)).unwrap().value;
        // Only the test in floating point of many states reads them.
        let none = Mat::zeros(full.states(), full.states());
        let spectrum = HankelSpectrum::new(&GramianFactors::without_equation(none.clone(), none, 1.0)).unwrap();
        let (one, two) = without_shared(&full, &reduced).unwrap();
        let error = proved_error(&one, &two, &spectrum, size, None).unwrap();
        unproved.extend(check_proof(name, &error, case["gain"].as_f64().unwrap(), size));
    }
    assert!(unproved.len() * 20 <= cases.len(), "{} of {}: {unproved:#?}", unproved.len(), cases.len());
}
