//! The element types a tensor can hold.

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
    /// Token ids and packed codes.
    U32,
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::F16 | DType::BF16 => 2,
            DType::F32 | DType::U32 => 4,
            DType::F64 => 8,
        }
    }

    /// The name used in configurations and messages: `f32`, `f64`, `f16`, `bf16`, `u32`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::U32 => "u32",
        }
    }

    /// Whether operators compute in this type (`f32`, `f64`).
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64)
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
}

impl Element for f32 {
    const ELEMENT: DType = DType::F32;
}
impl Element for f64 {
    const ELEMENT: DType = DType::F64;
}
impl Element for f16 {
    const ELEMENT: DType = DType::F16;
}
impl Element for bf16 {
    const ELEMENT: DType = DType::BF16;
}
impl Element for u32 {
    const ELEMENT: DType = DType::U32;
}
