//! Cases and oracles.

use super::{Rotary, rope};
use crate::testing::{Case, Input, ShapeRng};

fn case([batch, steps]: [usize; 2], heads: usize, rotary: Rotary, offset: usize) -> Case {
    let head_dim = rotary.head_dim();
    let Rotary { frequencies, magnitude } = rotary.clone();
    Case {
        name: format!("{batch} x {steps}, {heads} heads of {head_dim} from {offset}, times {magnitude}"),
        inputs: vec![Input::normal([batch, steps, heads * head_dim], 1.0)],
        run: Box::new(move |x| rope(&x[0], &rotary, offset)),
        oracle: Box::new(move |x| {
            let element = |i: usize| {
                let (token, within) = (i / (heads * head_dim) % steps, i % head_dim);
                let (half, head) = (head_dim / 2, i - within);
                let k = within % half;
                let angle = (offset + token) as f64 * frequencies[k];
                let (re, im) = (x[0].data[head + k], x[0].data[head + k + half]);
                let turned = if within < half {
                    re * angle.cos() - im * angle.sin()
                } else {
                    re * angle.sin() + im * angle.cos()
                };
                magnitude * turned
            };
            (0..x[0].data.len()).map(element).collect()
        }),
    }
}

pub fn cases() -> Vec<Case> {
    let stretched = Rotary { frequencies: [0.5, 0.02, 0.3].into(), magnitude: 1.2 };
    vec![
        case([2, 5], 3, Rotary::new(8, 1e4), 0),
        case([1, 1], 1, Rotary::new(2, 1e4), 0),
        case([0, 4], 2, Rotary::new(4, 1e4), 3),
        case([1, 0], 2, Rotary::new(4, 1e4), 3),
        case([2, 3], 2, Rotary::new(6, 1e4), 4093),
        case([1, 700], 2, Rotary::new(32, 1e6), 17),
        case([2, 9], 2, stretched, 5),
    ]
}

pub fn random(rng: &mut ShapeRng) -> Case {
    let sizes = [rng.size(0, 2), rng.size(0, 20)];
    let (heads, head_dim) = (rng.size(1, 3), 2 * rng.size(1, 9));
    let (offset, theta) = (rng.size(0, 500), 10.0_f64.powi(rng.size(1, 6) as i32));
    let magnitude = rng.size(1, 4) as f64 / 2.0;
    case(sizes, heads, Rotary { magnitude, ..Rotary::new(head_dim, theta) }, offset)
}
