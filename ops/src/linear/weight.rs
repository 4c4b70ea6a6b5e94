//! A weight as the right factor of a product, from whatever it is stored in.

use super::nf4_decode;
#[cfg(target_arch = "x86_64")]
use crate::kernels::gemm::bf16::{Bf16Factor, Bf16Source, DotProducts};
use crate::kernels::gemm::{PanelShape, ROWS_AHEAD, RightFactor};
use crate::kernels::rounding::round;
use crate::kernels::simd::{prefetch, vectorized};
use crate::kernels::transpose::{SIDE, transpose};
use crate::kernels::{Mat, Real};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use hankel_core::block_formats::MAX_BLOCK;
use hankel_core::{BlockMatrix, CpuStorage, DType, Error, Nf4, Precision, Result, Tensor};
use std::ops::Range;

/// A matrix `[out, in]`, or its transpose.
pub(crate) enum Weight<'a, T> {
    /// In the type of the product: read in place.
    Same(Mat<'a, T>),
    /// In another type: decoded into the panels that the product packs anyway.
    Compact { source: Operand<'a>, rows: usize, cols: usize, transposed: bool },
}

/// Elements that may be rounded to `bf16` as they are decoded.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    source: Source<'a>,
    precision: Precision,
}

impl Operand<'_> {
    /// Whether elements are decoded in blocks.
    pub(crate) fn in_blocks(&self) -> bool {
        matches!(self.source, Source::Blocks(_))
    }

    /// Elements from `first` on, not rounded.
    #[inline(always)]
    pub(super) fn exact<T: Real>(&self, first: usize, out: &mut [T]) {
        self.source.decode(first, out);
    }

    /// Runs of `len` elements that begin `step` apart, the first at `first`, to places `stride` apart.
    #[inline(always)]
    fn decode_runs<T: Real>(&self, first: usize, step: usize, len: usize, out: &mut [T], stride: usize) {
        if let (Source::Blocks(data), DType::F32, Precision::F32) = (self.source, T::ELEMENT, self.precision) {
            return data.decode_runs(first, step, len, bytemuck::cast_slice_mut(out), stride);
        }
        for (i, out) in out.chunks_mut(stride).enumerate() {
            self.source.prefetch(first + (i + 1) * step, len);
            self.decode(first + i * step, &mut out[..len]);
        }
    }

    /// Elements from `first` on.
    #[inline(always)]
    pub(crate) fn decode<T: Real>(&self, first: usize, out: &mut [T]) {
        self.exact(first, out);
        if self.precision == Precision::Bf16 && !matches!(self.source, Source::Bf16(_)) {
            round(out);
        }
    }
}

/// Elements in single precision or in fewer bits.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
    Nf4(&'a Nf4),
    Blocks(&'a BlockMatrix),
}

impl<'a, T: Real> Weight<'a, T> {
    /// The matrix behind `tensor`, for a product in `precision`.
    pub(crate) fn new(tensor: &'a Tensor, precision: Precision) -> Result<Self> {
        let &[rows, cols] = &tensor.shape()[..] else {
            return Err(Error::shape("linear", format!("weight has shape {}, expected [out, in]", tensor.shape())));
        };
        let storage = tensor.cpu_storage("linear")?;
        let bf16 = precision == Precision::Bf16;
        let source = match storage {
            CpuStorage::F32(data) if bf16 => Some(Source::F32(data)),
            storage => Source::of(storage),
        };
        match source {
            Some(source) => {
                let source = Operand { source, precision };
                Ok(Weight::Compact { source, rows, cols, transposed: false })
            }
            None => Ok(Weight::Same(Mat::new(tensor.data()?, rows, cols))),
        }
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.rows(), self.cols())
    }

    /// What it is stored in, if it is in single precision or in fewer bits.
    pub(super) fn source(&self) -> Option<Source<'a>> {
        match self {
            Weight::Same(matrix) if T::ELEMENT == DType::F32 => Some(Source::F32(bytemuck::cast_slice(matrix.data()))),
            Weight::Same(_) => None,
            Weight::Compact { source, .. } => Some(source.source),
        }
    }

    /// Whether its products are of operands rounded to `bf16`.
    pub(crate) fn is_rounded(&self) -> bool {
        matches!(self, Weight::Compact { source, .. } if source.precision == Precision::Bf16)
    }

    /// The factor of dot products of `bf16`.
    ///
    /// # Panics
    /// When the weight is for another precision.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn in_pairs(&self, dot: DotProducts) -> Bf16Factor<'_, Source<'a>> {
        let Weight::Compact { source, rows, cols, transposed } = self else {
            unreachable!("a weight for bf16 is never read in place");
        };
        Bf16Factor { source: &source.source, rows: *rows, cols: *cols, transposed: *transposed, dot }
    }

    /// The transpose, of the same elements.
    pub(crate) fn t(self) -> Self {
        match self {
            Weight::Same(matrix) => Weight::Same(matrix.t()),
            Weight::Compact { source, rows, cols, transposed } => {
                Weight::Compact { source, rows, cols, transposed: !transposed }
            }
        }
    }
}

impl<'a> Source<'a> {
    /// The elements of `storage`, if they are stored in fewer bits than a product computes in.
    pub(crate) fn of(storage: &'a CpuStorage) -> Option<Self> {
        match storage {
            CpuStorage::F16(data) => Some(Source::F16(data)),
            CpuStorage::BF16(data) => Some(Source::Bf16(data)),
            CpuStorage::Nf4(data) => Some(Source::Nf4(data)),
            CpuStorage::Blocks(data) => Some(Source::Blocks(data)),
            _ => None,
        }
    }

    /// Elements that are decoded for the price of one.
    fn together(&self) -> usize {
        match self {
            Source::Blocks(data) => data.format().block_size(),
            // Whole blocks of the usual sizes, and few calls.
            Source::Nf4(_) => 256,
            _ => 1,
        }
    }

    /// Asks for elements to be brought to the cache.
    #[inline(always)]
    fn prefetch(&self, first: usize, count: usize) {
        match self {
            Source::F32(data) => prefetch(data, first, count),
            Source::F16(data) => prefetch(data, first, count),
            Source::Bf16(data) => prefetch(data, first, count),
            Source::Nf4(data) => prefetch(data.packed(), first / 2, count / 2),
            Source::Blocks(data) => {
                let (size, bytes) = (data.format().block_size(), data.format().block_bytes());
                prefetch(data.bytes(), first / size * bytes, count / size * bytes);
            }
        }
    }

    /// Elements from `first` on.
    #[inline(always)]
    pub(crate) fn decode<T: Real>(&self, first: usize, out: &mut [T]) {
        match self {
            Source::Bf16(data) => {
                for (y, x) in out.iter_mut().zip(&data[first..]) {
                    *y = T::of(f64::from(f32::from_bits(u32::from(x.to_bits()) << 16)));
                }
            }
            Source::F32(data) => {
                for (y, x) in out.iter_mut().zip(&data[first..]) {
                    *y = T::of(f64::from(*x));
                }
            }
            Source::F16(data) => {
                let mut wide = [0.0_f32; 64];
                for (out, data) in out.chunks_mut(64).zip(data[first..].chunks(64)) {
                    let wide = &mut wide[..out.len()];
                    data[..out.len()].convert_to_f32_slice(wide);
                    out.iter_mut().zip(&*wide).for_each(|(y, &x)| *y = T::of(f64::from(x)));
                }
            }
            Source::Nf4(data) => nf4_decode::decode(data, first, out),
            Source::Blocks(data) => decode_blocks(data, first, out),
        }
    }
}

/// Elements of blocks from `first` on. Not inlined: formats have vector code of their own.
fn decode_blocks<T: Real>(data: &BlockMatrix, first: usize, out: &mut [T]) {
    if T::ELEMENT == DType::F32 {
        return data.decode(first, bytemuck::cast_slice_mut(out));
    }
    let mut wide = [0.0_f32; MAX_BLOCK];
    for (i, out) in out.chunks_mut(MAX_BLOCK).enumerate() {
        let wide = &mut wide[..out.len()];
        data.decode(first + i * MAX_BLOCK, wide);
        out.iter_mut().zip(&*wide).for_each(|(y, &x)| *y = T::of(f64::from(x)));
    }
}

#[cfg(target_arch = "x86_64")]
impl Bf16Source for Source<'_> {
    fn together(&self) -> usize {
        self.together()
    }

    #[inline(always)]
    fn prefetch(&self, first: usize, count: usize) {
        self.prefetch(first, count);
    }

    #[inline(always)]
    fn decode(&self, dot: DotProducts, first: usize, out: &mut [u16]) {
        let mut wide = [0.0_f32; 64];
        match self {
            Source::F32(data) => dot.round(&data[first..][..out.len()], out),
            Source::Bf16(data) => out.copy_from_slice(data[first..][..out.len()].reinterpret_cast()),
            Source::F16(data) => {
                for (out, data) in out.chunks_mut(wide.len()).zip(data[first..].chunks(wide.len())) {
                    let wide = &mut wide[..out.len()];
                    data[..out.len()].convert_to_f32_slice(wide);
                    dot.round(wide, out);
                }
            }
            Source::Nf4(data) => nf4_decode::decode_bf16(dot, data, first, out),
            Source::Blocks(data) => {
                let mut wide = [0.0_f32; MAX_BLOCK];
                for (i, out) in out.chunks_mut(MAX_BLOCK).enumerate() {
                    let wide = &mut wide[..out.len()];
                    data.decode(first + i * MAX_BLOCK, wide);
                    dot.round(wide, out);
                }
            }
        }
    }
}

impl<T: Real> RightFactor<T> for Weight<'_, T> {
    fn rows(&self) -> usize {
        match self {
            Weight::Same(matrix) => matrix.rows(),
            &Weight::Compact { rows, cols, transposed, .. } => {
                if transposed {
                    cols
                } else {
                    rows
                }
            }
        }
    }

    fn cols(&self) -> usize {
        match self {
            Weight::Same(matrix) => matrix.cols(),
            &Weight::Compact { rows, cols, transposed, .. } => {
                if transposed {
                    rows
                } else {
                    cols
                }
            }
        }
    }

    fn together(&self) -> usize {
        match self {
            Weight::Compact { source, transposed: false, .. } => source.source.together(),
            _ => 1,
        }
    }

    fn pack(&self, k: Range<usize>, j: Range<usize>, shape: PanelShape, out: &mut [T]) {
        match self {
            Weight::Same(matrix) => matrix.pack(k, j, shape, out),
            Weight::Compact { source, cols, transposed: true, .. } => vectorized(
                #[inline(always)]
                || pack_rows(source, *cols, k, j, shape, out),
            ),
            Weight::Compact { source, cols, transposed: false, .. } => vectorized(
                #[inline(always)]
                || pack_columns(source, *cols, k, j, shape, out),
            ),
        }
    }
}

/// Rows of the source, `stride` elements each, are columns of the factor: some are decoded side by side and transposed.
#[inline(always)]
fn pack_rows<T: Real>(
    source: &Operand,
    stride: usize,
    k: Range<usize>,
    j: Range<usize>,
    shape: PanelShape,
    out: &mut [T],
) {
    /// Room for whole squares and a line more, so that the rows fall on different lines of the cache.
    const ROW: usize = MAX_BLOCK + SIDE;
    // Steps of `k` decoded at a time: a cache line of nf4, or a whole block.
    let run = if source.in_blocks() { MAX_BLOCK } else { 128 };
    let mut decoded = [[T::zero(); ROW]; SIDE];
    let mut rest = out;
    for (column, width) in shape.columns(j.len()) {
        let (panel, after) = rest.split_at_mut(k.len() * width);
        rest = after;
        for (block, panel) in k.clone().step_by(run).zip(panel.chunks_mut(run * width)) {
            let steps = run.min(k.end - block);
            for first in (0..width).step_by(SIDE) {
                let count = SIDE.min(width).min(j.len().saturating_sub(column + first));
                let from = (j.start + column + first) * stride + block;
                source.decode_runs(from, stride, steps, decoded[..count].as_flattened_mut(), ROW);
                decoded[count..].as_flattened_mut().fill(T::zero());
                if width >= SIDE {
                    for p in (0..steps).step_by(SIDE) {
                        transpose(
                            &decoded.as_flattened()[p..],
                            ROW,
                            &mut panel[p * width + first..],
                            width,
                            SIDE.min(steps - p),
                        );
                    }
                } else {
                    for (p, out) in panel.chunks_exact_mut(width).enumerate() {
                        out.iter_mut().enumerate().for_each(|(i, y)| *y = decoded[i][p]);
                    }
                }
            }
        }
    }
}

/// Rows of the source are rows of the factor.
#[inline(always)]
fn pack_columns<T: Real>(
    source: &Operand,
    stride: usize,
    k: Range<usize>,
    j: Range<usize>,
    shape: PanelShape,
    out: &mut [T],
) {
    /// Columns decoded at a time: whole blocks of the 4-bit format, and whole panels.
    const COLUMNS: usize = 256;
    let steps = k.len();
    if let Source::Blocks(data) = source.source
        && shape.width.is_multiple_of(data.format().block_size())
        && j.len().is_multiple_of(shape.width)
    {
        // A panel has whole blocks, which become its rows.
        for (panel, out) in out.chunks_exact_mut(steps * shape.width).enumerate() {
            let from = k.start * stride + j.start + panel * shape.width;
            source.decode_runs(from, stride, shape.width, out, shape.width);
        }
        return;
    }
    let mut decoded = [T::zero(); COLUMNS];
    for (i, p) in k.enumerate() {
        for first in (0..j.len()).step_by(COLUMNS) {
            let cols = COLUMNS.min(j.len() - first);
            let from = p * stride + j.start + first;
            source.source.prefetch(from + ROWS_AHEAD * stride, cols);
            source.decode(from, &mut decoded[..cols]);
            decoded[cols..cols.next_multiple_of(shape.width).min(COLUMNS)].fill(T::zero());
            for (column, width) in shape.columns(cols) {
                let out = &mut out[(first + column) * steps + i * width..][..width];
                out.copy_from_slice(&decoded[column..][..width]);
            }
        }
    }
}
