//! Cases and oracles.

use super::layer_norm;
use crate::testing::{Case, Input, ShapeRng};

const EPS: f64 = 1e-5;

fn case(shape: &[usize], bias: bool) -> Case {
    let width = shape[shape.len() - 1];
    Case {
        name: format!("{shape:?}, bias {bias}"),
        inputs: vec![Input::normal(shape, 2.0), Input::normal([width], 1.0), Input::normal([width], 1.0)],
        run: Box::new(move |x| layer_norm(&x[0], &x[1], bias.then_some(&x[2]), EPS)),
        oracle: Box::new(move |x| {
            let row = |row: &[f64]| {
                let n = row.len() as f64;
                let mean = row.iter().sum::<f64>() / n;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
                let value = |(i, v): (usize, &f64)| {
                    let b = if bias { x[2].data[i] } else { 0.0 };
                    (v - mean) / (variance + EPS).sqrt() * x[1].data[i] + b
                };
                row.iter().enumerate().map(value).collect::<Vec<_>>()
            };
            x[0].rows().flat_map(row).collect()
        }),
    }
}

pub fn cases() -> Vec<Case> {
    vec![
        case(&[2, 3, 8], true),
        case(&[0, 4], true),
        case(&[3, 1], true),
        case(&[5, 131], false),
        case(&[700, 33], true),
    ]
}

pub fn random(rng: &mut ShapeRng) -> Case {
    case(&[rng.size(0, 3), rng.size(1, 5), rng.size(2, 40)], rng.coin())
}
