//! Linear maps on a GPU.

pub(crate) mod blocks;
mod cooperative;
mod gemm;
mod kernels;
mod self_test;
#[cfg(test)]
mod tests;
pub mod variants;

pub(crate) use cooperative::lacks as lacks_f16;
pub(crate) use gemm::{Epilogue, Left, Right, converted, gemm, whole};
pub(crate) use self_test::f16_is_right;

use super::{Gate, precision};
use crate::gpu::{Output, column_sums, floats, stored};
use hankel_core::gpu::{Gpu, GpuBuffer};
use hankel_core::{Error, Result, Tensor, autograd};

fn rows<'a>(data: &'a GpuBuffer, like: &Tensor) -> Left<'a> {
    Left { data, first: 0, rows: like.shape().rows(), cols: like.shape().last(), transposed: false }
}

/// `factor gate x W^T + b + base`.
fn project(gpu: &'static Gpu, name: &'static str, x: &Tensor, weight: &Tensor, how: Epilogue) -> Result<Tensor> {
    let (outputs, inputs) = (weight.shape()[0], weight.shape()[1]);
    let out = Output::new(gpu, x.shape().rows() * outputs)?;
    let right = Right {
        storage: stored(name, "weight", weight, gpu)?,
        first: 0,
        rows: outputs,
        cols: inputs,
        transposed: true,
    };
    gemm(gpu, rows(floats(name, "x", x, gpu)?, x), right, how, out.buffer())?;
    out.finish(x.shape().with_last(outputs))
}

/// `factor gate g W`.
fn times_weight(gpu: &'static Gpu, name: &'static str, g: &Tensor, weight: &Tensor, how: Epilogue) -> Result<Tensor> {
    let (outputs, inputs) = (weight.shape()[0], weight.shape()[1]);
    let out = Output::new(gpu, g.shape().rows() * inputs)?;
    let right = Right {
        storage: stored(name, "weight", weight, gpu)?,
        first: 0,
        rows: outputs,
        cols: inputs,
        transposed: false,
    };
    gemm(gpu, rows(floats(name, "gradient", g, gpu)?, g), right, how, out.buffer())?;
    out.finish(g.shape().with_last(inputs))
}

/// `factor gate g^T x`, `[out, in]`.
fn weight_gradient(gpu: &'static Gpu, name: &'static str, g: &Tensor, x: &Tensor, how: Epilogue) -> Result<Tensor> {
    let (outputs, inputs) = (g.shape().last(), x.shape().last());
    let out = Output::new(gpu, outputs * inputs)?;
    let left = Left { transposed: true, ..rows(floats(name, "gradient", g, gpu)?, g) };
    let right = Right {
        storage: stored(name, "x", x, gpu)?,
        first: 0,
        rows: x.shape().rows(),
        cols: inputs,
        transposed: false,
    };
    gemm(gpu, left, right, how, out.buffer())?;
    out.finish([outputs, inputs])
}

pub(super) fn linear(gpu: &'static Gpu, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    const NAME: &str = "linear";
    let precision = precision::of_product(x, weight)?;
    let bias_buffer = bias.map(|bias| floats(NAME, "bias", bias, gpu)).transpose()?;
    let how = Epilogue { bias: bias_buffer, precision, ..Epilogue::default() };
    let out = project(gpu, NAME, x, weight, how)?;
    let saved_x = autograd::needs_gradient(weight).then(|| x.detach());
    let saved_weight = autograd::needs_gradient(x).then(|| weight.detach());
    out.from_operator(NAME, &[Some(x), Some(weight), bias], move |g, wanted| {
        let how = Epilogue { precision, ..Epilogue::default() };
        let dx = saved_weight.map(|w| times_weight(gpu, NAME, &g, &w, how)).transpose()?;
        let dw = saved_x.map(|x| weight_gradient(gpu, NAME, &g, &x, Epilogue::default())).transpose()?;
        let sums = || column_sums(gpu, floats(NAME, "gradient", &g, gpu)?, None, g.shape().rows(), g.shape().last());
        Ok(vec![dx, dw, wanted[2].then(sums).transpose()?])
    })
}

pub(super) fn add_linear(
    gpu: &'static Gpu,
    base: &Tensor,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    gate: Gate,
) -> Result<Tensor> {
    const NAME: &str = "add_linear";
    let (factor, gate) = match gate {
        Gate::Fixed(factor) => (factor as f32, None),
        Gate::Learned(_) if weight.dtype().is_compact() => {
            let problem = format!("a learned gate needs a weight in f32, found {}", weight.dtype());
            return Err(Error::invalid(NAME, problem));
        }
        Gate::Learned(gate) if gate.elements() == 1 => (1.0, Some(gate)),
        Gate::Learned(gate) => {
            return Err(Error::shape(NAME, format!("gate has shape {}, expected one element", gate.shape())));
        }
    };
    let how = Epilogue {
        factor,
        gate: gate.map(|gate| floats(NAME, "gate", gate, gpu)).transpose()?,
        base: Some(floats(NAME, "base", base, gpu)?),
        bias: bias.map(|bias| floats(NAME, "bias", bias, gpu)).transpose()?,
        first: 0,
        precision: precision::of_product(x, weight)?,
    };
    let precision = how.precision;
    let out = project(gpu, NAME, x, weight, how)?;

    let gate_learns = gate.is_some_and(autograd::needs_gradient);
    let learns = autograd::needs_gradient(weight) || gate_learns;
    let saved_x = learns.then(|| x.detach());
    let saved_weight = (autograd::needs_gradient(x) || gate_learns).then(|| weight.detach());
    let saved_gate = gate.map(Tensor::detach);
    let parents = [Some(base), Some(x), Some(weight), bias, gate];
    out.from_operator(NAME, &parents, move |g, wanted| {
        let gate = saved_gate.as_ref().map(|gate| floats(NAME, "gate", gate, gpu)).transpose()?;
        let scaled = Epilogue { factor, gate, ..Epilogue::default() };
        let (mut dw, mut dgate) = (None, None);
        if let Some(x) = &saved_x {
            if wanted[2] {
                dw = Some(weight_gradient(gpu, NAME, &g, x, scaled)?);
            }
            if let (true, Some(weight), Some(gate)) = (wanted[4], &saved_weight, &saved_gate) {
                // The inner product of g^T x and W.
                let product = weight_gradient(gpu, NAME, &g, x, Epilogue::default())?;
                let (product, weight) = (floats(NAME, "product", &product, gpu)?, floats(NAME, "weight", weight, gpu)?);
                let n = g.shape().last() * x.shape().last();
                dgate = Some(column_sums(gpu, product, Some(weight), n, 1)?.reshape(gate.shape())?);
            }
        }
        let dx = match (&saved_weight, wanted[1]) {
            (Some(weight), true) => Some(times_weight(gpu, NAME, &g, weight, Epilogue { precision, ..scaled })?),
            _ => None,
        };
        let sums = || column_sums(gpu, floats(NAME, "gradient", &g, gpu)?, None, g.shape().rows(), g.shape().last());
        let db = wanted[3].then(sums).transpose()?;
        Ok(vec![wanted[0].then_some(g), dx, dw, db, dgate])
    })
}
