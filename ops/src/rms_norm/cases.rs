//! Cases and oracles.

use super::rms_norm;
use crate::testing::{Case, Input, ShapeRng};

const EPS: f64 = 1e-6;

fn case(shape: &[usize]) -> Case {
    let width = shape[shape.len() - 1];
    Case {
        name: format!("{shape:?}"),
        inputs: vec![Input::normal(shape, 2.0), Input::normal([width], 1.0)],
        run: Box::new(|x| rms_norm(&x[0], &x[1], EPS)),
        oracle: Box::new(|x| {
            let row = |row: &[f64]| {
                let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
                row.iter().zip(&x[1].data).map(|(v, w)| v / (mean + EPS).sqrt() * w).collect::<Vec<_>>()
            };
            x[0].rows().flat_map(row).collect()
        }),
    }
}

pub fn cases() -> Vec<Case> {
    vec![case(&[2, 3, 8]), case(&[0, 4]), case(&[5, 131]), case(&[700, 33])]
}

pub fn random(rng: &mut ShapeRng) -> Case {
    case(&[rng.size(0, 3), rng.size(1, 5), rng.size(2, 40)])
}
