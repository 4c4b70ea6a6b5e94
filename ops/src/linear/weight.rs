//! A weight as the right factor of a product, from whatever it is stored in.

use super::{nf4_decode, precision};
use crate::kernels::gemm::RightFactor;
use crate::kernels::simd::vectorized;
use crate::kernels::{Mat, Real};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use hankel_core::{CpuStorage, Error, Nf4, Precision, Result, Tensor};
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
    rounded: bool,
}

impl Operand<'_> {
    /// Elements from `first` on.
    #[inline(always)]
    pub(crate) fn decode<T: Real>(&self, first: usize, out: &mut [T]) {
        self.source.decode(first, out);
        if self.rounded {
            precision::round(out);
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
                let source = Operand { source, rounded: bf16 && !matches!(source, Source::Bf16(_)) };
                Ok(Weight::Compact { source, rows, cols, transposed: false })
            }
            None => Ok(Weight::Same(Mat::new(tensor.data()?, rows, cols))),
        }
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.rows(), self.cols())
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
            _ => None,
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

    fn pack(&self, k: Range<usize>, j: Range<usize>, width: usize, out: &mut [T]) {
        /// Steps of `k` decoded at a time: a block of the 4-bit format.
        const STEPS: usize = 64;
        /// Columns decoded before they are written side by side.
        const COLUMNS: usize = 16;
        let &Weight::Compact { source, cols: stride, transposed, .. } = self else {
            let Weight::Same(matrix) = self else { unreachable!("the other variant was matched") };
            return matrix.pack(k, j, width, out);
        };
        let cols = j.len();
        if cols < width {
            out.fill(T::zero());
        }
        if !transposed {
            vectorized(|| {
                for (p, out) in k.zip(out.chunks_exact_mut(width)) {
                    source.decode(p * stride + j.start, &mut out[..cols]);
                }
            });
            return;
        }
        vectorized(|| {
            let mut decoded = [[T::zero(); STEPS]; COLUMNS];
            for (block, out) in k.clone().step_by(STEPS).zip(out.chunks_mut(STEPS * width)) {
                let steps = STEPS.min(k.end - block);
                for first in (0..cols).step_by(COLUMNS) {
                    let count = COLUMNS.min(cols - first);
                    for (column, decoded) in decoded[..count].iter_mut().enumerate() {
                        source.decode((j.start + first + column) * stride + block, &mut decoded[..steps]);
                    }
                    for (p, row) in out.chunks_exact_mut(width).enumerate() {
                        for (y, decoded) in row[first..first + count].iter_mut().zip(&decoded) {
                            *y = decoded[p];
                        }
                    }
                }
            }
        });
    }
}
