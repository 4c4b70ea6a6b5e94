//! The memory behind a tensor. Each operator matches on it in its own folder.

use crate::block_formats::BlockMatrix;
use crate::gpu::GpuStorage;
use crate::nf4::Nf4;
use crate::pool::Buffer;
use crate::{DType, Device};
use half::{bf16, f16};

/// Contiguous row-major elements on a device.
pub enum Storage {
    /// In main memory.
    Cpu(CpuStorage),
    /// In the memory of a GPU.
    Gpu(GpuStorage),
}

impl Storage {
    /// Where the elements are.
    pub fn device(&self) -> Device {
        match self {
            Storage::Cpu(_) => Device::Cpu,
            Storage::Gpu(storage) => Device::Gpu(storage.buffer.gpu()),
        }
    }

    /// Their type.
    pub fn dtype(&self) -> DType {
        match self {
            Storage::Cpu(storage) => storage.dtype(),
            Storage::Gpu(storage) => storage.dtype,
        }
    }
}

/// Elements in main memory.
#[allow(missing_docs)]
pub enum CpuStorage {
    F32(Buffer<f32>),
    F64(Buffer<f64>),
    F16(Buffer<f16>),
    BF16(Buffer<bf16>),
    U8(Buffer<u8>),
    U32(Buffer<u32>),
    Nf4(Nf4),
    Blocks(BlockMatrix),
}

impl CpuStorage {
    /// Bytes of the elements and of what is needed to decode them.
    pub fn bytes(&self) -> usize {
        match self {
            CpuStorage::F32(data) => size_of_val(&data[..]),
            CpuStorage::F64(data) => size_of_val(&data[..]),
            CpuStorage::F16(data) => size_of_val(&data[..]),
            CpuStorage::BF16(data) => size_of_val(&data[..]),
            CpuStorage::U8(data) => data.len(),
            CpuStorage::U32(data) => size_of_val(&data[..]),
            CpuStorage::Nf4(matrix) => matrix.bytes(),
            CpuStorage::Blocks(matrix) => matrix.bytes().len(),
        }
    }

    /// Whether the elements belong to a shared owner, such as a memory-mapped file.
    pub fn is_borrowed(&self) -> bool {
        match self {
            CpuStorage::F32(data) => data.is_borrowed(),
            CpuStorage::F64(data) => data.is_borrowed(),
            CpuStorage::F16(data) => data.is_borrowed(),
            CpuStorage::BF16(data) => data.is_borrowed(),
            CpuStorage::U8(data) => data.is_borrowed(),
            CpuStorage::U32(data) => data.is_borrowed(),
            CpuStorage::Nf4(matrix) => matrix.is_borrowed(),
            CpuStorage::Blocks(matrix) => matrix.is_borrowed(),
        }
    }

    fn dtype(&self) -> DType {
        match self {
            CpuStorage::F32(_) => DType::F32,
            CpuStorage::F64(_) => DType::F64,
            CpuStorage::F16(_) => DType::F16,
            CpuStorage::BF16(_) => DType::BF16,
            CpuStorage::U8(_) => DType::U8,
            CpuStorage::U32(_) => DType::U32,
            CpuStorage::Nf4(_) => DType::Nf4,
            CpuStorage::Blocks(matrix) => DType::Blocks(matrix.format()),
        }
    }
}
