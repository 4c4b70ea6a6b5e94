//! Cases and oracles.

use super::gelu;
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

fn case(shape: &[usize]) -> Case {
    Case {
        name: format!("{shape:?}"),
        inputs: vec![Input::normal(shape, 1.5)],
        run: Box::new(|x| gelu(&x[0])),
        oracle: Box::new(|x| x[0].data.iter().map(|&x| x * distribution(x)).collect()),
    }
}

pub fn cases() -> Vec<Case> {
    vec![case(&[3, 7]), case(&[0]), case(&[1]), case(&[2, 9_000])]
}

pub fn random(rng: &mut ShapeRng) -> Case {
    case(&[rng.size(0, 4), rng.size(1, 50)])
}
