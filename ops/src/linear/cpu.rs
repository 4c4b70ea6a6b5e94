//! Linear maps on the CPU.

use super::few_rows::{MOST_ROWS, few_rows};
use super::product::product_of;
use super::weight::Weight;
use super::{Needs, Scale};
use crate::dispatch::for_float;
use crate::kernels::{Accumulate, Mat, Real, gemm};
use crate::sums::dot;
use hankel_core::{Buffer, Precision, Result, Tensor};

/// The factor and the gate as one number.
fn factor<T: Real>(Scale { factor, gate }: Scale) -> Result<T> {
    Ok(match gate {
        None => T::of(factor),
        Some(gate) => T::of(factor) * gate.data::<T>()?[0],
    })
}

/// `base + scale x W^T + b`.
pub(super) fn project(
    name: &'static str,
    base: Option<&Tensor>,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    scale: Scale,
    precision: Precision,
) -> Result<Tensor> {
    for_float!(x, name, T => {
        let outputs = weight.shape()[0];
        let mut out = Buffer::<T>::unspecified(x.shape().rows() * outputs);
        let how = match (base, bias) {
            (None, None) => Accumulate::Overwrite,
            (None, Some(bias)) => Accumulate::Bias(bias.data()?),
            (Some(base), bias) => Accumulate::Onto(
                Mat::new(base.data()?, base.shape().rows(), outputs),
                bias.map(Tensor::data).transpose()?,
            ),
        };
        multiply(factor::<T>(scale)?, x, Weight::new(weight, precision)?, how, &mut out)?;
        Tensor::from_buffer(out, x.shape().with_last(outputs))
    })
}

/// `out (+)= factor x W^T`.
fn multiply<T: Real>(factor: T, x: &Tensor, weight: Weight<T>, how: Accumulate<T>, out: &mut [T]) -> Result<()> {
    let (outputs, inputs) = weight.shape();
    let rows = x.shape().rows();
    if rows <= MOST_ROWS {
        few_rows(factor, Mat::new(x.data()?, rows, inputs), &weight, how, out);
        return Ok(());
    }
    product_of(factor, x, &weight.t(), how, out, outputs)
}

/// `scale g W`, added to `sum` in its memory.
pub(super) fn times_weight(
    name: &'static str,
    g: &Tensor,
    weight: &Tensor,
    scale: Scale,
    precision: Precision,
    sum: Option<Tensor>,
) -> Result<Tensor> {
    for_float!(g, name, T => {
        let inputs = weight.shape()[1];
        let right = Weight::new(weight, precision)?;
        let (mut out, how) = if let Some(sum) = sum {
            (sum, Accumulate::Add)
        } else {
            let out = Buffer::<T>::unspecified(g.shape().rows() * inputs);
            (Tensor::from_buffer(out, g.shape().with_last(inputs))?, Accumulate::Overwrite)
        };
        product_of(factor::<T>(scale)?, g, &right, how, out.data_mut()?, inputs)?;
        Ok(out)
    })
}

/// The gradients of the weight and of the gate. Both come from `g^T x`, which is computed once.
pub(super) fn weight_gradients(
    name: &'static str,
    g: &Tensor,
    x: &Tensor,
    weight: Option<&Tensor>,
    scale: Scale,
    needs: Needs,
) -> Result<[Option<Tensor>; 2]> {
    for_float!(g, name, T => {
        let mut gradient = outer::<T>(g, x)?;
        let d_gate = match weight {
            Some(weight) if needs.gate => Some(dot(&gradient, weight)?),
            _ => None,
        };
        if !needs.weight {
            return Ok([None, d_gate]);
        }
        let factor = factor::<T>(scale)?;
        if factor != 1.0 {
            gradient.data_mut::<T>()?.iter_mut().for_each(|w| *w *= factor);
        }
        Ok([Some(gradient), d_gate])
    })
}

/// `g^T x` summed over rows, `[out, in]`.
fn outer<T: Real>(g: &Tensor, x: &Tensor) -> Result<Tensor> {
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
