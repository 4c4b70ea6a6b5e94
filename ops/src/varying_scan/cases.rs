//! Cases and oracles.

use super::varying_scan;
use crate::scan::ScanPath;
use crate::testing::{Array, Case, Input, ShapeRng};

/// The recurrence as it is written.
fn naive(a: &Array, u: &Array, initial: Option<&Array>) -> Vec<f64> {
    let [batch, steps, d] = u.shape[..] else { panic!("a sequence") };
    let mut states = Vec::new();
    for b in 0..batch {
        let mut state = initial.map_or(vec![0.0; d], |s| s.data[b * d..][..d].to_vec());
        for t in 0..steps {
            let row = (b * steps + t) * d;
            state = (0..d).map(|i| a.data[row + i] * state[i] + u.data[row + i]).collect();
            states.extend(&state);
        }
    }
    states
}

fn case([batch, steps, d]: [usize; 3], initial: bool, path: ScanPath) -> Case {
    Case {
        name: format!("{batch} x {steps} x {d}, initial {initial}, {path:?}"),
        inputs: vec![
            Input::uniform([batch, steps, d], -0.6, 1.0),
            Input::normal([batch, steps, d], 1.0),
            Input::normal([batch, d], 1.0),
        ],
        run: Box::new(move |x| varying_scan(&x[0], &x[1], initial.then_some(&x[2]), path)),
        oracle: Box::new(move |x| naive(&x[0], &x[1], initial.then_some(&x[2]))),
    }
}

const PATHS: [ScanPath; 2] = [ScanPath::Sequential, ScanPath::Chunked];

pub fn cases() -> Vec<Case> {
    let sizes = [[2, 5, 3], [1, 1, 1], [0, 3, 2], [2, 0, 3], [1, 64, 2], [2, 65, 1], [1, 130, 17]];
    let all = PATHS.into_iter().flat_map(|path| sizes.into_iter().map(move |size| (size, path)));
    all.flat_map(|(size, path)| [case(size, false, path), case(size, true, path)]).collect()
}

pub fn random(rng: &mut ShapeRng) -> Case {
    let sizes = [rng.size(1, 3), rng.size(1, 140), rng.size(1, 9)];
    case(sizes, rng.coin(), PATHS[rng.size(0, 1)])
}
