//! Cases and oracles.

use super::gelu_tanh;
use crate::testing::{Case, Input, ShapeRng};

fn oracle(x: f64) -> f64 {
    let u = (8.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
    x / (1.0 + (-u).exp())
}

fn case(shape: &[usize], std: f64) -> Case {
    Case {
        name: format!("{shape:?}, std {std}"),
        inputs: vec![Input::normal(shape, std)],
        run: Box::new(|x| gelu_tanh(&x[0])),
        oracle: Box::new(|x| x[0].data.iter().map(|&x| oracle(x)).collect()),
    }
}

pub fn cases() -> Vec<Case> {
    vec![case(&[3, 7], 1.5), case(&[0], 1.0), case(&[1], 1.0), case(&[2, 9_000], 1.5), case(&[5, 300], 30.0)]
}

pub fn random(rng: &mut ShapeRng) -> Case {
    case(&[rng.size(0, 4), rng.size(1, 50)], 1.5)
}
