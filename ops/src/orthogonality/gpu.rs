//! The operator on a GPU.

use super::Side;
use crate::gpu::{Output, floats, stored};
use crate::linear::gpu::{Epilogue, Left, Right, gemm};
use hankel_core::gpu::{Gpu, Kernel};
use hankel_core::{Result, Tensor};

const NAME: &str = "orthogonality";
static DIFFERENCE: Kernel = Kernel { name: NAME, source: include_str!("difference.wgsl"), bindings: "rwww" };

pub(super) fn orthogonality(gpu: &'static Gpu, x: &Tensor, side: Side) -> Result<Tensor> {
    let [m, n] = [x.shape()[0], x.shape()[1]];
    let rows = side == Side::Rows;
    let size = if rows { m } else { n };
    let data = floats(NAME, "x", x, gpu)?;
    let difference = Output::new(gpu, size * size)?;
    let left = Left { data, first: 0, rows: m, cols: n, transposed: !rows };
    let right = Right { storage: stored(NAME, "x", x, gpu)?, first: 0, rows: m, cols: n, transposed: rows };
    gemm(gpu, left, right, Epilogue::default(), difference.buffer())?;
    let (norm, factor) = (Output::new(gpu, 1)?, Output::new(gpu, 1)?);
    let buffers = [data, difference.buffer(), norm.buffer(), factor.buffer()];
    gpu.launch(&DIFFERENCE, &[("GRADIENT", 0.0)], &buffers, &[size as u32], [1, 1, 1])?;
    let (norm, difference) = (norm.finish([])?, difference.finish([size, size])?);
    let (saved, saved_norm) = (x.detach(), norm.clone());
    norm.from_operator(NAME, &[Some(x)], move |g, _| {
        let [g, norm] = [floats(NAME, "gradient", &g, gpu)?, floats(NAME, "norm", &saved_norm, gpu)?];
        let buffers = [g, floats(NAME, "difference", &difference, gpu)?, norm, factor.buffer()];
        gpu.launch(&DIFFERENCE, &[("GRADIENT", 1.0)], &buffers, &[size as u32], [1, 1, 1])?;
        let how = Epilogue { gate: Some(factor.buffer()), ..Epilogue::default() };
        // E X for rows, X E for columns, E symmetric.
        let (first, second) = if rows { (&difference, &saved) } else { (&saved, &difference) };
        let shape = |tensor: &Tensor| [tensor.shape()[0], tensor.shape()[1]];
        let ([rows, cols], data) = (shape(first), floats(NAME, "difference", first, gpu)?);
        let left = Left { data, first: 0, rows, cols, transposed: false };
        let ([rows, cols], storage) = (shape(second), stored(NAME, "x", second, gpu)?);
        let right = Right { storage, first: 0, rows, cols, transposed: false };
        let dx = Output::new(gpu, m * n)?;
        gemm(gpu, left, right, how, dx.buffer())?;
        Ok(vec![Some(dx.finish([m, n])?)])
    })
}
