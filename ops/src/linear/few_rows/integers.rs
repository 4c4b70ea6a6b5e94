//! One row in `f32` against blocks of small integers, by the processor's dot products of bytes (`avx512_vnni`).
//!
//! A weight is `d (q - o)`, or `d q + m`, with an integer `q` of 4 or 8 bits. The row is written as integers, too: in each block of 32,
//! `x` becomes `s X` with a power of two `s` and `X` of 24 bits, rounded by at most 1.2e-7 of the largest in the block. `X` is cut in
//! three digits, signed bytes: `X = 65536 X2 + 256 X1 + X0`. One instruction multiplies 64 bytes and adds each four products to a sum
//! of 32 bits. These sums are exact, so a result is as accurate as one that is summed up in `f32`, and two to three times as many
//! weights are multiplied in the same time as when each is widened to a float.
//!
//! Rows with an element that is not finite, or whose blocks are so large or small that scales could overflow, are left to [`one_row`],
//! and so are those with an element beside which the others of its block would lose their digits.
//!
//! [`one_row`]: super::one_row

use crate::kernels::simd::{is_unlimited, vectorized};
use crate::linear::weight::Source;
use hankel_core::BlockMatrix;
use std::arch::x86_64::{
    _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_setr_epi32, _mm_setzero_si128, _mm256_add_ps, _mm256_blend_epi32,
    _mm256_cvtph_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_mul_ps, _mm256_set1_epi16, _mm256_setzero_ps,
    _mm256_setzero_si256, _mm256_storeu_ps, _mm512_add_epi32, _mm512_and_si512, _mm512_castps256_ps512,
    _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_inserti32x4, _mm512_inserti64x4,
    _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_permutexvar_ps, _mm512_reduce_add_ps, _mm512_set1_epi8,
    _mm512_setr_epi32, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_slli_epi32, _mm512_srli_epi16, _mm512_xor_si512,
    _mm512_zextsi128_si512, _mm512_zextsi256_si512,
};

/// Elements of a block.
const BLOCK: usize = 32;
/// Bytes that are asked for in advance.
const AHEAD: usize = 1024;

/// The formats that are read here.
#[derive(Clone, Copy)]
enum Format {
    /// `d (q - 8)`, four bits.
    Q4_0,
    /// `d q + m`, four bits.
    Q4_1,
    /// `d q`, signed bytes.
    Q8_0,
}

/// A row in digits, for the blocks of one matrix.
pub(super) struct Integers<'a> {
    matrix: &'a BlockMatrix,
    row: Row,
    cols: usize,
}

enum Row {
    Nibbles(Vec<Nibbles>, Format),
    Bytes(Vec<Bytes>),
}

/// Four blocks of a row, for codes of four bits: those in the low halves of bytes are the first 16 of a block.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Nibbles {
    /// Digits 0, 1 and 2 of the first half of each block.
    low: [[i8; 64]; 3],
    /// Those of the second half.
    high: [[i8; 64]; 3],
    /// What sums begin with: the digits that a lane adds up, times the offset of the codes.
    start: [[i32; 16]; 3],
    /// Scale and sum of each block.
    scales: [f32; 8],
}

/// Two blocks of a row, for codes of eight bits.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bytes {
    digits: [[i8; 64]; 3],
    start: [[i32; 16]; 3],
    /// The scale of each block, eight times.
    scales: [f32; 16],
}

impl<'a> Integers<'a> {
    /// `None` where the processor lacks the instructions, or format or row are not made for them.
    pub(super) fn new(source: Source<'a>, x: &[f32]) -> Option<Self> {
        let Source::Blocks(matrix) = source else { return None };
        let format = match matrix.format().name() {
            "q4_0" => Format::Q4_0,
            "q4_1" => Format::Q4_1,
            "q8_0" => Format::Q8_0,
            _ => return None,
        };
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("f16c");
        if !has || !is_unlimited() || x.is_empty() || !x.len().is_multiple_of(BLOCK) {
            return None;
        }
        let row = vectorized(
            #[inline(always)]
            || match format {
                Format::Q4_0 => Some(Row::Nibbles(in_nibbles(x, 8)?, format)),
                Format::Q4_1 => Some(Row::Nibbles(in_nibbles(x, 0)?, format)),
                Format::Q8_0 => Some(Row::Bytes(in_bytes(x)?)),
            },
        )?;
        Some(Integers { matrix, row, cols: x.len() })
    }

    /// The inner products of the row with rows `first ..` of the weight.
    pub(super) fn products(&self, first: usize, sums: &mut [f32]) {
        let bytes = self.matrix.bytes();
        let row = self.cols / BLOCK * self.matrix.format().block_bytes();
        let bytes = &bytes[first * row..][..sums.len() * row];
        for (bytes, sum) in bytes.chunks_exact(row).zip(sums) {
            // SAFETY: `new` found the instructions.
            *sum = unsafe {
                match &self.row {
                    Row::Nibbles(x, Format::Q4_1) => nibbles::<20, 4, true>(x, bytes),
                    Row::Nibbles(x, _) => nibbles::<18, 2, false>(x, bytes),
                    Row::Bytes(x) => signed_bytes(x, bytes),
                }
            };
        }
    }
}

/// The digits of a block's elements, the lowest first, and their scale; `None` where they cannot be had so.
#[inline(always)]
fn digits(x: &[f32; BLOCK]) -> Option<([[i8; BLOCK]; 3], f32)> {
    /// The largest number of three balanced digits.
    const MOST: f32 = (127 * 65536 + 127 * 256 + 127) as f32;
    /// Far from what `f32` can hold, so that no scale overflows.
    const RANGE: std::ops::Range<f32> = f32::from_bits((127 - 90) << 23)..f32::from_bits((127 + 90) << 23);
    /// By how much the largest may pass the sum of the small ones. Rounding is then at most 1.2e-4 of that sum, and usually a tenth of it.
    const OUTLIER: f32 = 64.0;
    /// Elements below this part of the largest are small. `OUTLIER` counts only where at most `FEW` elements are not small,
    /// as weights of zero may meet all of those.
    const SMALL: f32 = 0.125;
    const FEW: u32 = 4;
    // Above all others where an element is no number.
    let largest = f32::from_bits(x.iter().fold(0, |m, x| m.max(x.to_bits() & 0x7fff_ffff)));
    if largest == 0.0 {
        return Some(([[0; BLOCK]; 3], 0.0));
    }
    if !RANGE.contains(&largest) {
        return None;
    }
    // Beside outliers that meet weights of zero, the small ones are all that counts.
    let limit = SMALL * largest;
    let small: f32 = x.iter().map(|x| if x.abs() < limit { x.abs() } else { 0.0 }).sum();
    let large: u32 = x.iter().map(|x| u32::from(x.abs() >= limit)).sum();
    if small > 0.0 && small < largest / OUTLIER && large <= FEW {
        return None;
    }
    let power = |e: i32| f32::from_bits(((127 + e) as u32) << 23);
    let exponent = (largest.to_bits() >> 23) as i32 - 127;
    let shift = if largest * power(22 - exponent) > MOST { 21 - exponent } else { 22 - exponent };
    let factor = power(shift);
    let mut digits = [[0_i8; BLOCK]; 3];
    for (i, x) in x.iter().enumerate() {
        // SAFETY: at most 2^23 in magnitude.
        let x = unsafe { (x * factor).round_ties_even().to_int_unchecked::<i32>() };
        // What is left below a digit is added to the next: they are balanced.
        digits[0][i] = x as i8;
        digits[1][i] = ((x + 128) >> 8) as i8;
        digits[2][i] = ((x + 128 + (128 << 8)) >> 16) as i8;
    }
    Some((digits, power(-shift)))
}

#[inline(always)]
fn in_nibbles(x: &[f32], offset: i32) -> Option<Vec<Nibbles>> {
    let mut row = Vec::with_capacity(x.len().div_ceil(4 * BLOCK));
    for x in x.chunks(4 * BLOCK) {
        let mut part = Nibbles { low: [[0; 64]; 3], high: [[0; 64]; 3], start: [[0; 16]; 3], scales: [0.0; 8] };
        for (block, x) in x.as_chunks::<BLOCK>().0.iter().enumerate() {
            let (digits, scale) = digits(x)?;
            let mut sums = [0; 3];
            for (k, digits) in digits.iter().enumerate() {
                let (low, high) = digits.split_at(BLOCK / 2);
                part.low[k][16 * block..][..16].copy_from_slice(low);
                part.high[k][16 * block..][..16].copy_from_slice(high);
                let lanes = part.start[k][4 * block..][..4].iter_mut();
                for ((lane, low), high) in lanes.zip(low.as_chunks::<4>().0).zip(high.as_chunks::<4>().0) {
                    let sum: i32 = low.iter().chain(high).map(|&x| i32::from(x)).sum();
                    *lane = -offset * sum;
                    sums[k] += sum;
                }
            }
            part.scales[2 * block] = scale;
            // Below 2^29.
            part.scales[2 * block + 1] = scale * (sums[0] + (sums[1] << 8) + (sums[2] << 16)) as f32;
        }
        row.push(part);
    }
    Some(row)
}

#[inline(always)]
fn in_bytes(x: &[f32]) -> Option<Vec<Bytes>> {
    let mut row = Vec::with_capacity(x.len().div_ceil(2 * BLOCK));
    for x in x.chunks(2 * BLOCK) {
        let mut part = Bytes { digits: [[0; 64]; 3], start: [[0; 16]; 3], scales: [0.0; 16] };
        for (block, x) in x.as_chunks::<BLOCK>().0.iter().enumerate() {
            let (digits, scale) = digits(x)?;
            part.scales[8 * block..][..8].fill(scale);
            for (k, digits) in digits.iter().enumerate() {
                part.digits[k][BLOCK * block..][..BLOCK].copy_from_slice(digits);
                let lanes = part.start[k][8 * block..][..8].iter_mut();
                for (lane, digits) in lanes.zip(digits.as_chunks::<4>().0) {
                    // Codes are made unsigned by adding 128.
                    *lane = -128 * digits.iter().map(|&x| i32::from(x)).sum::<i32>();
                }
            }
        }
        row.push(part);
    }
    Some(row)
}

/// The sum of a row of blocks of `BYTES` bytes, scale (and minimum, where there is one) and, from byte `AT` on, 32 codes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c")]
fn nibbles<const BYTES: usize, const AT: usize, const MINIMUM: bool>(x: &[Nibbles], bytes: &[u8]) -> f32 {
    // Scales of four blocks, each for the four lanes that its codes are added up in.
    let spread = _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6);
    let four_bits = _mm512_set1_epi8(15);
    let (mut sums, mut of_minima) = (_mm512_setzero_ps(), _mm256_setzero_ps());
    for (x, bytes) in x.iter().zip(bytes.chunks(4 * BYTES)) {
        ask_for(bytes);
        let codes = |block: usize| match bytes.get(block * BYTES..(block + 1) * BYTES) {
            // SAFETY: a block has 16 bytes from `AT` on.
            Some(block) => unsafe { _mm_loadu_si128(block[AT..].as_ptr().cast()) },
            None => _mm_setzero_si128(),
        };
        let scale = |block: usize| match bytes.get(block * BYTES..(block + 1) * BYTES) {
            Some(&[a, b, c, d, ..]) if MINIMUM => i32::from_le_bytes([a, b, c, d]),
            Some(&[a, b, ..]) => i32::from_le_bytes([a, b, 0, 0]),
            _ => 0,
        };
        let both = _mm512_zextsi128_si512(codes(0));
        let both = _mm512_inserti32x4::<1>(both, codes(1));
        let both = _mm512_inserti32x4::<2>(both, codes(2));
        let both = _mm512_inserti32x4::<3>(both, codes(3));
        let scales = _mm_setr_epi32(scale(0), scale(1), scale(2), scale(3));
        let low = _mm512_and_si512(both, four_bits);
        let high = _mm512_and_si512(_mm512_srli_epi16::<4>(both), four_bits);
        // SAFETY: arrays as long as the registers.
        let load = |digits: &[i8; 64]| unsafe { _mm512_loadu_si512(digits.as_ptr().cast()) };
        // SAFETY: as above.
        let start = |sums: &[i32; 16]| unsafe { _mm512_loadu_si512(sums.as_ptr().cast()) };
        // 8 codes below 16 by digits of 128 at most, or the same less their offset: 14 bits, 30 when shifted.
        let add =
            |sum, k: usize| _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, low, load(&x.low[k])), high, load(&x.high[k]));
        let begin = |sum, k: usize| if MINIMUM { sum } else { _mm512_add_epi32(sum, start(&x.start[k])) };
        let sum = add(begin(_mm512_setzero_si512(), 2), 2);
        let sum = add(begin(_mm512_slli_epi32::<8>(sum), 1), 1);
        let sum = add(begin(_mm512_slli_epi32::<8>(sum), 0), 0);
        // SAFETY: as above.
        let of_row = unsafe { _mm256_loadu_ps(x.scales.as_ptr()) };
        let scales = _mm256_mul_ps(_mm256_cvtph_ps(scales), of_row);
        of_minima = _mm256_add_ps(of_minima, scales);
        let scales = _mm512_permutexvar_ps(spread, _mm512_castps256_ps512(scales));
        sums = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scales, sums);
    }
    let mut minima = [0.0; 8];
    // SAFETY: as above.
    unsafe { _mm256_storeu_ps(minima.as_mut_ptr(), of_minima) };
    let of_minima = if MINIMUM { (minima[1] + minima[3]) + (minima[5] + minima[7]) } else { 0.0 };
    _mm512_reduce_add_ps(sums) + of_minima
}

/// The sum of a row of blocks of 34 bytes, a scale and 32 signed codes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c")]
fn signed_bytes(x: &[Bytes], bytes: &[u8]) -> f32 {
    const BYTES: usize = 34;
    let sign = _mm512_set1_epi8(-128);
    let (mut high_sums, mut low_sums) = (_mm512_setzero_ps(), _mm512_setzero_ps());
    for (x, bytes) in x.iter().zip(bytes.chunks(2 * BYTES)) {
        ask_for(bytes);
        let block = |i: usize| match bytes.get(i * BYTES..(i + 1) * BYTES) {
            // SAFETY: a block has 32 bytes after its scale.
            Some(block) => unsafe {
                let scale = i16::from_le_bytes([block[0], block[1]]);
                (_mm256_loadu_si256(block[2..].as_ptr().cast()), _mm256_set1_epi16(scale))
            },
            None => (_mm256_setzero_si256(), _mm256_setzero_si256()),
        };
        let ((first, first_scale), (second, second_scale)) = (block(0), block(1));
        let codes = _mm512_xor_si512(_mm512_inserti64x4::<1>(_mm512_zextsi256_si512(first), second), sign);
        // SAFETY: arrays as long as the registers.
        let load = |digits: &[i8; 64]| unsafe { _mm512_loadu_si512(digits.as_ptr().cast()) };
        // SAFETY: as above.
        let start = |sums: &[i32; 16]| unsafe { _mm512_loadu_si512(sums.as_ptr().cast()) };
        let sum = |k: usize| _mm512_dpbusd_epi32(start(&x.start[k]), codes, load(&x.digits[k]));
        // Four codes by digits of 128 at most: 17 bits. All three digits together would not fit in 32.
        let high = _mm512_add_epi32(_mm512_slli_epi32::<8>(sum(2)), sum(1));
        // SAFETY: as above.
        let of_row = unsafe { _mm512_loadu_ps(x.scales.as_ptr()) };
        let scales = _mm512_cvtph_ps(_mm256_blend_epi32::<0xf0>(first_scale, second_scale));
        let scales = _mm512_mul_ps(scales, of_row);
        high_sums = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), scales, high_sums);
        low_sums = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum(0)), scales, low_sums);
    }
    _mm512_reduce_add_ps(high_sums) * 256.0 + _mm512_reduce_add_ps(low_sums)
}

/// Asks for what comes some blocks later, whatever lies there.
#[inline(always)]
fn ask_for(bytes: &[u8]) {
    for line in [0, 64] {
        // SAFETY: a prefetch reads nothing and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(AHEAD + line).cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::block_tests::random_blocks;
    use crate::linear::weight::Weight;
    use hankel_core::block_formats::BlockFormat;
    use hankel_core::{Buffer, Precision, Random, Tensor};
    use proptest::prelude::*;

    /// Half a unit of the smallest of the largest integers: half of what three digits hold.
    const MOST_ERROR: f64 = 0.5 / (8_355_711.0 / 2.0);

    proptest! {
        #[test]
        fn digits_are_the_number(mantissa in -1.0_f32..1.0, exponent in -60_i32..60, others in prop::array::uniform31(-1.0_f32..1.0)) {
            let scale = f32::from_bits(((127 + exponent) as u32) << 23);
            let mut x = [mantissa; BLOCK];
            x[1..].copy_from_slice(&others);
            let x = x.map(|x| x * scale);
            let largest = x.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
            prop_assume!(largest > 0.0);
            let (digits, scale) = digits(&x).unwrap();
            for (i, &x) in x.iter().enumerate() {
                let [low, middle, high] = [0, 1, 2].map(|k| i32::from(digits[k][i]));
                let found = f64::from(65536 * high + 256 * middle + low) * f64::from(scale);
                prop_assert!((found - f64::from(x)).abs() <= f64::from(largest) * MOST_ERROR, "{found} for {x}");
            }
        }
    }

    #[test]
    fn the_largest_numbers_fit_in_three_digits() {
        for x in [f32::from_bits(0x3fff_ffff), 1.0, 8_355_711.0, 8_355_712.0, 8_388_607.0] {
            let (digits, scale) = digits(&[x; BLOCK]).unwrap();
            let found = 65536 * i32::from(digits[2][0]) + 256 * i32::from(digits[1][0]) + i32::from(digits[0][0]);
            assert!((f64::from(found) * f64::from(scale) / f64::from(x) - 1.0).abs() <= MOST_ERROR, "{x}");
        }
    }

    /// Sums of what the weights stand for, in doubles. Rows of every number of blocks are cut in whole parts and a rest.
    #[test]
    fn sums_are_as_exact_as_those_of_floats() {
        for name in ["q4_0", "q4_1", "q8_0"] {
            let format = <dyn BlockFormat>::from_name(name).unwrap();
            for blocks in 1..10 {
                let (rows, cols) = (7, blocks * BLOCK);
                let weight = random_blocks(format, rows, cols);
                let decoded = weight.to_f64_vec();
                let random = Random::new(5, name, blocks as u64);
                let mut x: Vec<f32> = (0..cols as u64).map(|i| random.normal(i) as f32).collect();
                // A block of another size, and one of zeros.
                x[..BLOCK].iter_mut().for_each(|x| *x *= 1e-6);
                if blocks > 2 {
                    x[2 * BLOCK..3 * BLOCK].fill(0.0);
                }
                let view = Weight::<f32>::new(&weight, Precision::F32).unwrap();
                let Some(row) = Integers::new(view.source().unwrap(), &x) else {
                    assert!(!is_x86_feature_detected!("avx512vnni"), "{name}");
                    return;
                };
                let mut sums = vec![f32::NAN; rows - 2];
                row.products(2, &mut sums);
                for (w, found) in decoded.chunks(cols).skip(2).zip(sums) {
                    let terms = || w.iter().zip(&x).map(|(w, &x)| w * f64::from(x));
                    let (expected, size): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
                    assert!((f64::from(found) - expected).abs() <= 5e-7 * size, "{name}: {found} for {expected}");
                }
            }
        }
    }

    /// An outlier that meets weights of zero must not cost the others their digits.
    #[test]
    fn outliers_are_left_to_others() {
        let format = <dyn BlockFormat>::from_name("q8_0").unwrap();
        for outliers in 1..=4 {
            // Codes of 100, and 0 at the first elements of each block.
            let codes = (0..BLOCK).map(|i| if i < outliers { 0 } else { 100 });
            let block: Vec<u8> = [0x00, 0x3c].into_iter().chain(codes).collect();
            let matrix = BlockMatrix::new(format, Buffer::from(block.repeat(2)), 2 * BLOCK).unwrap();
            let weight = Tensor::from_blocks(matrix, [1, 2 * BLOCK]).unwrap();
            for outlier in [1.0, 1e2, 1e4, 1e7] {
                let mut x = vec![0.01_f32; 2 * BLOCK];
                (0..outliers).for_each(|i| x[BLOCK + i] = outlier * (1.0 - 0.2 * i as f32));
                let expected = 100.0 * 0.01 * (2 * (BLOCK - outliers)) as f64;
                let x = Tensor::from_vec(x, [1, 2 * BLOCK]).unwrap();
                let found = crate::linear(&x, &weight, None).unwrap().to_f64_vec()[0];
                assert!((found / expected - 1.0).abs() < 1e-4, "{found} beside {outliers} of {outlier}");
            }
        }
    }

    #[test]
    fn rows_beyond_the_range_are_left_to_others() {
        let weight = random_blocks(<dyn BlockFormat>::from_name("q8_0").unwrap(), 2, 64);
        let view = Weight::<f32>::new(&weight, Precision::F32).unwrap();
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, 1e-30, 1e-40] {
            let mut row = vec![0.0; 64];
            row[40] = x;
            assert!(Integers::new(view.source().unwrap(), &row).is_none(), "{x}");
        }
    }
}
