//! Cases and oracles.

use super::{inverse_row_norms, row_squares};
use crate::linear;
use crate::testing::{Array, Case, Input, ShapeRng};

/// The sum is formed here.
fn oracle(weight: &Array, a: &Array, b: &Array, scale: f64) -> Vec<f64> {
    let updated = |w: &[f64], b: &[f64]| -> f64 {
        let update = |j: usize| b.iter().zip(a.rows()).map(|(b, a)| b * a[j]).sum::<f64>();
        w.iter().enumerate().map(|(j, w)| (w + scale * update(j)).powi(2)).sum::<f64>().sqrt()
    };
    weight.rows().zip(b.rows()).map(|(w, b)| updated(w, b)).map(|n| if n > 0.0 { 1.0 / n } else { 0.0 }).collect()
}

fn case(outputs: usize, inputs: usize, rank: usize, std: f64) -> Case {
    let scale = 1.7;
    let shapes = [([outputs, inputs], std), ([rank, inputs], 0.5), ([outputs, rank], std)];
    Case {
        name: format!("{outputs} x {inputs}, rank {rank}, std {std}"),
        inputs: shapes.map(|(shape, std)| Input::normal(shape, std).frozen()).to_vec(),
        run: Box::new(move |x| {
            inverse_row_norms(&row_squares(&x[0])?, &linear(&x[1], &x[0], None)?, &x[1], &x[2], scale)
        }),
        oracle: Box::new(move |x| oracle(&x[0], &x[1], &x[2], scale)),
    }
}

pub fn cases() -> Vec<Case> {
    vec![case(7, 5, 3, 1.0), case(1, 1, 1, 1.0), case(0, 4, 2, 1.0), case(3, 4, 2, 0.0), case(130, 300, 8, 0.3)]
}

pub fn random(rng: &mut ShapeRng) -> Case {
    // Enough columns that no row is all but cancelled: there the error is that of the terms, not of the sum.
    case(rng.size(0, 20), rng.size(20, 60), rng.size(1, 8), 1.0)
}
