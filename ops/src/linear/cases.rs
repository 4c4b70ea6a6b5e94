//! Cases and oracles.

use super::{Gate, add_linear, linear, nf4};
use crate::testing::{Array, Case, Input, ShapeRng};
use half::{bf16, f16};
use hankel_core::{DType, Device, Result, Tensor};

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

/// What a frozen weight is stored in.
#[derive(Debug, Clone, Copy)]
enum Stored {
    Bf16,
    F16,
    Nf4,
    /// Packed 4-bit floats with double quantisation, of a matrix that was `bf16`.
    DoubleNf4,
}

impl Stored {
    /// Weights are quantised in main memory, whichever device they are for.
    fn store(self, weight: &Tensor) -> Result<Tensor> {
        let here = weight.to_device(Device::Cpu)?;
        let stored = match self {
            Stored::Bf16 => here.to_dtype(DType::BF16),
            Stored::F16 => here.to_dtype(DType::F16),
            Stored::Nf4 => nf4::quantize(&here.to_dtype(DType::F32)?, false),
            Stored::DoubleNf4 => nf4::quantize(&here.to_dtype(DType::BF16)?, true),
        };
        stored?.to_device(weight.device())
    }

    /// The values that the product should use.
    fn values(self, weight: &[f64]) -> Vec<f64> {
        match self {
            Stored::Bf16 => weight.iter().map(|&x| bf16::from_f32(x as f32).to_f64()).collect(),
            Stored::F16 => weight.iter().map(|&x| f16::from_f32(x as f32).to_f64()).collect(),
            Stored::Nf4 => weight
                .chunks(nf4::BLOCK)
                .flat_map(|block| {
                    let absmax = block.iter().fold(0.0_f64, |m, x| m.max(x.abs())) as f32;
                    let nearest = move |x: &f64| {
                        let distance = |code: &&f32| (f64::from(**code) * f64::from(absmax) - x).abs();
                        nf4::CODEBOOK.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).expect("16 values")
                    };
                    block.iter().map(move |x| f64::from(nearest(x) * absmax)).collect::<Vec<_>>()
                })
                .collect(),
            // The golden cases have the values; here the product alone is at stake.
            Stored::DoubleNf4 => {
                let stored =
                    Tensor::from_vec(weight.to_vec(), [1, weight.len()]).and_then(|weight| self.store(&weight));
                stored.expect("finite values").to_f64_vec()
            }
        }
    }
}

fn compact(shape: &[usize], outputs: usize, stored: Stored) -> Case {
    let inputs = shape[shape.len() - 1];
    Case {
        name: format!("linear {shape:?} -> {outputs}, weight {stored:?}"),
        inputs: vec![Input::normal(shape, 1.0), Input::normal([outputs, inputs], 0.5).frozen()],
        run: Box::new(move |x| linear(&x[0], &stored.store(&x[1])?, None)),
        oracle: Box::new(move |x| {
            product(&x[0], &Array { data: stored.values(&x[1].data), shape: x[1].shape.clone() })
        }),
    }
}

fn compact_added(shape: &[usize], outputs: usize, stored: Stored) -> Case {
    let mut base = shape.to_vec();
    *base.last_mut().expect("a shape") = outputs;
    let Case { name, mut inputs, .. } = compact(shape, outputs, stored);
    inputs.push(Input::normal(base, 1.0));
    Case {
        name: format!("add_{name}"),
        inputs,
        run: Box::new(move |x| add_linear(&x[2], &x[0], &stored.store(&x[1])?, None, Gate::Fixed(0.7))),
        oracle: Box::new(move |x| {
            let y = product(&x[0], &Array { data: stored.values(&x[1].data), shape: x[1].shape.clone() });
            y.iter().zip(&x[2].data).map(|(y, base)| base + 0.7 * y).collect()
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
    for stored in [Stored::Bf16, Stored::F16, Stored::Nf4, Stored::DoubleNf4] {
        cases.extend([compact(&[2, 3, 5], 7, stored), compact(&[0, 4], 3, stored), compact(&[1, 1], 1, stored)]);
        cases.extend([compact(&[9, 130], 65, stored), compact_added(&[3, 71], 50, stored)]);
        // Large enough for every path of the product.
        cases.push(compact(&[70, 600], 530, stored));
    }
    cases
}

pub fn random(rng: &mut ShapeRng) -> Case {
    let shape = [rng.size(0, 3), rng.size(0, 20), rng.size(1, 40)];
    let outputs = rng.size(1, 40);
    match rng.size(0, 3) {
        0 => plain(&shape, outputs, rng.coin()),
        1 => added(&shape, outputs, rng.coin(), rng.coin()),
        _ => compact(&shape, outputs, [Stored::Bf16, Stored::F16, Stored::Nf4, Stored::DoubleNf4][rng.size(0, 3)]),
    }
}
