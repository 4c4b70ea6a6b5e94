//! Elements in the memory of a GPU.

use super::{Gpu, GpuBuffer, Kernel, Transfer, flag, groups};
use crate::nf4::Nf4;
use crate::pool::Buffer;
use crate::storage::CpuStorage;
use crate::{DType, Element, Error, Result};

/// Contiguous row-major elements in the memory of a GPU. Elements of 16 bits lie two to a word, the first in the low half.
pub struct GpuStorage {
    /// The elements.
    pub buffer: GpuBuffer,
    /// Their type.
    pub dtype: DType,
    /// Number of elements.
    pub elements: usize,
    /// What is needed to decode 4-bit floats.
    pub nf4: Option<GpuNf4>,
}

/// Scales and code values of 4-bit floats; see [`crate::Nf4`]. Products decode the elements as they multiply, or beforehand.
pub struct GpuNf4 {
    /// One float for each block.
    pub scales: GpuBuffer,
    /// The 16 code values.
    pub codebook: GpuBuffer,
    /// Elements in a block.
    pub block: usize,
    /// The type to which decoded values are rounded.
    pub source: DType,
}

static ADD: Kernel = Kernel { name: "accumulate", source: include_str!("accumulate.wgsl"), bindings: "wr" };
static CONVERT: Kernel = Kernel { name: "convert", source: include_str!("convert.wgsl"), bindings: "rw" };
/// A kernel and not a buffer copy, so that it runs in the open pass: Metal runs a copy as a batch of its own, and nothing would
/// count its loss.
static COPY: Kernel = Kernel { name: "duplicate", source: include_str!("copy.wgsl"), bindings: "rw" };
static FILL: Kernel = Kernel { name: "fill", source: include_str!("fill.wgsl"), bindings: "w" };

impl GpuStorage {
    /// Room for floats of unspecified value.
    ///
    /// # Errors
    /// As [`Gpu::allocate`].
    pub fn floats(gpu: &'static Gpu, elements: usize) -> Result<Self> {
        Ok(GpuStorage { buffer: gpu.allocate(4 * elements as u64)?, dtype: DType::F32, elements, nf4: None })
    }

    /// Floats of one value.
    ///
    /// # Errors
    /// As [`Gpu::allocate`] and [`Gpu::launch`].
    pub fn filled(gpu: &'static Gpu, elements: usize, value: f32) -> Result<Self> {
        let storage = Self::floats(gpu, elements)?;
        gpu.launch(&FILL, &[], &[&storage.buffer], &[elements as u32, value.to_bits()], groups(elements, 256))?;
        Ok(storage)
    }

    /// Bytes of the elements, and of what is needed to decode them.
    pub fn bytes(&self) -> usize {
        self.element_bytes() + self.nf4.as_ref().map_or(0, |nf4| 4 * self.elements.div_ceil(nf4.block) + 64)
    }

    fn element_bytes(&self) -> usize {
        match self.dtype {
            DType::F32 | DType::U32 => 4 * self.elements,
            DType::F16 | DType::BF16 => 2 * self.elements,
            DType::F64 => 8 * self.elements,
            DType::U8 => self.elements,
            DType::Nf4 => self.elements.div_ceil(2),
            DType::Blocks(format) => self.elements / format.block_size() * format.block_bytes(),
        }
    }

    pub(crate) fn upload(gpu: &'static Gpu, from: &CpuStorage) -> Result<Self> {
        let (bytes, dtype, elements): (&[u8], _, _) = match from {
            CpuStorage::F32(data) => (bytemuck::cast_slice(data), DType::F32, data.len()),
            CpuStorage::F16(data) => (bytemuck::cast_slice(data), DType::F16, data.len()),
            CpuStorage::BF16(data) => (bytemuck::cast_slice(data), DType::BF16, data.len()),
            CpuStorage::U8(data) => (data, DType::U8, data.len()),
            CpuStorage::U32(data) => (bytemuck::cast_slice(data), DType::U32, data.len()),
            CpuStorage::F64(_) => return Err(unheld(DType::F64)),
            CpuStorage::Nf4(matrix) => return Self::upload_nf4(gpu, matrix),
            CpuStorage::Blocks(matrix) => (matrix.bytes(), DType::Blocks(matrix.format()), matrix.elements()),
        };
        Ok(GpuStorage { buffer: gpu.upload(bytes)?, dtype, elements, nf4: None })
    }

    fn upload_nf4(gpu: &'static Gpu, matrix: &Nf4) -> Result<Self> {
        let (block, elements) = (matrix.block(), matrix.elements());
        let scales: Vec<f32> = (0..elements.div_ceil(block)).map(|i| matrix.scales().get(i)).collect();
        let nf4 = GpuNf4 {
            scales: gpu.upload(bytemuck::cast_slice(&scales))?,
            codebook: gpu.upload(bytemuck::cast_slice(matrix.codebook()))?,
            block,
            source: matrix.source(),
        };
        Ok(GpuStorage { buffer: gpu.upload(matrix.packed())?, dtype: DType::Nf4, elements, nf4: Some(nf4) })
    }

    /// Asks for the elements.
    pub(crate) fn read_back(&self) -> Result<Transfer> {
        self.buffer.gpu().read_back(&self.buffer, self.element_bytes())
    }

    /// Rounds or widens to another type; `None` where one of the two is not a float of at most 32 bits.
    pub(crate) fn convert(&self, to: DType) -> Result<Option<Self>> {
        let (narrow, compact) = match (self.dtype, to) {
            (DType::F32, DType::F16 | DType::BF16) => (true, to),
            (DType::F16 | DType::BF16, DType::F32) => (false, self.dtype),
            // By way of f32, which holds both.
            (DType::F16, DType::BF16) | (DType::BF16, DType::F16) => {
                return match self.convert(DType::F32)? {
                    Some(wide) => wide.convert(to),
                    None => Ok(None),
                };
            }
            _ => return Ok(None),
        };
        let (gpu, n) = (self.buffer.gpu(), self.elements);
        let buffer = gpu.allocate(if narrow { 2 } else { 4 } * n as u64)?;
        let constants = [("NARROW", flag(narrow)), ("HALF", flag(compact == DType::F16))];
        gpu.launch(&CONVERT, &constants, &[&self.buffer, &buffer], &[n as u32], groups(n.div_ceil(2), 256))?;
        Ok(Some(GpuStorage { buffer, dtype: to, elements: n, nf4: None }))
    }

    pub(crate) fn duplicate(&self) -> Result<Self> {
        if self.nf4.is_some() {
            return Err(Error::invalid("duplicate", "4-bit floats are never written to"));
        }
        let (gpu, words) = (self.buffer.gpu(), self.element_bytes().div_ceil(4));
        let buffer = gpu.allocate(4 * words as u64)?;
        gpu.launch(&COPY, &[], &[&self.buffer, &buffer], &[words as u32], groups(words, 256))?;
        Ok(GpuStorage { buffer, dtype: self.dtype, elements: self.elements, nf4: None })
    }

    /// `self += other`, where nothing else uses `self`.
    pub(crate) fn add(&self, other: &GpuStorage) -> Result<()> {
        if self.dtype != DType::F32 || other.dtype != DType::F32 {
            return Err(Error::DType { operator: "backward", expected: "f32", found: other.dtype });
        }
        let (n, buffers) = (self.elements, [&self.buffer, &other.buffer]);
        self.buffer.gpu().launch(&ADD, &[], &buffers, &[n as u32], groups(n, 256))
    }
}

/// Elements from their bytes.
pub(crate) fn elements(bytes: &[u8], dtype: DType) -> Result<CpuStorage> {
    fn of<T: Element>(bytes: &[u8]) -> CpuStorage {
        T::wrap(Buffer::from(bytemuck::pod_collect_to_vec::<u8, T>(bytes)))
    }
    Ok(match dtype {
        DType::F32 => of::<f32>(bytes),
        DType::F16 => of::<half::f16>(bytes),
        DType::BF16 => of::<half::bf16>(bytes),
        DType::U8 => of::<u8>(bytes),
        DType::U32 => of::<u32>(bytes),
        DType::F64 | DType::Nf4 | DType::Blocks(_) => return Err(unheld(dtype)),
    })
}

fn unheld(dtype: DType) -> Error {
    Error::Placement { operator: "to_device", problem: format!("{dtype} does not move between a GPU and main memory") }
}
