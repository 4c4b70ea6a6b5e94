//! Cases and oracles.

use super::{
    add, add_scaled, clamp, cos, exp, expm1, multiply, scale, scale_columns, scale_rows, sin, soft_cap, softplus,
};
use crate::testing::{Array, Case, Input, ShapeRng};
use hankel_core::{Result, Tensor};

fn unary(name: &str, shape: &[usize], run: fn(&Tensor) -> Result<Tensor>, oracle: fn(f64) -> f64) -> Case {
    Case {
        name: format!("{name} {shape:?}"),
        inputs: vec![Input::normal(shape, 1.5)],
        run: Box::new(move |x| run(&x[0])),
        oracle: Box::new(move |x| x[0].data.iter().map(|&x| oracle(x)).collect()),
    }
}

fn binary(
    name: &str,
    shape: &[usize],
    run: fn(&Tensor, &Tensor) -> Result<Tensor>,
    oracle: fn(f64, f64) -> f64,
) -> Case {
    Case {
        name: format!("{name} {shape:?}"),
        inputs: vec![Input::normal(shape, 1.0), Input::normal(shape, 1.0)],
        run: Box::new(move |x| run(&x[0], &x[1])),
        oracle: Box::new(move |x: &[Array]| x[0].data.iter().zip(&x[1].data).map(|(&x, &y)| oracle(x, y)).collect()),
    }
}

fn gated(shape: &[usize]) -> Case {
    Case {
        name: format!("add_scaled {shape:?}"),
        inputs: vec![Input::normal(shape, 1.0), Input::normal(shape, 1.0), Input::normal([1], 1.0)],
        run: Box::new(|x| add_scaled(&x[0], &x[1], &x[2])),
        oracle: Box::new(|x| x[0].data.iter().zip(&x[1].data).map(|(a, b)| a + x[2].data[0] * b).collect()),
    }
}

fn limits(shape: &[usize]) -> Case {
    unary("clamp", shape, |x| clamp(x, -1.25, 0.5), |x| x.clamp(-1.25, 0.5))
}

fn all(shape: &[usize]) -> Vec<Case> {
    vec![
        binary("add", shape, add, |x, y| x + y),
        binary("multiply", shape, multiply, |x, y| x * y),
        gated(shape),
        unary("scale", shape, |x| scale(x, -0.7), |x| -0.7 * x),
        unary("exp", shape, exp, f64::exp),
        unary("expm1", shape, expm1, f64::exp_m1),
        unary("softplus", shape, softplus, |x| (1.0 + x.exp()).ln()),
        unary("soft_cap", shape, |x| soft_cap(x, 0.8), |x| 0.8 * (x / 0.8).tanh()),
        unary("sin", shape, sin, f64::sin),
        unary("cos", shape, cos, f64::cos),
        // Running angles are many turns.
        Case { inputs: vec![Input::uniform(shape, -40.0, 40.0)], ..unary("sin of many turns", shape, sin, f64::sin) },
        // Away from the corners, where no derivative exists.
        Case { inputs: vec![Input::uniform(shape, -1.2, 0.4)], ..limits(shape) },
        Case { inputs: vec![Input::uniform(shape, 0.6, 2.0)], ..limits(shape) },
    ]
}

fn rows(n: usize, m: usize) -> Case {
    Case {
        name: format!("scale_rows {n} x {m}"),
        inputs: vec![Input::normal([n, m], 1.0), Input::normal([n], 1.0)],
        run: Box::new(|x| scale_rows(&x[0], &x[1])),
        oracle: Box::new(move |x| x[0].data.iter().enumerate().map(|(i, v)| v * x[1].data[i / m]).collect()),
    }
}

fn columns(shape: &[usize], bias: bool) -> Case {
    let m = shape[shape.len() - 1];
    let mut inputs = vec![Input::normal(shape, 1.0), Input::normal([m], 1.0)];
    if bias {
        inputs.push(Input::normal([m], 1.0));
    }
    Case {
        name: format!("scale_columns {shape:?}, bias {bias}"),
        inputs,
        run: Box::new(|x| scale_columns(&x[0], &x[1], x.get(2))),
        oracle: Box::new(move |x| {
            let bias = |i: usize| if bias { x[2].data[i % m] } else { 0.0 };
            x[0].data.iter().enumerate().map(|(i, v)| v * x[1].data[i % m] + bias(i)).collect()
        }),
    }
}

pub fn cases() -> Vec<Case> {
    let shapes = [&[][..], &[0], &[1], &[3, 5, 7], &[2, 20_001]];
    let rows = [rows(3, 4), rows(1, 1), rows(0, 2)];
    let columns = [
        columns(&[2, 3, 5], true),
        columns(&[2, 3, 5], false),
        columns(&[1], true),
        columns(&[0, 4], true),
        columns(&[3, 0], false),
        columns(&[170, 131], true),
    ];
    shapes.into_iter().flat_map(all).chain(rows).chain(columns).collect()
}

pub fn random(rng: &mut ShapeRng) -> Case {
    let shape = [rng.size(0, 5), rng.size(1, 9)];
    let mut cases = all(&shape);
    cases.push(rows(shape[0], shape[1]));
    cases.push(columns(&[rng.size(0, 4), rng.size(0, 4), rng.size(1, 150)], rng.coin()));
    let chosen = rng.size(0, cases.len() - 1);
    cases.swap_remove(chosen)
}
