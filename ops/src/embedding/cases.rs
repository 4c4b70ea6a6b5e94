//! Cases and oracles.

use super::embedding;
use crate::testing::{Case, Input, ShapeRng};

fn case(shape: &[usize], vocabulary: usize, width: usize) -> Case {
    Case {
        name: format!("{shape:?} of {vocabulary} x {width}"),
        inputs: vec![Input::tokens(shape, vocabulary), Input::normal([vocabulary, width], 1.0)],
        run: Box::new(|x| embedding(&x[0], &x[1])),
        oracle: Box::new(|x| {
            let rows: Vec<&[f64]> = x[1].rows().collect();
            x[0].data.iter().flat_map(|&id| rows[id as usize].to_vec()).collect()
        }),
    }
}

pub fn cases() -> Vec<Case> {
    vec![case(&[2, 7], 5, 3), case(&[0], 4, 2), case(&[1], 1, 1), case(&[4, 33], 17, 129)]
}

pub fn random(rng: &mut ShapeRng) -> Case {
    case(&[rng.size(0, 4), rng.size(1, 9)], rng.size(1, 7), rng.size(1, 6))
}
