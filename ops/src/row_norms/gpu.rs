//! The kernels on a GPU.

use crate::gpu::{Output, floats, stored};
use crate::linear::gpu::{Epilogue, Left, Right, Stored, gemm, whole};
use hankel_core::gpu::{Gpu, Kernel, groups};
use hankel_core::{DType, Result, Tensor};

static SQUARES: Kernel = Kernel { name: "row_squares", source: include_str!("row_squares.wgsl"), bindings: "rrrw" };
static INVERSE: Kernel = Kernel { name: "inverse_row_norms", source: include_str!("inverse.wgsl"), bindings: "rrrrw" };

pub(super) fn row_squares(gpu: &'static Gpu, weight: &Tensor) -> Result<Tensor> {
    let [outputs, inputs] = [weight.shape()[0], weight.shape()[1]];
    let storage = stored("row_squares", "the weight", weight, gpu)?;
    let decoded = if matches!(weight.dtype(), DType::Blocks(_)) { whole(gpu, storage, DType::F32)? } else { None };
    let storage = decoded.as_ref().unwrap_or(storage);
    let held = Stored::of("row_squares", storage)?;
    let out = Output::new(gpu, outputs)?;
    let parameters = [outputs, inputs, held.block].map(|size| size as u32);
    let buffers = [&storage.buffer, held.scales, held.codebook, out.buffer()];
    gpu.launch(&SQUARES, &[("STORED", held.code)], &buffers, &parameters, groups(outputs, 1))?;
    out.finish([outputs])
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    rows: u32,
    rank: u32,
    scale: f32,
}

pub(super) fn inverse_row_norms(
    gpu: &'static Gpu,
    squares: &Tensor,
    product: &Tensor,
    a: &Tensor,
    b: &Tensor,
    scale: f64,
) -> Result<Tensor> {
    const NAME: &str = "inverse_row_norms";
    let (outputs, rank, inputs) = (b.shape()[0], a.shape()[0], a.shape()[1]);
    let gram = Output::new(gpu, rank * rank)?;
    let left =
        Left { data: floats(NAME, "A", a, gpu)?, first: 0, rows: rank, cols: inputs, transposed: false, tensor: None };
    let right = Right { storage: stored(NAME, "A", a, gpu)?, first: 0, rows: rank, cols: inputs, transposed: true };
    gemm(gpu, left, right, Epilogue::default(), gram.buffer())?;
    let out = Output::new(gpu, outputs)?;
    let buffers = [
        floats(NAME, "squares", squares, gpu)?,
        floats(NAME, "product", product, gpu)?,
        gram.buffer(),
        floats(NAME, "B", b, gpu)?,
        out.buffer(),
    ];
    let parameters = Parameters { rows: outputs as u32, rank: rank as u32, scale: scale as f32 };
    gpu.launch(&INVERSE, &[], &buffers, &parameters, groups(outputs, 64))?;
    out.finish([outputs])
}
