//! Cases and oracles.

use super::delta_scan;
use crate::testing::{Array, Case, Input, ShapeRng};

/// The recurrence as it is written, with the matrix `I - beta k k^T`.
fn naive(x: &[Array], initial: Option<&Array>) -> Vec<f64> {
    let [batch, steps, heads] = x[2].shape[..] else { panic!("a sequence") };
    let (n, m) = (x[0].last() / heads, x[1].last() / heads);
    let size = heads * m * n;
    let mut states = Vec::new();
    for b in 0..batch {
        let mut state = initial.map_or(vec![0.0; size], |s| s.data[b * size..][..size].to_vec());
        for at in (b * steps * heads..(b + 1) * steps * heads).step_by(heads) {
            for h in 0..heads {
                let (k, v) = (&x[0].data[(at + h) * n..][..n], &x[1].data[(at + h) * m..][..m]);
                let beta = x[2].data[at + h];
                let map = |i: usize, j: usize| f64::from(u8::from(i == j)) - beta * k[i] * k[j];
                for (row, v) in state[h * m * n..][..m * n].chunks_mut(n).zip(v) {
                    let moved = |j: usize| (0..n).map(|i| row[i] * map(i, j)).sum::<f64>() + beta * v * k[j];
                    let moved: Vec<f64> = (0..n).map(moved).collect();
                    row.copy_from_slice(&moved);
                }
            }
            states.extend(&state);
        }
    }
    states
}

fn case([batch, steps, heads, n, m]: [usize; 5], initial: bool) -> Case {
    // Keys of norm about 1, so that the states stay bounded.
    let key = 1.0 / (n as f64).sqrt();
    Case {
        name: format!("{batch} x {steps}, {heads} heads of {m} x {n}, initial {initial}"),
        inputs: vec![
            Input::uniform([batch, steps, heads * n], -key, key),
            Input::normal([batch, steps, heads * m], 1.0),
            Input::uniform([batch, steps, heads], 0.0, 2.0),
            Input::normal([batch, heads * m * n], 1.0),
        ],
        run: Box::new(move |x| delta_scan(&x[0], &x[1], &x[2], initial.then_some(&x[3]))),
        oracle: Box::new(move |x| naive(x, initial.then_some(&x[3]))),
    }
}

pub fn cases() -> Vec<Case> {
    let sizes = [[2, 5, 2, 3, 4], [1, 1, 1, 1, 1], [0, 3, 1, 2, 2], [2, 0, 2, 1, 3], [1, 40, 1, 8, 8], [3, 2, 5, 4, 1]];
    sizes.into_iter().flat_map(|size| [case(size, false), case(size, true)]).collect()
}

pub fn random(rng: &mut ShapeRng) -> Case {
    let sizes = [rng.size(1, 3), rng.size(1, 40), rng.size(1, 4), rng.size(1, 6), rng.size(1, 6)];
    case(sizes, rng.coin())
}
