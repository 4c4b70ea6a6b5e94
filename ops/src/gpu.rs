//! What operators share on a GPU: looking at their tensors, making new ones, and sums over rows.

use hankel_core::gpu::{Gpu, GpuBuffer, GpuStorage, Kernel, groups};
use hankel_core::{DType, Error, Result, Shape, Storage, Tensor};

/// The floats of `tensor`, which plays the role `name`, on `gpu`.
pub(crate) fn floats<'a>(operator: &'static str, name: &str, tensor: &'a Tensor, gpu: &Gpu) -> Result<&'a GpuBuffer> {
    let storage = stored(operator, name, tensor, gpu)?;
    if storage.dtype != DType::F32 {
        return Err(Error::DType { operator, expected: "f32 on a GPU", found: storage.dtype });
    }
    Ok(&storage.buffer)
}

/// The elements of `tensor`, whatever their type, on `gpu`.
pub(crate) fn stored<'a>(operator: &'static str, name: &str, tensor: &'a Tensor, gpu: &Gpu) -> Result<&'a GpuStorage> {
    match tensor.storage() {
        Storage::Gpu(storage) if std::ptr::eq(storage.buffer.gpu(), gpu) => Ok(storage),
        _ => {
            let problem = format!("{name} is on the {}, expected on gpu ({})", tensor.device(), gpu.facts().name);
            Err(Error::Placement { operator, problem })
        }
    }
}

/// A tensor under construction.
pub(crate) struct Output(GpuStorage);

impl Output {
    pub(crate) fn new(gpu: &'static Gpu, elements: usize) -> Result<Self> {
        GpuStorage::floats(gpu, elements).map(Output)
    }

    pub(crate) fn buffer(&self) -> &GpuBuffer {
        &self.0.buffer
    }

    pub(crate) fn finish(self, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_gpu(self.0, shape)
    }
}

/// Zeros on the GPU.
pub(crate) fn zeros(gpu: &'static Gpu, shape: &[usize]) -> Result<Tensor> {
    Tensor::from_gpu(GpuStorage::filled(gpu, shape.iter().product(), 0.0)?, shape)
}

/// Words of the host as a buffer.
pub(crate) fn words(gpu: &'static Gpu, words: &[u32]) -> Result<GpuBuffer> {
    gpu.upload(bytemuck::cast_slice(words))
}

static COLUMNS: Kernel = Kernel { name: "column_sums", source: include_str!("column_sums.wgsl"), bindings: "rrw" };

/// `out_j = sum_i a_ij b_ij` over rows of `width` elements, or `sum_i a_ij`: in pieces of rows, then over the pieces, so that
/// the order of the sum depends on the shape alone.
pub(crate) fn column_sums(
    gpu: &'static Gpu,
    a: &GpuBuffer,
    b: Option<&GpuBuffer>,
    rows: usize,
    width: usize,
) -> Result<Tensor> {
    const PIECE: usize = 128;
    let pieces = rows.div_ceil(PIECE).max(1);
    let out = Output::new(gpu, pieces * width)?;
    let constants = [("WEIGHED", f64::from(u8::from(b.is_some())))];
    let parameters = [rows as u32, width as u32, PIECE as u32];
    let [x, y, _] = groups(width, 64);
    if width > 0 {
        gpu.launch(&COLUMNS, &constants, &[a, b.unwrap_or(a), out.buffer()], &parameters, [x * y, pieces as u32, 1])?;
    }
    if pieces > 1 {
        return column_sums(gpu, out.buffer(), None, pieces, width);
    }
    out.finish([width])
}
