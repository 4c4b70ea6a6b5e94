//! The element types a tensor can hold.

use crate::block_formats::BlockFormat;
use crate::pool::{AnyFreeList, Buffer, FreeList};
use crate::storage::CpuStorage;
use half::{bf16, f16};
use std::fmt;

/// Element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// IEEE 754 half precision: storage of weights.
    F16,
    /// The upper half of an `f32`: storage of weights.
    BF16,
    /// Bytes: packed codes.
    U8,
    /// Token ids.
    U32,
    /// Packed 4-bit normal floats with a scale for each block ([`crate::Nf4`]): storage of weights.
    Nf4,
    /// Blocks of a format of GGUF files ([`crate::BlockMatrix`]): storage of weights.
    Blocks(&'static dyn BlockFormat),
}

impl DType {
    /// The name used in configurations and messages: `f32`, `f64`, `f16`, `bf16`, `u8`, `u32`, `nf4`, or that of a block format.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::U8 => "u8",
            DType::U32 => "u32",
            DType::Nf4 => "nf4",
            DType::Blocks(format) => format.name(),
        }
    }

    /// Whether operators compute in this type (`f32`, `f64`).
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64)
    }

    /// Whether weights can be kept in this type and are widened while they are used: `f16`, `bf16`, `nf4`, block formats.
    pub const fn is_compact(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::Nf4 | DType::Blocks(_))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that a tensor can hold.
pub trait Element: bytemuck::Pod + Send + Sync + 'static {
    /// Its element type.
    const ELEMENT: DType;
    #[doc(hidden)]
    fn free_list() -> &'static FreeList<Self>;
    #[doc(hidden)]
    fn wrap(buffer: Buffer<Self>) -> CpuStorage;
    #[doc(hidden)]
    fn slice(storage: &CpuStorage) -> Option<&[Self]>;
    #[doc(hidden)]
    fn slice_mut(storage: &mut CpuStorage) -> Option<&mut [Self]>;
}

macro_rules! element {
    ($($rust:ty => $variant:ident),*) => {$(
        impl Element for $rust {
            const ELEMENT: DType = DType::$variant;
            fn free_list() -> &'static FreeList<Self> {
                static LIST: FreeList<$rust> = FreeList::new();
                &LIST
            }
            fn wrap(buffer: Buffer<Self>) -> CpuStorage {
                CpuStorage::$variant(buffer)
            }
            fn slice(storage: &CpuStorage) -> Option<&[Self]> {
                match storage {
                    CpuStorage::$variant(buffer) => Some(buffer),
                    _ => None,
                }
            }
            fn slice_mut(storage: &mut CpuStorage) -> Option<&mut [Self]> {
                match storage {
                    CpuStorage::$variant(buffer) => Some(buffer),
                    _ => None,
                }
            }
        }
    )*

    /// The free lists of all element types.
    pub(crate) static FREE_LISTS: [fn() -> &'static dyn AnyFreeList; [$(DType::$variant),*].len()] =
        [$(|| <$rust as Element>::free_list()),*];
    };
}
element!(f32 => F32, f64 => F64, f16 => F16, bf16 => BF16, u8 => U8, u32 => U32);
