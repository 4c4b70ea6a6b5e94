//! Cases and oracles.

use super::{Rotation, rope};
use crate::registry::{Case, Dice, Input};

fn case([batch, steps]: [usize; 2], heads: usize, rotation: Rotation) -> Case {
    let Rotation { head_dim, offset, theta } = rotation;
    Case {
        name: format!("{batch} x {steps}, {heads} heads, {rotation:?}"),
        inputs: vec![Input::normal([batch, steps, heads * head_dim], 1.0)],
        run: Box::new(move |x| rope(&x[0], rotation)),
        oracle: Box::new(move |x| {
            let element = |i: usize| {
                let (token, within) = (i / (heads * head_dim) % steps, i % head_dim);
                let (half, head) = (head_dim / 2, i - within);
                let k = within % half;
                let angle = (offset + token) as f64 / theta.powf(2.0 * k as f64 / head_dim as f64);
                let (re, im) = (x[0].data[head + k], x[0].data[head + k + half]);
                if within < half { re * angle.cos() - im * angle.sin() } else { re * angle.sin() + im * angle.cos() }
            };
            (0..x[0].data.len()).map(element).collect()
        }),
    }
}

const fn rotation(head_dim: usize, offset: usize, theta: f64) -> Rotation {
    Rotation { head_dim, offset, theta }
}

pub fn cases() -> Vec<Case> {
    vec![
        case([2, 5], 3, rotation(8, 0, 1e4)),
        case([1, 1], 1, rotation(2, 0, 1e4)),
        case([0, 4], 2, rotation(4, 3, 1e4)),
        case([1, 0], 2, rotation(4, 3, 1e4)),
        case([2, 3], 2, rotation(6, 4093, 1e4)),
        case([1, 700], 2, rotation(32, 17, 1e6)),
    ]
}

pub fn random(dice: &mut Dice) -> Case {
    let sizes = [dice.size(0, 2), dice.size(0, 20)];
    case(
        sizes,
        dice.size(1, 3),
        rotation(2 * dice.size(1, 9), dice.size(0, 500), 10.0_f64.powi(dice.size(1, 6) as i32)),
    )
}
