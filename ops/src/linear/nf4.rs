//! Quantisation to packed 4-bit normal floats, equal to bitsandbytes bit for bit (Dettmers et al., "QLoRA", 2023).
//!
//! The row-major flattened matrix is cut in blocks of 64. With `absmax` the largest magnitude of a block, an element becomes
//! the index of the code value nearest to `w * (1 / absmax)`, in single precision, an exact tie going to the lower value.
//! Double quantisation stores `absmax - offset`, `offset` the mean of all, as 8-bit codes in blocks of 256 against a codebook of
//! dynamic exponents.

use super::weight::Source;
use crate::kernels::simd::vectorized;
use hankel_core::nf4::Scales;
use hankel_core::{CpuStorage, DType, Error, Nf4, Result, Tensor, parallel};

/// Elements that share a scale.
pub const BLOCK: usize = 64;
/// Scales that share a nested scale.
pub const NESTED_BLOCK: usize = 256;

/// The 16 values: quantiles of the standard normal distribution, scaled to -1 ..= 1, one of them exactly 0.
pub const CODEBOOK: [f32; 16] = [
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
    let source = match matrix.cpu_storage("nf4")? {
        CpuStorage::F32(data) => Source::F32(data),
        CpuStorage::BF16(data) => Source::Bf16(data),
        CpuStorage::F16(data) => Source::F16(data),
        _ => return Err(Error::DType { operator: "nf4", expected: "f32, bf16 or f16", found: matrix.dtype() }),
    };
    let (packed, scales) = blocks(source, matrix.elements(), block);
    if let Some(i) = scales.iter().position(|scale| !scale.is_finite()) {
        let problem = format!("a value among elements {}.. is not finite", i * block);
        return Err(Error::invalid("nf4", problem));
    }
    let scales = if double { nested(&scales) } else { Scales::Plain(scales.into()) };
    let quantized = Nf4::new(packed.into(), scales, CODEBOOK, [matrix.elements(), block], matrix.dtype())?;
    Tensor::from_nf4(quantized, matrix.shape())
}

/// What a tensor becomes when it is quantised and decoded again, in f32.
///
/// # Errors
/// As [`quantize`].
pub fn round_trip(matrix: &Tensor, double: bool) -> Result<Tensor> {
    quantize(matrix, double)?.to_dtype(DType::F32)
}

/// Codes and scales of all blocks. A scale that is not finite marks a block with such an element.
fn blocks(source: Source, len: usize, block: usize) -> (Vec<u8>, Vec<f32>) {
    let mut packed = vec![0_u8; len.div_ceil(2)];
    let mut scales = vec![0.0_f32; len.div_ceil(block)];
    let tasks = ((&mut packed[..], TASK_BLOCKS * block / 2), (&mut scales[..], TASK_BLOCKS));
    parallel::for_paired_chunks(tasks.0, tasks.1, |task, packed, scales| {
        vectorized(
            #[inline(always)]
            || {
                // Whole groups, the last filled up with zeros, whose codes are cut off below.
                let mut wide = vec![0.0_f32; block.next_multiple_of(GROUP)];
                let mut codes = vec![0_u8; block.next_multiple_of(GROUP)];
                for (i, (packed, scale)) in packed.chunks_mut(block / 2).zip(scales).enumerate() {
                    let first = (task * TASK_BLOCKS + i) * block;
                    let count = block.min(len - first);
                    source.decode(first, &mut wide[..count]);
                    wide[count..].fill(0.0);
                    *scale = absmax(&wide);
                    encode(&wide, *scale, &mut codes);
                    if count % 2 == 1 {
                        codes[count] = 0;
                    }
                    for (byte, pair) in packed.iter_mut().zip(codes.as_chunks::<2>().0) {
                        *byte = pair[0] << 4 | pair[1];
                    }
                }
            },
        );
    });
    (packed, scales)
}

/// Elements compared at a time: a register of the widest instruction set.
const GROUP: usize = 16;

/// The largest magnitude; a NaN if there is one, for its bits are above those of every number.
#[inline(always)]
fn absmax(x: &[f32]) -> f32 {
    let mut lanes = [0_u32; GROUP];
    for x in x.as_chunks::<GROUP>().0 {
        for (lane, x) in lanes.iter_mut().zip(x) {
            *lane = (*lane).max(x.to_bits() & 0x7fff_ffff);
        }
    }
    f32::from_bits(lanes.into_iter().fold(0, u32::max))
}

/// Index of the nearest code value for each element: a binary search among the midpoints, with selections in place of
/// indices, so that the compiler searches for many elements at a time.
#[inline(always)]
fn encode(x: &[f32], absmax: f32, codes: &mut [u8]) {
    const M: [f32; 15] = MIDPOINTS;
    // A block of zeros takes the code of 0.
    let inverse = if absmax > 0.0 { 1.0 / absmax } else { 0.0 };
    for (x, code) in x.iter().zip(codes) {
        let x = *x * inverse;
        let eight = x > M[7];
        let half = if eight {
            [M[8], M[9], M[10], M[11], M[12], M[13], M[14]]
        } else {
            [M[0], M[1], M[2], M[3], M[4], M[5], M[6]]
        };
        let four = x > half[3];
        let quarter = if four { [half[4], half[5], half[6]] } else { [half[0], half[1], half[2]] };
        let two = x > quarter[1];
        let one = x > if two { quarter[2] } else { quarter[0] };
        *code = u8::from(eight) << 3 | u8::from(four) << 2 | u8::from(two) << 1 | u8::from(one);
    }
}

/// Decision boundaries between neighbouring code values.
const MIDPOINTS: [f32; 15] = {
    let mut midpoints = [0.0; 15];
    let mut i = 0;
    while i < 15 {
        midpoints[i] = (CODEBOOK[i] + CODEBOOK[i + 1]) * 0.5;
        i += 1;
    }
    midpoints
};

/// Quantises scales to 8 bits.
fn nested(scales: &[f32]) -> Scales {
    let codebook = dynamic_codebook();
    let midpoints: Vec<f32> = codebook.windows(2).map(|pair| (pair[0] + pair[1]) * 0.5).collect();
    let offset = (scales.iter().map(|&x| f64::from(x)).sum::<f64>() / scales.len().max(1) as f64) as f32;
    let mut nested = vec![0.0_f32; scales.len().div_ceil(NESTED_BLOCK)];
    let mut codes = vec![0_u8; scales.len()];
    parallel::for_paired_chunks((&mut codes, NESTED_BLOCK), (&mut nested, 1), |block, codes, nested| {
        let scales = &scales[block * NESTED_BLOCK..][..codes.len()];
        let largest = scales.iter().fold(0.0_f32, |m, x| m.max((x - offset).abs()));
        let inverse = if largest > 0.0 { 1.0 / largest } else { 0.0 };
        nested[0] = largest;
        for (code, x) in codes.iter_mut().zip(scales) {
            let scaled = (x - offset) * inverse;
            *code = midpoints.partition_point(|&midpoint| scaled > midpoint) as u8;
        }
    });
    Scales::Double {
        codes: codes.into(),
        nested: nested.into(),
        codebook: Box::new(codebook),
        offset,
        block: NESTED_BLOCK,
    }
}

/// The 8-bit codebook with dynamic exponents: for each of seven decades, twice as many values of either sign as for the
/// decade below, in the middles of equal parts of 0.1 ..= 1; besides 0 and 1. Sorted.
pub fn dynamic_codebook() -> [f32; 256] {
    let mut codebook = Vec::with_capacity(256);
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
            codebook.extend([decade * middle, -(decade * middle)]);
        }
    }
    codebook.extend([0.0, 1.0]);
    codebook.sort_by(f32::total_cmp);
    codebook.try_into().expect("2 (1 + 2 + ... + 64) + 2 values")
}
