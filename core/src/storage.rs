//! The memory behind a tensor. Each operator matches on it in its own folder.

use crate::pool::Buffer;
use crate::{DType, Device};
use half::{bf16, f16};

/// Contiguous row-major elements on a device.
pub enum Storage {
    /// In main memory.
    Cpu(CpuStorage),
}

impl Storage {
    /// Where the elements are.
    pub fn device(&self) -> Device {
        match self {
            Storage::Cpu(_) => Device::Cpu,
        }
    }

    /// Their type.
    pub fn dtype(&self) -> DType {
        match self {
            Storage::Cpu(storage) => storage.dtype(),
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
    U32(Buffer<u32>),
}

impl CpuStorage {
    fn dtype(&self) -> DType {
        match self {
            CpuStorage::F32(_) => DType::F32,
            CpuStorage::F64(_) => DType::F64,
            CpuStorage::F16(_) => DType::F16,
            CpuStorage::BF16(_) => DType::BF16,
            CpuStorage::U32(_) => DType::U32,
        }
    }
}
