//! Cases and oracles.

use super::{Head, Targets, cross_entropy};
use crate::elementwise::clamp;
use crate::testing::{Case, Input, ShapeRng};

fn case(shape: &[usize], width: usize, classes: usize, bias: bool, smoothing: f64) -> Case {
    capped(shape, width, classes, (bias, None), smoothing)
}

fn capped(shape: &[usize], width: usize, classes: usize, (bias, cap): (bool, Option<f64>), smoothing: f64) -> Case {
    let mut hidden = shape.to_vec();
    hidden.push(width);
    Case {
        name: format!("{shape:?} x {width}, {classes} classes, bias {bias}, cap {cap:?}, smoothing {smoothing}"),
        inputs: vec![
            Input::normal(hidden, 1.0),
            Input::normal([classes, width], 0.5),
            Input::normal([classes], 1.0),
            Input::tokens(shape, classes),
            // A third of the weights is 0.
            Input::uniform(shape, -1.0, 2.0).frozen(),
        ],
        run: Box::new(move |x| {
            let head = Head { weight: &x[1], bias: bias.then_some(&x[2]), cap };
            let weights = clamp(&x[4], 0.0, 2.0)?;
            cross_entropy(&x[0], head, Targets { tokens: &x[3], weights: &weights, smoothing, normalizer: 3.5 })
        }),
        oracle: Box::new(move |x| {
            let mut loss = 0.0;
            for ((hidden, target), weight) in x[0].rows().zip(&x[3].data).zip(&x[4].data) {
                let logits: Vec<f64> = x[1]
                    .rows()
                    .zip(&x[2].data)
                    .map(|(w, b)| w.iter().zip(hidden).map(|(w, h)| w * h).sum::<f64>() + if bias { *b } else { 0.0 })
                    .map(|z| cap.map_or(z, |cap| cap * (z / cap).tanh()))
                    .collect();
                let total: f64 = logits.iter().map(|z| z.exp()).sum();
                let minus_log: Vec<f64> = logits.iter().map(|z| -(z.exp() / total).ln()).collect();
                let even = minus_log.iter().sum::<f64>() / classes as f64;
                loss += weight.max(0.0) * ((1.0 - smoothing) * minus_log[*target as usize] + smoothing * even);
            }
            vec![loss / 3.5]
        }),
    }
}

pub fn cases() -> Vec<Case> {
    vec![
        case(&[2, 5], 6, 7, true, 0.0),
        case(&[2, 5], 6, 7, true, 0.1),
        case(&[1], 1, 1, false, 0.0),
        case(&[0], 3, 4, true, 0.0),
        case(&[9], 4, 300, false, 0.2),
        capped(&[2, 5], 6, 7, (true, Some(1.5)), 0.1),
        capped(&[9], 4, 300, (false, Some(30.0)), 0.0),
        // More than one chunk.
        case(&[300], 2, 4_000, true, 0.1),
    ]
}

pub fn random(rng: &mut ShapeRng) -> Case {
    let shape = [rng.size(0, 3), rng.size(1, 6)];
    let cap = rng.coin().then(|| 0.1 * rng.size(5, 50) as f64);
    capped(&shape, rng.size(1, 9), rng.size(1, 20), (rng.coin(), cap), [0.0, 0.1][rng.size(0, 1)])
}
