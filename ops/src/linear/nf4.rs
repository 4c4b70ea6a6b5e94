//! Quantisation to packed 4-bit normal floats, equal to bitsandbytes bit for bit (Dettmers et al., "QLoRA", 2023).
//!
//! The row-major flattened matrix is cut in blocks of 64. With `absmax` the largest magnitude of a block, an element becomes
//! the index of the code value nearest to `w * (1 / absmax)`, in single precision, an exact tie going to the lower value.
//! Double quantisation stores `absmax - offset`, `offset` the mean of all, as 8-bit codes in blocks of 256 against a book of
//! dynamic exponents.

use crate::kernels::simd::vectorized;
use half::{bf16, f16};
use hankel_core::nf4::Scales;
use hankel_core::{CpuStorage, DType, Error, Nf4, Result, Storage, Tensor};
use rayon::prelude::*;

/// Elements that share a scale.
pub const BLOCK: usize = 64;
/// Scales that share a nested scale.
pub const NESTED_BLOCK: usize = 256;

/// The 16 values: quantiles of the standard normal distribution, scaled to -1 ..= 1, one of them exactly 0.
pub const BOOK: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// Blocks quantised by one task.
const TASK_BLOCKS: usize = 512;

/// Quantises a matrix of `f32`, `bf16` or `f16`, in parallel. Decoded values are rounded to that type.
///
/// # Errors
/// When the element type is another or a value is not finite.
pub fn quantize(matrix: &Tensor, double: bool) -> Result<Tensor> {
    quantize_blocks(matrix, double, BLOCK)
}

/// As [`quantize`], with blocks of `block` elements (even, at most 4096).
///
/// # Errors
/// As [`quantize`], and when the block's size is out of range.
pub fn quantize_blocks(matrix: &Tensor, double: bool, block: usize) -> Result<Tensor> {
    if block == 0 || block % 2 == 1 || block > 4096 {
        return Err(Error::invalid(
            "nf4",
            format!("blocks of {block} elements; their size must be even, at most 4096"),
        ));
    }
    let Storage::Cpu(storage) = matrix.storage();
    let (packed, scales) = match storage {
        CpuStorage::F32(data) => blocks(data, block, |x| *x),
        CpuStorage::BF16(data) => blocks(data, block, |x: &bf16| f32::from_bits(u32::from(x.to_bits()) << 16)),
        CpuStorage::F16(data) => blocks(data, block, |x: &f16| x.to_f32()),
        _ => return Err(Error::DType { operator: "nf4", expected: "f32, bf16 or f16", found: matrix.dtype() }),
    };
    if let Some(i) = scales.iter().position(|scale| !scale.is_finite()) {
        let problem = format!("a value among elements {}.. is not finite", i * block);
        return Err(Error::invalid("nf4", problem));
    }
    let scales = if double { nested(&scales) } else { Scales::Plain(scales.into()) };
    let quantized = Nf4::new(packed.into(), scales, BOOK, [matrix.elements(), block], matrix.dtype())?;
    Tensor::from_nf4(quantized, matrix.shape())
}

/// What a tensor of this type becomes when it is quantised and decoded again: tests and merging.
///
/// # Errors
/// As [`quantize`].
pub fn round_trip(matrix: &Tensor, double: bool) -> Result<Tensor> {
    quantize(matrix, double)?.to_dtype(if matrix.dtype() == DType::F64 { DType::F64 } else { DType::F32 })
}

/// Codes and scales of all blocks. A scale that is not finite marks a block with such an element.
fn blocks<S: Sync>(data: &[S], block: usize, widen: impl Fn(&S) -> f32 + Sync + Copy) -> (Vec<u8>, Vec<f32>) {
    let mut packed = vec![0_u8; data.len().div_ceil(2)];
    let mut scales = vec![0.0_f32; data.len().div_ceil(block)];
    let tasks = packed.par_chunks_mut(TASK_BLOCKS * block / 2).zip(scales.par_chunks_mut(TASK_BLOCKS));
    tasks.zip(data.par_chunks(TASK_BLOCKS * block)).for_each(|((packed, scales), data)| {
        vectorized(
            #[inline(always)]
            || {
                let mut wide = vec![0.0_f32; block];
                let mut codes = vec![0_u8; block];
                let parts = packed.chunks_mut(block / 2).zip(scales).zip(data.chunks(block));
                for ((packed, scale), data) in parts {
                    let (wide, codes) = (&mut wide[..data.len()], &mut codes[..packed.len() * 2]);
                    wide.iter_mut().zip(data).for_each(
                        #[inline(always)]
                        |(y, x)| *y = widen(x),
                    );
                    *scale = absmax(wide);
                    encode(wide, *scale, codes);
                    for (byte, pair) in packed.iter_mut().zip(codes.as_chunks::<2>().0) {
                        *byte = pair[0] << 4 | pair[1];
                    }
                }
            },
        );
    });
    (packed, scales)
}

/// The largest magnitude; a NaN if there is one, for its bits are above those of every number.
#[inline(always)]
fn absmax(x: &[f32]) -> f32 {
    let mut lanes = [0_u32; 16];
    for x in x.chunks(16) {
        for (lane, x) in lanes.iter_mut().zip(x) {
            *lane = (*lane).max(x.to_bits() & 0x7fff_ffff);
        }
    }
    f32::from_bits(lanes.into_iter().fold(0, u32::max))
}

/// Index of the nearest code value for each element: the number of midpoints below it. `codes` may be one longer.
#[inline(always)]
fn encode(x: &[f32], absmax: f32, codes: &mut [u8]) {
    // A block of zeros takes the code of 0.
    let inverse = if absmax > 0.0 { 1.0 / absmax } else { 0.0 };
    codes[x.len()..].fill(0);
    let mut counts = [0_i32; 16];
    for (x, codes) in x.chunks(16).zip(codes.chunks_mut(16)) {
        let mut scaled = [0.0_f32; 16];
        for (y, x) in scaled.iter_mut().zip(x) {
            *y = *x * inverse;
        }
        counts.fill(0);
        for midpoint in MIDPOINTS {
            for (count, scaled) in counts.iter_mut().zip(&scaled) {
                *count += i32::from(*scaled > midpoint);
            }
        }
        for (code, count) in codes.iter_mut().zip(&counts).take(x.len()) {
            *code = *count as u8;
        }
    }
}

/// Decision boundaries between neighbouring code values.
const MIDPOINTS: [f32; 15] = {
    let mut midpoints = [0.0; 15];
    let mut i = 0;
    while i < 15 {
        midpoints[i] = (BOOK[i] + BOOK[i + 1]) * 0.5;
        i += 1;
    }
    midpoints
};

/// Quantises scales to 8 bits.
fn nested(scales: &[f32]) -> Scales {
    let book = dynamic_book();
    let midpoints: Vec<f32> = book.windows(2).map(|pair| (pair[0] + pair[1]) * 0.5).collect();
    let offset = (scales.iter().map(|&x| f64::from(x)).sum::<f64>() / scales.len().max(1) as f64) as f32;
    let mut nested = Vec::with_capacity(scales.len().div_ceil(NESTED_BLOCK));
    let mut codes = Vec::with_capacity(scales.len());
    for block in scales.chunks(NESTED_BLOCK) {
        let largest = block.iter().fold(0.0_f32, |m, x| m.max((x - offset).abs()));
        let inverse = if largest > 0.0 { 1.0 / largest } else { 0.0 };
        nested.push(largest);
        let code = |x: &f32| midpoints.partition_point(|&midpoint| (x - offset) * inverse > midpoint) as u8;
        codes.extend(block.iter().map(code));
    }
    Scales::Double { codes: codes.into(), nested: nested.into(), book: Box::new(book), offset, block: NESTED_BLOCK }
}

/// The 8-bit code book with dynamic exponents: for each of seven decades, twice as many values of either sign as for the
/// decade below, in the middles of equal parts of 0.1 ..= 1; besides 0 and 1. Sorted.
pub fn dynamic_book() -> [f32; 256] {
    let mut book = Vec::with_capacity(256);
    for exponent in 0..7 {
        let parts = 1_usize << exponent;
        let decade = 10.0_f64.powi(exponent - 6) as f32;
        // As torch.linspace computes it in single precision: fused, from either end to the middle.
        let step = (1.0_f32 - 0.1) / parts as f32;
        let boundary = |i: usize| {
            if i < parts.div_ceil(2) { step.mul_add(i as f32, 0.1) } else { (-step).mul_add((parts - i) as f32, 1.0) }
        };
        for i in 0..parts {
            let middle = boundary(i).midpoint(boundary(i + 1));
            book.extend([decade * middle, -(decade * middle)]);
        }
    }
    book.extend([0.0, 1.0]);
    book.sort_by(f32::total_cmp);
    book.try_into().expect("2 (1 + 2 + ... + 64) + 2 values")
}
