//! Cases and oracles.

use super::dropout;
use crate::testing::{Case, Input, ShapeRng};
use hankel_core::Random;

fn case(shape: &[usize], p: f64) -> Case {
    let random = Random::new(7, "cases", 1);
    Case {
        name: format!("{shape:?} p = {p}"),
        inputs: vec![Input::normal(shape, 1.0)],
        run: Box::new(move |x| dropout(&x[0], p, random)),
        oracle: Box::new(move |x| {
            let keep = |i: usize| f64::from(random.bits(i as u64)) / 4_294_967_296.0 >= p;
            x[0].data.iter().enumerate().map(|(i, x)| if keep(i) { x / (1.0 - p) } else { 0.0 }).collect()
        }),
    }
}

pub fn cases() -> Vec<Case> {
    vec![case(&[3, 5], 0.5), case(&[0], 0.5), case(&[1], 0.1), case(&[3, 7001], 0.25), case(&[6], 0.0)]
}

pub fn random(rng: &mut ShapeRng) -> Case {
    case(&[rng.size(0, 5), rng.size(1, 9)], [0.0, 0.1, 0.5, 0.9][rng.size(0, 3)])
}
