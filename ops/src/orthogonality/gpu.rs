//! Two products of matrices; norm and difference in one workgroup.

use super::{NAME, Side};
use crate::gpu::{Output, floats, stored};
use crate::linear::gpu::{Epilogue, Left, Right, gemm};
use hankel_core::gpu::{Gpu, Kernel};
use hankel_core::{Result, Tensor};

static DIFFERENCE: Kernel = Kernel { name: NAME, source: include_str!("difference.wgsl"), bindings: "rwww" };

/// The norm, and the difference from the identity.
pub(super) fn forward(gpu: &'static Gpu, x: &Tensor, side: Side) -> Result<(Tensor, Tensor)> {
    let [m, n] = [x.shape()[0], x.shape()[1]];
    let rows = side == Side::Rows;
    let size = if rows { m } else { n };
    let data = floats(NAME, "x", x, gpu)?;
    let difference = Output::new(gpu, size * size)?;
    let left = Left { data, first: 0, rows: m, cols: n, transposed: !rows, tensor: None };
    let right = Right { storage: stored(NAME, "x", x, gpu)?, first: 0, rows: m, cols: n, transposed: rows };
    gemm(gpu, left, right, Epilogue::default(), difference.buffer())?;
    let (norm, factor) = (Output::new(gpu, 1)?, Output::new(gpu, 1)?);
    let buffers = [data, difference.buffer(), norm.buffer(), factor.buffer()];
    gpu.launch(&DIFFERENCE, &[("GRADIENT", 0.0)], &buffers, &[size as u32], [1, 1, 1])?;
    Ok((norm.finish([])?, difference.finish([size, size])?))
}

/// `2 g E X / norm` for rows, `2 g X E / norm` for columns, `E` the difference.
pub(super) fn backward(
    gpu: &'static Gpu,
    x: &Tensor,
    side: Side,
    difference: &Tensor,
    norm: &Tensor,
    g: &Tensor,
) -> Result<Tensor> {
    let factor = Output::new(gpu, 1)?;
    let buffers = [
        floats(NAME, "gradient", g, gpu)?,
        floats(NAME, "difference", difference, gpu)?,
        floats(NAME, "norm", norm, gpu)?,
        factor.buffer(),
    ];
    let size = difference.shape().last() as u32;
    gpu.launch(&DIFFERENCE, &[("GRADIENT", 1.0)], &buffers, &[size], [1, 1, 1])?;
    let how = Epilogue { gate: Some(factor.buffer()), ..Epilogue::default() };
    let (first, second) = if side == Side::Rows { (difference, x) } else { (x, difference) };
    let shape = |tensor: &Tensor| [tensor.shape()[0], tensor.shape()[1]];
    let ([rows, cols], data) = (shape(first), floats(NAME, "the left factor", first, gpu)?);
    let left = Left { data, first: 0, rows, cols, transposed: false, tensor: None };
    let ([rows, cols], storage) = (shape(second), stored(NAME, "the right factor", second, gpu)?);
    let right = Right { storage, first: 0, rows, cols, transposed: false };
    let d_x = Output::new(gpu, x.elements())?;
    gemm(gpu, left, right, how, d_x.buffer())?;
    d_x.finish(x.shape())
}
