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
//! Frozen weights may be `bf16`, `f16` or packed 4-bit floats ([`nf4`]). They are decoded tile by tile inside the product,
//! forwards and for the input's gradient; on a GPU products of many rows decode a weight once, to memory that they give back.
//! They have no gradient of their own: a tensor of these types cannot be a parameter in the first place.
//!
//! Products with frozen weights are made in the thread's [`hankel_core::precision`].

#[cfg(test)]
mod block_tests;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod cases;
pub(crate) mod gpu;
mod matvec;
pub mod nf4;
mod nf4_decode;
pub(crate) mod precision;
mod product;
pub(crate) mod weight;

#[doc(hidden)]
pub use gpu::variants;
pub use precision::{check_precision, default_precision, gpu_precisions};
pub(crate) use product::product;
pub(crate) use weight::Weight;

use crate::check;
use crate::dispatch::for_float;
use crate::kernels::{Accumulate, Mat, Real, gemm};
use hankel_core::{Buffer, Error, Float, Precision, Result, Tensor, autograd, parallel};
use matvec::matvec;
use product::rounded;

struct Sizes {
    rows: usize,
    inputs: usize,
    outputs: usize,
}

fn sizes(operator: &'static str, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Sizes> {
    let &[outputs, inputs] = &weight.shape()[..] else {
        return Err(Error::shape(operator, format!("weight has shape {}, expected [out, in]", weight.shape())));
    };
    if x.shape().is_empty() || x.shape().last() != inputs {
        let problem = format!("input {} does not fit weight {}", x.shape(), weight.shape());
        return Err(Error::shape(operator, problem));
    }
    check::weight_dtype(operator, "weight", weight, x.dtype())?;
    if let Some(bias) = bias {
        check::shape(operator, "bias", bias, &[outputs])?;
        check::dtype(operator, "bias", bias, x.dtype())?;
    }
    Ok(Sizes { rows: x.shape().rows(), inputs, outputs })
}

/// `x W^T + b`.
///
/// # Errors
/// When shapes or element types do not fit.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let Sizes { rows, inputs, outputs } = sizes("linear", x, weight, bias)?;
    if let Some(gpu) = x.gpu() {
        return gpu::linear(gpu, x, weight, bias);
    }
    let precision = precision::of_product(x, weight)?;
    for_float!(x, "linear", T => {
        let mut out = Buffer::<T>::unspecified(rows * outputs);
        let how = match bias {
            Some(bias) => Accumulate::Bias(bias.data()?),
            None => Accumulate::Overwrite,
        };
        project(1.0, Mat::new(x.data()?, rows, inputs), weight, precision, how, &mut out)?;
        let out = Tensor::from_buffer(out, x.shape().with_last(outputs))?;

        let saved_x = autograd::needs_gradient(weight).then(|| x.detach());
        let saved_weight = autograd::needs_gradient(x).then(|| weight.detach());
        out.from_operator("linear", &[Some(x), Some(weight), bias], move |g, wanted| {
            let data = g.data::<T>()?;
            let dx = saved_weight.map(|w| times_weight::<T>(1.0, &g, &w, precision)).transpose()?;
            let dw = saved_x.map(|x| weight_gradient::<T>(&g, &x)).transpose()?;
            let db = if wanted[2] { Some(Tensor::from_buffer(column_sums(data, outputs), [outputs])?) } else { None };
            Ok(vec![dx, dw, db])
        })
    })
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
/// When shapes or element types do not fit.
pub fn add_linear(base: &Tensor, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, gate: Gate) -> Result<Tensor> {
    let Sizes { rows, inputs, outputs } = sizes("add_linear", x, weight, bias)?;
    check::shape("add_linear", "base", base, &x.shape().with_last(outputs))?;
    check::dtype("add_linear", "base", base, x.dtype())?;
    if let Some(gpu) = x.gpu() {
        return gpu::add_linear(gpu, base, x, weight, bias, gate);
    }
    let precision = precision::of_product(x, weight)?;
    for_float!(x, "add_linear", T => {
        let (factor, gate) = match gate {
            Gate::Fixed(factor) => (factor as T, None),
            Gate::Learned(_) if weight.dtype().is_compact() => {
                let problem = format!("a learned gate needs a weight in {}, found {}", x.dtype(), weight.dtype());
                return Err(Error::invalid("add_linear", problem));
            }
            Gate::Learned(gate) if gate.elements() == 1 => (gate.data::<T>()?[0], Some(gate)),
            Gate::Learned(gate) => {
                return Err(Error::shape("add_linear", format!("gate has shape {}, expected one element", gate.shape())));
            }
        };
        let mut out = Buffer::<T>::unspecified(rows * outputs);
        let source = base.data::<T>()?;
        match bias {
            None => parallel::for_rows(&mut out, 1, |first, y| y.copy_from_slice(&source[first..first + y.len()])),
            Some(bias) => {
                let bias = bias.data::<T>()?;
                parallel::for_rows(&mut out, outputs, |first, piece| {
                    for (y, x) in piece.chunks_mut(outputs).zip(source[first * outputs..].chunks(outputs)) {
                        for ((y, &x), &b) in y.iter_mut().zip(x).zip(bias) {
                            *y = x + b;
                        }
                    }
                });
            }
        }
        project(factor, Mat::new(x.data()?, rows, inputs), weight, precision, Accumulate::Add, &mut out)?;
        let out = Tensor::from_buffer(out, base.shape())?;

        let learns = autograd::needs_gradient(weight) || gate.is_some_and(autograd::needs_gradient);
        let saved_x = learns.then(|| x.detach());
        let saved_weight = (autograd::needs_gradient(x) || gate.is_some_and(autograd::needs_gradient)).then(|| weight.detach());
        let parents = [Some(base), Some(x), Some(weight), bias, gate];
        let gate_shape = gate.map(|gate| gate.shape().clone());
        out.from_operator("add_linear", &parents, move |g, wanted| {
            let (mut dw, mut dgate) = (None, None);
            if let Some(x) = &saved_x {
                let mut product = weight_gradient::<T>(&g, x)?;
                if let (true, Some(shape)) = (wanted[4], &gate_shape) {
                    let weight = saved_weight.as_ref().map_or(Ok(&[][..]), |w| w.data::<T>())?;
                    let dot = product.data::<T>()?.iter().zip(weight).map(|(&g, &w)| Float::f64(g * w)).sum::<f64>();
                    dgate = Some(Tensor::full(shape, dot as T));
                }
                if wanted[2] {
                    product.data_mut::<T>()?.iter_mut().for_each(|w| *w *= factor);
                    dw = Some(product);
                }
            }
            let dx = if let (true, Some(weight)) = (wanted[1], &saved_weight) {
                Some(times_weight(factor, &g, weight, precision)?)
            } else {
                None
            };
            let db = if wanted[3] {
                Some(Tensor::from_buffer(column_sums(g.data::<T>()?, outputs), [outputs])?)
            } else {
                None
            };
            Ok(vec![wanted[0].then_some(g), dx, dw, db, dgate])
        })
    })
}

/// `out (+)= factor x W^T`.
fn project<T: Real>(
    factor: T,
    x: Mat<T>,
    weight: &Tensor,
    precision: Precision,
    how: Accumulate<T>,
    out: &mut [T],
) -> Result<()> {
    let weight = Weight::new(weight, precision)?;
    if x.rows() == 1 {
        let rounded = weight.is_rounded().then(|| rounded(x.row(0)));
        matvec(factor, rounded.as_deref().unwrap_or(x.row(0)), &weight, how, out);
    } else {
        let outputs = weight.shape().0;
        product(factor, x, &weight.t(), how, out, outputs);
    }
    Ok(())
}

/// `factor g W`.
fn times_weight<T: Real>(factor: T, g: &Tensor, weight: &Tensor, precision: Precision) -> Result<Tensor> {
    let (outputs, inputs) = (weight.shape()[0], weight.shape()[1]);
    let rows = g.shape().rows();
    let mut out = Buffer::unspecified(rows * inputs);
    let right = Weight::new(weight, precision)?;
    product(factor, Mat::new(g.data()?, rows, outputs), &right, Accumulate::Overwrite, &mut out, inputs);
    Tensor::from_buffer(out, g.shape().with_last(inputs))
}

/// `g^T x` summed over rows, `[out, in]`.
fn weight_gradient<T: Real>(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    /// Inputs below which a row of the gradient is a small part of the registers of a tile: LoRA's ranks, states of an HRM.
    const NARROW: usize = 64;
    let (rows, outputs, inputs) = (g.shape().rows(), g.shape().last(), x.shape().last());
    let (g, x) = (Mat::new(g.data::<T>()?, rows, outputs), Mat::new(x.data::<T>()?, rows, inputs));
    let mut out = Buffer::unspecified(outputs * inputs);
    if inputs < outputs && inputs <= NARROW {
        // Its transpose has the wider rows, and the longer factor is copied line by line.
        let mut transposed = Buffer::unspecified(inputs * outputs);
        gemm(T::one(), x.t(), &g, Accumulate::Overwrite, &mut transposed, outputs);
        for (i, row) in out.chunks_exact_mut(inputs.max(1)).enumerate() {
            row.iter_mut().enumerate().for_each(|(j, y)| *y = transposed[j * outputs + i]);
        }
    } else {
        gemm(T::one(), g.t(), &x, Accumulate::Overwrite, &mut out, inputs);
    }
    Tensor::from_buffer(out, [outputs, inputs])
}

/// Sums over rows, in their order.
pub(crate) fn column_sums<T: Real>(g: &[T], width: usize) -> Buffer<T> {
    let mut sums = Buffer::zeros(width);
    for row in g.chunks(width.max(1)) {
        sums.iter_mut().zip(row).for_each(|(s, &g)| *s += g);
    }
    sums
}
