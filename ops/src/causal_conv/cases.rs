//! Cases and oracles.

use super::causal_conv;
use crate::testing::{Case, Input, ShapeRng};

fn case([batch, tokens, channels]: [usize; 3]) -> Case {
    Case {
        name: format!("{batch} x {tokens} x {channels}"),
        inputs: vec![Input::normal([batch, tokens, channels], 1.0), Input::normal([channels, tokens], 1.0)],
        run: Box::new(|x| causal_conv(&x[0], &x[1])),
        oracle: Box::new(move |x| {
            let (u, kernel) = (&x[0].data, &x[1].data);
            let element = |i: usize| {
                let (b, t, c) = (i / channels / tokens, i / channels % tokens, i % channels);
                (0..=t).map(|k| kernel[c * tokens + k] * u[(b * tokens + t - k) * channels + c]).sum()
            };
            (0..u.len()).map(element).collect()
        }),
    }
}

pub fn cases() -> Vec<Case> {
    [[2, 7, 3], [1, 1, 1], [0, 4, 2], [2, 0, 2], [3, 33, 17]].map(case).into()
}

pub fn random(rng: &mut ShapeRng) -> Case {
    case([rng.size(1, 3), rng.size(1, 40), rng.size(1, 10)])
}
