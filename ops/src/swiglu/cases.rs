//! Cases and oracles.

use super::swiglu;
use crate::testing::{Case, Input, ShapeRng};

fn case(shape: &[usize]) -> Case {
    Case {
        name: format!("{shape:?}"),
        inputs: vec![Input::normal(shape, 2.0), Input::normal(shape, 1.0)],
        run: Box::new(|x| swiglu(&x[0], &x[1])),
        oracle: Box::new(|x| x[0].data.iter().zip(&x[1].data).map(|(a, b)| a / (1.0 + (-a).exp()) * b).collect()),
    }
}

pub fn cases() -> Vec<Case> {
    vec![case(&[3, 7]), case(&[0]), case(&[1]), case(&[2, 9_000])]
}

pub fn random(rng: &mut ShapeRng) -> Case {
    case(&[rng.size(0, 4), rng.size(1, 50)])
}
