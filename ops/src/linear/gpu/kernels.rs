//! The kernels of products: texts put together for each way to read the operands and each tile.

use hankel_core::DType;
use hankel_core::gpu::Kernel;

/// How operands are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Element by element.
    Scalar,
    /// Four at once, with the right one stored in this.
    Vector(Format),
}

/// What a right factor is stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    F32,
    Half,
    Nf4,
}

impl Format {
    pub(super) fn of(dtype: DType) -> Self {
        match dtype {
            DType::BF16 | DType::F16 => Format::Half,
            DType::Nf4 => Format::Nf4,
            _ => Format::F32,
        }
    }
}

/// Rows and columns of the result that a workgroup makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tile {
    /// 64 x 64, 4 x 4 for each lane.
    Small,
    /// 128 x 128, 8 x 8 for each lane.
    Large,
    /// 128 x 32.
    Tall,
    /// 32 x 128.
    Wide,
}

impl Tile {
    pub(super) fn size(self) -> [usize; 2] {
        match self {
            Tile::Small => [64, 64],
            Tile::Large => [128, 128],
            Tile::Tall => [128, 32],
            Tile::Wide => [32, 128],
        }
    }
}

macro_rules! kernel {
    ($name:expr, $bindings:literal, $($part:expr),+) => {{
        static KERNEL: Kernel = Kernel { name: $name, source: concat!($($part),+), bindings: $bindings };
        &KERNEL
    }};
}

pub(super) use kernel;

/// A product of `$name` with what `$part`s say, for every way to read its operands.
macro_rules! for_access {
    ($access:expr, $name:literal, $($part:expr),+) => {
        match $access {
            Access::Scalar => kernel!(
                $name, "rrrrrrrw", include_str!("common.wgsl"), include_str!("result.wgsl"),
                include_str!("element.wgsl"), include_str!("scalars.wgsl"), $($part),+
            ),
            Access::Vector(Format::F32) => for_access!(vector "right_f32.wgsl", $name, $($part),+),
            Access::Vector(Format::Half) => for_access!(vector "right_half.wgsl", $name, $($part),+),
            Access::Vector(Format::Nf4) => for_access!(vector "right_nf4.wgsl", $name, $($part),+),
        }
    };
    (vector $right:literal, $name:literal, $($part:expr),+) => {
        kernel!(
            $name, "rrrrrrrw", include_str!("common.wgsl"), include_str!("result.wgsl"), include_str!("vectors.wgsl"),
            include_str!($right), $($part),+
        )
    };
}

/// A product in tiles.
pub(super) fn gemm(tile: Tile, access: Access) -> &'static Kernel {
    macro_rules! tile {
        ($name:literal, $size:literal, $thread_tile:literal) => {
            for_access!(access, $name, $size, include_str!($thread_tile), include_str!("gemm.wgsl"))
        };
    }
    // Slices of 8 steps for the large tile: twice 4 KiB and few registers for what is on its way.
    match tile {
        Tile::Small => {
            tile!("gemm 64 x 64", "const TILE_M = 64u; const TILE_N = 64u; const STEPS = 16u;\n", "thread_tile_4.wgsl")
        }
        Tile::Large => {
            tile!(
                "gemm 128 x 128",
                "const TILE_M = 128u; const TILE_N = 128u; const STEPS = 8u;\n",
                "thread_tile_8.wgsl"
            )
        }
        Tile::Tall => {
            tile!(
                "gemm 128 x 32",
                "const TILE_M = 128u; const TILE_N = 32u; const STEPS = 16u;\n",
                "thread_tile_4.wgsl"
            )
        }
        Tile::Wide => {
            tile!(
                "gemm 32 x 128",
                "const TILE_M = 32u; const TILE_N = 128u; const STEPS = 16u;\n",
                "thread_tile_4.wgsl"
            )
        }
    }
}

/// Rows times a transposed matrix, one by one.
pub(super) fn matvec(access: Access) -> &'static Kernel {
    for_access!(access, "matrix times vector", include_str!("matvec.wgsl"))
}

/// The sum of partial results.
pub(super) static SPLIT_K_REDUCE: Kernel =
    Kernel { name: "split-k reduction", source: include_str!("split_k_reduce.wgsl"), bindings: "rrrrw" };

/// Elements as plain floats: in f16, or in f32.
pub(super) fn convert(format: Format, half: bool) -> &'static Kernel {
    macro_rules! convert {
        ($name:literal, $right:literal, $to:literal) => {
            kernel!(
                $name,
                "wrrrr",
                include_str!("common.wgsl"),
                include_str!($right),
                include_str!($to),
                include_str!("convert.wgsl")
            )
        };
    }
    match (format, half) {
        (Format::F32, false) => convert!("f32 to f32", "right_f32.wgsl", "to_f32.wgsl"),
        (Format::F32, true) => convert!("f32 to f16", "right_f32.wgsl", "to_f16.wgsl"),
        (Format::Half, false) => convert!("16 bits to f32", "right_half.wgsl", "to_f32.wgsl"),
        (Format::Half, true) => convert!("16 bits to f16", "right_half.wgsl", "to_f16.wgsl"),
        (Format::Nf4, false) => convert!("nf4 to f32", "right_nf4.wgsl", "to_f32.wgsl"),
        (Format::Nf4, true) => convert!("nf4 to f16", "right_nf4.wgsl", "to_f16.wgsl"),
    }
}
