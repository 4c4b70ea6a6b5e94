//! Cases and oracles.

use super::{Side, orthogonality};
use crate::testing::{Array, Case, Input, ShapeRng};

fn oracle(x: &Array, side: Side) -> f64 {
    let (m, n) = (x.shape[0], x.shape[1]);
    let (size, sum) = if side == Side::Rows { (m, n) } else { (n, m) };
    let at = |i: usize, k: usize| if side == Side::Rows { x.data[i * n + k] } else { x.data[k * n + i] };
    let mut total = 0.0;
    for i in 0..size {
        for j in 0..size {
            let dot: f64 = (0..sum).map(|k| at(i, k) * at(j, k)).sum();
            total += (dot - f64::from(u8::from(i == j))).powi(2);
        }
    }
    total.sqrt()
}

fn case(m: usize, n: usize, side: Side) -> Case {
    Case {
        name: format!("{m} x {n} {side:?}"),
        inputs: vec![Input::normal([m, n], 0.5)],
        run: Box::new(move |x| orthogonality(&x[0], side)),
        oracle: Box::new(move |x| vec![oracle(&x[0], side)]),
    }
}

pub fn cases() -> Vec<Case> {
    [(1, 1), (3, 8), (8, 3), (5, 5), (0, 4), (4, 0), (6, 300), (300, 6)]
        .into_iter()
        .flat_map(|(m, n)| [case(m, n, Side::Rows), case(m, n, Side::Columns)])
        .collect()
}

pub fn random(rng: &mut ShapeRng) -> Case {
    case(rng.size(1, 9), rng.size(1, 9), if rng.coin() { Side::Rows } else { Side::Columns })
}
