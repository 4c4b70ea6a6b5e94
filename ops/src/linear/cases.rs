//! Cases and oracles.

use super::{Gate, add_linear, linear};
use crate::registry::{Array, Case, Dice, Input};

/// `x W^T`, row by row.
fn product(x: &Array, weight: &Array) -> Vec<f64> {
    let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
    x.rows().flat_map(|x| weight.rows().map(move |w| dot(x, w))).collect()
}

fn plain(shape: &[usize], outputs: usize, bias: bool) -> Case {
    let inputs = shape[shape.len() - 1];
    let mut tensors = vec![Input::normal(shape, 1.0), Input::normal([outputs, inputs], 0.5)];
    if bias {
        tensors.push(Input::normal([outputs], 1.0));
    }
    Case {
        name: format!("linear {shape:?} -> {outputs}, bias {bias}"),
        inputs: tensors,
        run: Box::new(|x| linear(&x[0], &x[1], x.get(2))),
        oracle: Box::new(move |x| {
            let mut y = product(&x[0], &x[1]);
            if bias {
                y.iter_mut().enumerate().for_each(|(i, y)| *y += x[2].data[i % outputs]);
            }
            y
        }),
    }
}

fn added(shape: &[usize], outputs: usize, bias: bool, learned: bool) -> Case {
    let mut base = shape.to_vec();
    let inputs = std::mem::replace(base.last_mut().expect("a shape"), outputs);
    let tensors = vec![
        Input::normal(base, 1.0),
        Input::normal(shape, 1.0),
        Input::normal([outputs, inputs], 0.5),
        Input::normal([outputs], 1.0),
        Input::normal([1], 0.7),
    ];
    Case {
        name: format!("add_linear {shape:?} -> {outputs}, bias {bias}, learned gate {learned}"),
        inputs: tensors,
        run: Box::new(move |x| {
            let gate = if learned { Gate::Learned(&x[4]) } else { Gate::Fixed(-0.3) };
            add_linear(&x[0], &x[1], &x[2], bias.then_some(&x[3]), gate)
        }),
        oracle: Box::new(move |x| {
            let gate = if learned { x[4].data[0] } else { -0.3 };
            let bias = |i: usize| if bias { x[3].data[i % outputs] } else { 0.0 };
            let base = x[0].data.iter().zip(product(&x[1], &x[2]));
            base.enumerate().map(|(i, (base, y))| base + gate * y + bias(i)).collect()
        }),
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        plain(&[2, 3, 5], 7, true),
        plain(&[0, 5], 3, true),
        plain(&[1, 1], 1, false),
        plain(&[130, 33], 65, false),
        plain(&[4500, 9], 6, true),
    ];
    for (bias, learned) in [(false, false), (true, false), (false, true), (true, true)] {
        cases.push(added(&[2, 3, 5], 7, bias, learned));
    }
    cases.push(added(&[0, 4], 3, true, true));
    cases.push(added(&[70, 32], 129, false, true));
    cases
}

pub fn random(dice: &mut Dice) -> Case {
    let shape = [dice.size(0, 3), dice.size(0, 20), dice.size(1, 40)];
    let outputs = dice.size(1, 40);
    if dice.coin() { plain(&shape, outputs, dice.coin()) } else { added(&shape, outputs, dice.coin(), dice.coin()) }
}
