//! Products of matrices: the door, and which kernel suits which shape.

use super::kernels::{self, Access, Format, Tile};
use super::{blocks, cooperative};
use hankel_core::gpu::{Gpu, GpuBuffer, GpuStorage, flag, groups};
use hankel_core::{DType, Error, Precision, Result, Tensor};

/// Rows of the left factor from which a 4-bit weight is decoded to memory before the product, and not again in every tile.
///
/// An estimate to be measured with `benches/gpu_matmul.rs`: decoding an element takes about 15 instructions, once for every
/// 128 rows in tiles of the product, which at half the speed of a card with 60 TFLOP/s is 4 fs per row; writing and reading it
/// as f32 takes 8.5 bytes, 2.8 ps at 3 TB/s. They meet near 700 rows.
const DECODED_FROM: usize = 768;
/// Rows up to which a product goes row by row.
const FEW_ROWS: usize = 4;
/// Tiles of 128 x 128 that keep a large card busy; with fewer of them smaller tiles do better. Products with fewer tiles are
/// also split along the sum, into at most `2 * BUSY` workgroups.
const BUSY: usize = 128;
/// The least steps of a sum that are worth a workgroup of their own.
const LEAST_SPLIT: usize = 256;

/// The left factor `[m, k]`, in rows from `first` on, or its transpose.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    pub(crate) data: &'a GpuBuffer,
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) transposed: bool,
    /// The tensor of which it is all elements: what it is converted to is kept there.
    pub(crate) tensor: Option<&'a Tensor>,
}

/// The right factor, a stored matrix `[rows, cols]` or its transpose.
#[derive(Clone, Copy)]
pub(crate) struct Right<'a> {
    pub(crate) storage: &'a GpuStorage,
    /// Row of the stored matrix at which it begins.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) transposed: bool,
}

/// What is added to a product, and how it is scaled.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a> {
    pub(crate) factor: f32,
    pub(crate) gate: Option<&'a GpuBuffer>,
    pub(crate) base: Option<&'a GpuBuffer>,
    pub(crate) bias: Option<&'a GpuBuffer>,
    /// Where the result begins.
    pub(crate) first: usize,
    /// In which the operands are multiplied, where the card and the shape allow it.
    pub(crate) precision: Precision,
}

impl Default for Epilogue<'_> {
    fn default() -> Self {
        Epilogue { factor: 1.0, gate: None, base: None, bias: None, first: 0, precision: Precision::F32 }
    }
}

/// Rows, columns and steps of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

impl Sizes {
    pub(super) fn operations(self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }

    pub(super) fn of(left: Left, right: Right) -> Self {
        let (m, k) = if left.transposed { (left.cols, left.rows) } else { (left.rows, left.cols) };
        Sizes { m, n: if right.transposed { right.rows } else { right.cols }, k }
    }
}

/// How a product is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Row by row.
    Rows,
    /// In tiles, the sum over `k` in this many splits.
    Tiles(Tile, usize),
}

impl Plan {
    fn choose(Sizes { m, n, k }: Sizes, left: Left, right: Right) -> Self {
        if m <= FEW_ROWS && right.transposed && !left.transposed {
            return Plan::Rows;
        }
        let tiles = |tile: Tile| m.div_ceil(tile.size()[0]) * n.div_ceil(tile.size()[1]);
        let tile = match (m, n) {
            _ if tiles(Tile::Large) >= BUSY && m.min(n) > 64 => Tile::Large,
            (_, ..=32) => Tile::Tall,
            (..=32, _) => Tile::Wide,
            _ => Tile::Small,
        };
        let splits = (2 * BUSY / tiles(tile)).min(k / LEAST_SPLIT).max(1);
        Plan::Tiles(tile, splits)
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Parameters {
    sizes: [u32; 3],
    a: [u32; 2],
    b: [u32; 2],
    c_first: u32,
    block: u32,
    factor: f32,
    split_len: u32,
    first_tile: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Sum {
    elements: u32,
    n: u32,
    splits: u32,
    c_first: u32,
    factor: f32,
}

/// How kernels see what a weight is stored in.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    /// Their constant.
    pub code: f64,
    pub scales: &'a GpuBuffer,
    pub codebook: &'a GpuBuffer,
    pub block: usize,
}

impl<'a> Stored<'a> {
    pub fn of(operator: &'static str, storage: &'a GpuStorage) -> Result<Self> {
        let plain = |code| Stored { code, scales: &storage.buffer, codebook: &storage.buffer, block: 1 };
        Ok(match (storage.dtype, &storage.nf4) {
            // Kernels of blocks need nothing but the blocks.
            (DType::F32 | DType::Blocks(_), _) => plain(0.0),
            (DType::BF16, _) => plain(1.0),
            (DType::F16, _) => plain(2.0),
            (DType::Nf4, Some(nf4)) => {
                let code = match nf4.source {
                    DType::BF16 => 4.0,
                    DType::F16 => 5.0,
                    _ => 3.0,
                };
                Stored { code, scales: &nf4.scales, codebook: &nf4.codebook, block: nf4.block }
            }
            (found, _) => return Err(Error::DType { operator, expected: "a float", found }),
        })
    }

    /// Whether four elements have one scale, found by a shift.
    fn in_vectors(self) -> bool {
        self.block.is_power_of_two() && (self.block == 1 || self.block >= 4)
    }
}

/// `out = base + factor gate left right + bias`.
pub(crate) fn gemm(gpu: &'static Gpu, left: Left, right: Right, how: Epilogue, out: &GpuBuffer) -> Result<()> {
    let sizes = Sizes::of(left, right);
    if sizes.m == 0 || sizes.n == 0 {
        return Ok(());
    }
    if how.precision == Precision::F16 && cooperative::gemm(gpu, left, right, how, out)? {
        return Ok(());
    }
    let plan = Plan::choose(sizes, left, right);
    let decoded = match right.storage.dtype {
        // Without room for it the weight is decoded in the tiles.
        DType::Nf4 if sizes.m >= DECODED_FROM => whole(gpu, right.storage, DType::F32).unwrap_or_default(),
        DType::Blocks(_) if plan != Plan::Rows => whole(gpu, right.storage, DType::F32)?,
        _ => None,
    };
    let right = Right { storage: decoded.as_ref().unwrap_or(right.storage), ..right };
    planned(gpu, left, right, how, out, plan)
}

/// A weight for many products, converted once to the type that they multiply. `None` for `f16` in f16, for all but block formats
/// in f32, and where its form does not suit: the products then read it as it is stored, or convert it each time.
pub(crate) fn converted(gpu: &'static Gpu, storage: &GpuStorage, precision: Precision) -> Result<Option<GpuStorage>> {
    match (precision, storage.dtype) {
        (Precision::F16, DType::F16) => Ok(None),
        (Precision::F16, _) => whole(gpu, storage, DType::F16),
        (_, DType::Blocks(_)) => whole(gpu, storage, DType::F32),
        _ => Ok(None),
    }
}

/// All of `storage` in f32 or f16; `None` where its form does not suit.
pub(crate) fn whole(gpu: &'static Gpu, storage: &GpuStorage, dtype: DType) -> Result<Option<GpuStorage>> {
    if let DType::Blocks(format) = storage.dtype {
        return blocks::decoded(gpu, storage, format, dtype).map(Some);
    }
    let stored = Stored::of("linear", storage)?;
    let part =
        Part { buffer: &storage.buffer, format: Format::of(storage.dtype), first: 0, elements: storage.elements };
    convert(gpu, part, stored, dtype, None)
}

/// A part of a left factor in f16, multiplied by `scale`; `None` where its form does not suit.
pub(super) fn scaled_to_half(gpu: &'static Gpu, left: Left, scale: &GpuBuffer) -> Result<Option<GpuStorage>> {
    let (first, elements) = (left.first * left.cols, left.rows * left.cols);
    let part = Part { buffer: left.data, format: Format::F32, first, elements };
    let stored = Stored { code: 0.0, scales: left.data, codebook: left.data, block: 1 };
    convert(gpu, part, stored, DType::F16, Some(scale))
}

/// Elements from `first` on.
struct Part<'a> {
    buffer: &'a GpuBuffer,
    format: Format,
    first: usize,
    elements: usize,
}

fn convert(
    gpu: &'static Gpu,
    Part { buffer, format, first, elements }: Part,
    stored: Stored,
    dtype: DType,
    scale: Option<&GpuBuffer>,
) -> Result<Option<GpuStorage>> {
    let half = dtype == DType::F16;
    if !elements.is_multiple_of(4) || !first.is_multiple_of(4) || !stored.in_vectors() {
        return Ok(None);
    }
    let out = gpu.allocate((elements * if half { 2 } else { 4 }) as u64)?;
    let parameters = Parameters {
        sizes: [0, 0, (elements / 4) as u32],
        a: [0, 0],
        b: [0, first as u32],
        c_first: 0,
        block: stored.block.ilog2(),
        factor: 1.0,
        split_len: 0,
        first_tile: 0,
    };
    let constants = [("STORED", stored.code), ("SCALED", flag(scale.is_some()))];
    let buffers = [&out, buffer, stored.scales, stored.codebook, scale.unwrap_or(stored.scales)];
    gpu.launch(kernels::convert(format, half), &constants, &buffers, &parameters, groups(elements / 4, 256))?;
    Ok(Some(GpuStorage { buffer: out, dtype, elements, nf4: None }))
}

/// As [`gemm`] for a result that is not empty, as `plan` has it.
pub(super) fn planned(
    gpu: &'static Gpu,
    left: Left,
    right: Right,
    how: Epilogue,
    out: &GpuBuffer,
    plan: Plan,
) -> Result<()> {
    let sizes = Sizes::of(left, right);
    let Sizes { m, n, k } = sizes;
    let stored = Stored::of("linear", right.storage)?;
    let in_fours = [left.cols, left.first * left.cols, right.cols, right.first * right.cols, n, how.first];
    let in_blocks = matches!(right.storage.dtype, DType::Blocks(_));
    let vectors = !in_blocks && stored.in_vectors() && in_fours.iter().all(|size| size.is_multiple_of(4));
    let access = if vectors { Access::Vector(Format::of(right.storage.dtype)) } else { Access::Scalar };
    let (kernel, tiles, splits) = match plan {
        Plan::Rows => {
            let kernel = match right.storage.dtype {
                DType::Blocks(format) => blocks::kernels(format)?.matvec,
                _ => kernels::matvec(access),
            };
            (kernel, 1, 1)
        }
        Plan::Tiles(tile, splits) => {
            (kernels::gemm(tile, access), m.div_ceil(tile.size()[0]) * n.div_ceil(tile.size()[1]), splits)
        }
    };
    // Whole slices, the longest of which are 16 steps.
    let split_len = k.div_ceil(splits).next_multiple_of(16);
    let partial = if splits > 1 { Some(gpu.allocate(4 * (splits * m * n) as u64)?) } else { None };
    let now = if partial.is_some() { Epilogue::default() } else { how };
    let transposed = [("A_TRANSPOSED", flag(left.transposed)), ("B_TRANSPOSED", flag(right.transposed))];
    let constants = [
        ("STORED", stored.code),
        ("BASE", flag(now.base.is_some())),
        ("BIAS", flag(now.bias.is_some())),
        ("GATED", flag(now.gate.is_some())),
        transposed[0],
        transposed[1],
    ];
    // Row by row neither is transposed in a way that the kernel would ask for.
    let constants = if plan == Plan::Rows { &constants[..4] } else { &constants[..] };
    let parameters = Parameters {
        sizes: [m as u32, n as u32, k as u32],
        a: [left.cols as u32, (left.first * left.cols) as u32],
        b: [right.cols as u32, (right.first * right.cols) as u32],
        c_first: now.first as u32,
        block: if vectors { stored.block.ilog2() } else { stored.block as u32 },
        factor: now.factor,
        split_len: split_len as u32,
        first_tile: 0,
    };
    let spare = left.data;
    let buffers = [
        left.data,
        &right.storage.buffer,
        stored.scales,
        stored.codebook,
        now.base.unwrap_or(spare),
        now.bias.unwrap_or(spare),
        now.gate.unwrap_or(spare),
        partial.as_ref().unwrap_or(out),
    ];
    let decoding = if plan == Plan::Rows && in_blocks { blocks::DECODING * (m * n * k) as f64 } else { 0.0 };
    let operations = sizes.operations() + decoding;
    for run in gpu.runs(tiles, operations) {
        let [x, y, z] = match plan {
            Plan::Rows => [groups(n, 8)[0], groups(n, 8)[1], m as u32],
            Plan::Tiles(..) => [groups(run.len(), 1)[0], groups(run.len(), 1)[1], splits as u32],
        };
        gpu.launch(kernel, constants, &buffers, &Parameters { first_tile: run.start as u32, ..parameters }, [x, y, z])?;
        gpu.weigh(operations * run.len() as f64 / tiles as f64);
    }
    let Some(partial) = partial else { return Ok(()) };
    let constants =
        [("BASE", flag(how.base.is_some())), ("BIAS", flag(how.bias.is_some())), ("GATED", flag(how.gate.is_some()))];
    let parameters = Sum {
        elements: (m * n) as u32,
        n: n as u32,
        splits: splits as u32,
        c_first: how.first as u32,
        factor: how.factor,
    };
    let buffers = [&partial, how.base.unwrap_or(spare), how.bias.unwrap_or(spare), how.gate.unwrap_or(spare), out];
    gpu.launch(&kernels::SPLIT_K_REDUCE, &constants, &buffers, &parameters, groups(m * n, 256))
}
