//! Cases and oracles.

use super::{Poles, ScanPath, scan};
use crate::testing::{Array, Case, Input, ShapeRng};
use hankel_core::{DType, Result, Tensor};

/// The recurrence with a dense matrix, as it is written.
pub(super) fn dense(a: &dyn Fn(usize, usize) -> f64, u: &Array, initial: Option<&Array>) -> Vec<f64> {
    let [batch, steps, d] = u.shape[..] else { panic!("a sequence") };
    let mut states = Vec::new();
    for b in 0..batch {
        let mut state = initial.map_or(vec![0.0; d], |s| s.data[b * d..][..d].to_vec());
        for t in 0..steps {
            let u = &u.data[(b * steps + t) * d..][..d];
            state = (0..d).map(|i| u[i] + (0..d).map(|j| a(i, j) * state[j]).sum::<f64>()).collect();
            states.extend(&state);
        }
    }
    states
}

fn diagonal([batch, steps, d]: [usize; 3], initial: bool, path: ScanPath) -> Case {
    Case {
        name: format!("diagonal {batch} x {steps} x {d}, initial {initial}, {path:?}"),
        inputs: vec![
            Input::normal([batch, steps, d], 1.0),
            Input::uniform([d], 0.05, 0.999),
            Input::normal([batch, d], 1.0),
        ],
        run: Box::new(move |x| scan(&x[0], &Poles::Diagonal(x[1].clone()), initial.then_some(&x[2]), path)),
        oracle: Box::new(move |x| {
            let a = |i, j| if i == j { x[1].data[i] } else { 0.0 };
            dense(&a, &x[0], initial.then_some(&x[2]))
        }),
    }
}

fn signs(real: usize, dtype: DType) -> Result<Tensor> {
    Tensor::from_vec((0..real).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect::<Vec<f64>>(), [real])?
        .to_dtype(dtype)
}

fn modal([batch, steps]: [usize; 2], [real, pairs]: [usize; 2], initial: bool, path: ScanPath) -> Case {
    let d = real + 2 * pairs;
    Case {
        name: format!("modal {batch} x {steps}, {real} real, {pairs} pairs, initial {initial}, {path:?}"),
        inputs: vec![
            Input::normal([batch, steps, d], 1.0),
            Input::uniform([real + pairs], 0.05, 0.995),
            Input::uniform([pairs], 0.1, 3.0),
            Input::normal([batch, d], 1.0),
        ],
        run: Box::new(move |x| {
            let poles = Poles::modal(&x[1], &x[2], &signs(real, x[0].dtype())?)?;
            scan(&x[0], &poles, initial.then_some(&x[3]), path)
        }),
        oracle: Box::new(move |x| {
            let a = |i: usize, j: usize| {
                if i < real || j < real {
                    let sign = if i.is_multiple_of(2) { 1.0 } else { -1.0 };
                    return if i == j { sign * x[1].data[i] } else { 0.0 };
                }
                let (pair, row, column) = ((i - real) / 2, (i - real) % 2, (j - real) % 2);
                if pair != (j - real) / 2 {
                    return 0.0;
                }
                let (radius, angle) = (x[1].data[real + pair], x[2].data[pair]);
                radius * [[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]][row][column]
            };
            dense(&a, &x[0], initial.then_some(&x[3]))
        }),
    }
}

fn full([batch, steps, d]: [usize; 3], initial: bool) -> Case {
    Case {
        name: format!("dense {batch} x {steps} x {d}, initial {initial}"),
        inputs: vec![
            Input::normal([batch, steps, d], 1.0),
            Input::normal([d, d], 0.5 / (d as f64).sqrt()),
            Input::normal([batch, d], 1.0),
        ],
        run: Box::new(move |x| {
            scan(&x[0], &Poles::Dense(x[1].clone()), initial.then_some(&x[2]), ScanPath::Sequential)
        }),
        oracle: Box::new(move |x| dense(&|i, j| x[1].data[i * d + j], &x[0], initial.then_some(&x[2]))),
    }
}

const PATHS: [ScanPath; 3] = [ScanPath::Sequential, ScanPath::Chunked, ScanPath::Fft];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in PATHS {
        cases.push(diagonal([2, 33, 5], true, path));
        cases.push(diagonal([3, 1, 1], true, path));
        cases.push(diagonal([0, 4, 2], false, path));
        cases.push(diagonal([2, 0, 2], false, path));
        cases.push(diagonal([1, 300, 17], false, path));
        cases.push(modal([2, 70], [3, 2], true, path));
        cases.push(modal([1, 65], [0, 3], false, path));
    }
    cases.push(full([2, 9, 4], true));
    cases.push(full([1, 1, 1], false));
    cases
}

pub fn random(rng: &mut ShapeRng) -> Case {
    let (batch, steps, path) = (rng.size(1, 3), rng.size(1, 130), PATHS[rng.size(0, 2)]);
    match rng.size(0, 2) {
        0 => diagonal([batch, steps, rng.size(1, 9)], rng.coin(), path),
        1 => modal([batch, steps], [rng.size(0, 4), rng.size(1, 3)], rng.coin(), path),
        _ => full([batch, steps, rng.size(1, 5)], rng.coin()),
    }
}
