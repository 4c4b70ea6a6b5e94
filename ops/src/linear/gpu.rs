//! Linear maps on a GPU.

pub(crate) mod blocks;
mod cooperative;
#[cfg(test)]
mod fragments;
mod gemm;
mod kernels;
mod self_test;
mod speed;
#[cfg(test)]
mod tests;
pub mod variants;

pub(crate) use cooperative::{Form, Halves, form, halves, lacks as lacks_f16, suits as suits_f16};
pub(crate) use gemm::{Epilogue, Left, Right, Stored, converted, gemm, whole};
pub(crate) use self_test::f16_is_right;
pub(crate) use speed::{LONG_ENOUGH, WORTH, f16_is_faster, least_seconds};

use super::{Needs, Scale};
use crate::gpu::{Output, floats, stored};
use crate::sums::dot;
use hankel_core::gpu::{Gpu, GpuBuffer};
use hankel_core::{Precision, Result, Tensor};

fn rows<'a>(data: &'a GpuBuffer, like: &'a Tensor) -> Left<'a> {
    Left { data, first: 0, rows: like.shape().rows(), cols: like.shape().last(), transposed: false, tensor: Some(like) }
}

/// An epilogue that scales.
fn scaled<'a>(name: &'static str, gpu: &Gpu, scale: Scale<'a>) -> Result<Epilogue<'a>> {
    let gate = scale.gate.map(|gate| floats(name, "gate", gate, gpu)).transpose()?;
    Ok(Epilogue { factor: scale.factor as f32, gate, ..Epilogue::default() })
}

/// A weight `[out, in]` or its transpose as the right factor.
fn right<'a>(gpu: &Gpu, name: &'static str, weight: &'a Tensor, transposed: bool) -> Result<Right<'a>> {
    let storage = stored(name, "weight", weight, gpu)?;
    Ok(Right { storage, first: 0, rows: weight.shape()[0], cols: weight.shape()[1], transposed })
}

/// `base + scale x W^T + b`.
pub(super) fn project(
    gpu: &'static Gpu,
    name: &'static str,
    base: Option<&Tensor>,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    scale: Scale,
    precision: Precision,
) -> Result<Tensor> {
    let outputs = weight.shape()[0];
    let out = Output::new(gpu, x.shape().rows() * outputs)?;
    let how = Epilogue {
        base: base.map(|base| floats(name, "base", base, gpu)).transpose()?,
        bias: bias.map(|bias| floats(name, "bias", bias, gpu)).transpose()?,
        precision,
        ..scaled(name, gpu, scale)?
    };
    let left = rows(floats(name, "x", x, gpu)?, x);
    gemm(gpu, left, right(gpu, name, weight, true)?, how, out.buffer())?;
    out.finish(x.shape().with_last(outputs))
}

/// `sum + scale g W`.
#[expect(clippy::needless_pass_by_value, reason = "on the CPU its memory is used for the result")]
pub(super) fn times_weight(
    gpu: &'static Gpu,
    name: &'static str,
    g: &Tensor,
    weight: &Tensor,
    scale: Scale,
    precision: Precision,
    sum: Option<Tensor>,
) -> Result<Tensor> {
    let inputs = weight.shape()[1];
    let out = Output::new(gpu, g.shape().rows() * inputs)?;
    let base = sum.as_ref().map(|sum| floats(name, "sum of gradients", sum, gpu)).transpose()?;
    let how = Epilogue { base, precision, ..scaled(name, gpu, scale)? };
    let left = rows(floats(name, "gradient", g, gpu)?, g);
    gemm(gpu, left, right(gpu, name, weight, false)?, how, out.buffer())?;
    out.finish(g.shape().with_last(inputs))
}

/// The gradients of the weight and of the gate, a product for each: the first is scaled as it is written.
pub(super) fn weight_gradients(
    gpu: &'static Gpu,
    name: &'static str,
    g: &Tensor,
    x: &Tensor,
    weight: Option<&Tensor>,
    scale: Scale,
    needs: Needs,
) -> Result<[Option<Tensor>; 2]> {
    let d_weight = if needs.weight { Some(outer(gpu, name, g, x, scaled(name, gpu, scale)?)?) } else { None };
    let d_gate = match weight {
        Some(weight) if needs.gate => Some(dot(&outer(gpu, name, g, x, Epilogue::default())?, weight)?),
        _ => None,
    };
    Ok([d_weight, d_gate])
}

/// `g^T x` summed over rows, `[out, in]`.
fn outer(gpu: &'static Gpu, name: &'static str, g: &Tensor, x: &Tensor, how: Epilogue) -> Result<Tensor> {
    let (outputs, inputs) = (g.shape().last(), x.shape().last());
    let out = Output::new(gpu, outputs * inputs)?;
    let left = Left { transposed: true, ..rows(floats(name, "gradient", g, gpu)?, g) };
    let storage = stored(name, "x", x, gpu)?;
    let right = Right { storage, first: 0, rows: x.shape().rows(), cols: inputs, transposed: false };
    gemm(gpu, left, right, how, out.buffer())?;
    out.finish([outputs, inputs])
}
