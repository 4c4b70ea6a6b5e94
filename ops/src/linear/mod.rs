//! Linear maps: `y = x W^T + b`, and the same added onto a stream.
//!
//! `x` `[..., in]`, `weight` `[out, in]`, `bias` `[out]`, output `[..., out]`.
//!
//! | | gradient |
//! | --- | --- |
//! | input | `g W` |
//! | weight | `sum over rows g^T x` |
//! | bias | `sum over rows g` |
//!
//! A frozen weight costs no product and nothing is saved for it: the input is kept only if the weight learns.
//!
//! Frozen weights may be `bf16`, `f16`, packed 4-bit floats ([`nf4`]) or in a block format of GGUF files
//! ([`hankel_core::block_formats`]). They are decoded tile by tile inside the product,
//! forwards and for the input's gradient; on a GPU products of many rows decode a weight once, to memory that they give back.
//! They have no gradient of their own: a tensor of these types cannot be a parameter in the first place.
//!
//! Products with frozen weights are made in the thread's [`hankel_core::precision`], forward passes of at most 8 rows on the CPU in
//! `f32`: they are bound by memory, so that rounding would save nothing. Those with weights that learn are made in `f32`.

#[cfg(test)]
mod block_tests;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
mod cpu;
mod few_rows;
pub(crate) mod gpu;
pub mod nf4;
mod nf4_decode;
pub(crate) mod precision;
mod product;
pub(crate) mod weight;

#[doc(hidden)]
pub use gpu::variants;
pub use precision::{check_precision, default_precision, fastest_precision, gpu_precisions};
pub(crate) use product::product;
pub(crate) use weight::Weight;

use crate::check;
use crate::dispatch::on_device;
use crate::sums::column_sums;
use hankel_core::{Error, Result, Shape, Tensor, autograd};

/// Fails unless the tensors fit; the shape of the output.
fn output_shape(operator: &'static str, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Shape> {
    check::float(operator, x)?;
    let &[outputs, inputs] = &weight.shape()[..] else {
        return Err(Error::shape(operator, format!("weight has shape {}, expected [out, in]", weight.shape())));
    };
    if x.shape().is_empty() || x.shape().last() != inputs {
        let problem = format!("input {} does not fit weight {}", x.shape(), weight.shape());
        return Err(Error::shape(operator, problem));
    }
    check::weight_dtype(operator, "weight", weight, x.dtype())?;
    check::device(operator, "weight", weight, x)?;
    if let Some(bias) = bias {
        check::input(operator, "bias", bias, &[outputs], x)?;
    }
    Ok(x.shape().with_last(outputs))
}

/// `x W^T + b`.
///
/// # Errors
/// When shapes, element types or devices do not fit, or the device has no products in this thread's
/// [precision](hankel_core::Precision).
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    output_shape("linear", x, weight, bias)?;
    scaled_linear("linear", None, x, weight, bias, Gate::Fixed(1.0))
}

/// The factor of the added product.
#[derive(Clone, Copy)]
pub enum Gate<'a> {
    /// A constant.
    Fixed(f64),
    /// A tensor with one element.
    Learned(&'a Tensor),
}

/// `base + gate x W^T + b`: a residual connection, a LoRA update or a gated read-out in one pass.
///
/// `base` `[..., out]`. The product with a learned gate is not kept: with `G = sum over rows g^T x`, the gradient of the
/// gate is the inner product of `G` and `W`.
///
/// # Errors
/// Those of [`linear`], and a learned gate beside a compact weight.
pub fn add_linear(base: &Tensor, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, gate: Gate) -> Result<Tensor> {
    const NAME: &str = "add_linear";
    let shape = output_shape(NAME, x, weight, bias)?;
    check::input(NAME, "base", base, &shape, x)?;
    if let Gate::Learned(gate) = gate {
        if weight.dtype().is_compact() {
            let problem = format!("a learned gate needs a weight in {}, found {}", x.dtype(), weight.dtype());
            return Err(Error::invalid(NAME, problem));
        }
        if gate.elements() != 1 {
            return Err(Error::shape(NAME, format!("gate has shape {}, expected one element", gate.shape())));
        }
        check::dtype(NAME, "gate", gate, x.dtype())?;
        check::device(NAME, "gate", gate, x)?;
    }
    scaled_linear(NAME, Some(base), x, weight, bias, gate)
}

/// What a product is multiplied by.
#[derive(Clone, Copy)]
struct Scale<'a> {
    factor: f64,
    gate: Option<&'a Tensor>,
}

/// Which gradients a product of output gradients and inputs is made for.
#[derive(Clone, Copy)]
struct Needs {
    weight: bool,
    gate: bool,
}

/// `base + gate x W^T + b` of tensors that fit.
fn scaled_linear(
    name: &'static str,
    base: Option<&Tensor>,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    gate: Gate,
) -> Result<Tensor> {
    let (factor, gate) = match gate {
        Gate::Fixed(factor) => (factor, None),
        Gate::Learned(gate) => (1.0, Some(gate)),
    };
    let precision = precision::of_product(x, weight)?;
    let y = on_device!(x, project(name, base, x, weight, bias, Scale { factor, gate }, precision))?;

    let gate_learns = gate.is_some_and(autograd::needs_gradient);
    let saved_x = (autograd::needs_gradient(weight) || gate_learns).then(|| x.detach());
    let saved_weight = (autograd::needs_gradient(x) || gate_learns).then(|| weight.detach());
    let saved_gate = gate.map(Tensor::detach);
    y.from_operator(name, &[base, Some(x), Some(weight), bias, gate], move |g, wanted| {
        let scale = Scale { factor, gate: saved_gate.as_ref() };
        let d_x = match &saved_weight {
            Some(weight) if wanted[1] => {
                let sum = wanted.take_sum(1);
                Some(on_device!(g, times_weight(name, &g, weight, scale, precision, sum))?)
            }
            _ => None,
        };
        let needs = Needs { weight: wanted[2], gate: wanted[4] };
        let [d_weight, d_gate] = match &saved_x {
            Some(x) => on_device!(g, weight_gradients(name, &g, x, saved_weight.as_ref(), scale, needs))?,
            None => [None, None],
        };
        let d_gate = match (d_gate, scale.gate) {
            (Some(d_gate), Some(gate)) => Some(d_gate.reshape(gate.shape())?),
            _ => None,
        };
        let d_bias = wanted[3].then(|| column_sums(&g, None)).transpose()?;
        Ok(vec![wanted[0].then_some(g), d_x, d_weight, d_bias, d_gate])
    })
}
