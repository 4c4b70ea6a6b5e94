//! Cases and oracles.

use super::{gelu, gelu_tanh};
use crate::testing::{Case, Input, ShapeRng};

/// `Φ` by its Taylor series, good to rounding for the arguments drawn here.
fn distribution(x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > 1e-18 * sum.abs() {
        n += 1.0;
        term *= x * x / (2.0 * n + 1.0);
        sum += term;
    }
    0.5 + sum * (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
}

fn exact(shape: &[usize]) -> Case {
    Case {
        name: format!("{shape:?}"),
        inputs: vec![Input::normal(shape, 1.5)],
        run: Box::new(|x| gelu(&x[0])),
        oracle: Box::new(|x| x[0].data.iter().map(|&x| x * distribution(x)).collect()),
    }
}

fn tanh(shape: &[usize], std: f64) -> Case {
    let oracle = |x: f64| x / (1.0 + (-(8.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).exp());
    Case {
        name: format!("tanh, {shape:?}, std {std}"),
        inputs: vec![Input::normal(shape, std)],
        run: Box::new(|x| gelu_tanh(&x[0])),
        oracle: Box::new(move |x| x[0].data.iter().map(|&x| oracle(x)).collect()),
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> =
        [&[3, 7][..], &[0], &[1], &[2, 9_000]].into_iter().flat_map(|s| [exact(s), tanh(s, 1.5)]).collect();
    cases.push(tanh(&[5, 300], 30.0));
    cases
}

pub fn random(rng: &mut ShapeRng) -> Case {
    let shape = [rng.size(0, 4), rng.size(1, 50)];
    if rng.coin() { exact(&shape) } else { tanh(&shape, 1.5) }
}
