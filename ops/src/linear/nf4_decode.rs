//! Decoding of 4-bit floats, by table look-ups in registers where the processor has them.

use crate::kernels::Real;
#[cfg(target_arch = "x86_64")]
use crate::kernels::gemm::bf16::DotProducts;
use hankel_core::Nf4;

/// Elements decoded by one look-up in registers.
const WIDE: usize = 32;

/// Elements from `first` on.
#[inline(always)]
pub(super) fn decode<T: Real>(matrix: &Nf4, first: usize, out: &mut [T]) {
    let block = matrix.block();
    if !(block.is_multiple_of(WIDE) && first.is_multiple_of(WIDE) && out.len().is_multiple_of(WIDE)) {
        return matrix.decode(first..first + out.len(), out);
    }
    let bytes = matrix.packed()[first / 2..][..out.len() / 2].as_chunks::<{ WIDE / 2 }>().0;
    let mut wide = [0.0_f32; WIDE];
    for (i, (bytes, out)) in bytes.iter().zip(out.as_chunks_mut::<WIDE>().0).enumerate() {
        let values = matrix.values::<f32>((first + i * WIDE) / block);
        look_up(&values, bytes, &mut wide);
        for (y, &x) in out.iter_mut().zip(&wide) {
            *y = T::of(f64::from(x));
        }
    }
}

/// The elements from `first` on in `bf16`, each the rounding of what [`decode`] gives.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn decode_bf16(dot: DotProducts, matrix: &Nf4, first: usize, out: &mut [u16]) {
    let block = matrix.block();
    if block.is_multiple_of(WIDE) && first.is_multiple_of(WIDE) && out.len().is_multiple_of(WIDE) {
        let bytes = matrix.packed()[first / 2..][..out.len() / 2].as_chunks::<{ WIDE / 2 }>().0;
        for (i, (bytes, out)) in bytes.iter().zip(out.as_chunks_mut::<WIDE>().0).enumerate() {
            dot.look_up(&matrix.values((first + i * WIDE) / block), bytes, out);
        }
        return;
    }
    let mut wide = [0.0_f32; 64];
    for (i, out) in out.chunks_mut(wide.len()).enumerate() {
        let wide = &mut wide[..out.len()];
        let first = first + i * 64;
        matrix.decode(first..first + out.len(), wide);
        dot.round(wide, out);
    }
}

/// The high and the low nibble of every byte, as the values they stand for.
#[inline(always)]
fn look_up(values: &[f32; 16], bytes: &[u8; WIDE / 2], out: &mut [f32; WIDE]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V4::try_new() {
        return avx512::look_up(simd, values, bytes, out);
    }
    for (pair, &byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [values[usize::from(byte >> 4)], values[usize::from(byte & 15)]];
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::WIDE;
    use pulp::x86::V4;

    /// The first or the second halves of two registers, one element of each in turn.
    const ZIP: [[u32; 16]; 2] = {
        let mut zip = [[0; 16]; 2];
        let mut i = 0;
        while i < 16 {
            let (half, place) = (i as u32 % 2 * 16, i as u32 / 2);
            zip[0][i] = half + place;
            zip[1][i] = half + place + 8;
            i += 1;
        }
        zip
    };

    /// All 16 values lie in one register, from which a permutation takes 16 elements at a time.
    #[inline(always)]
    pub(super) fn look_up(simd: V4, values: &[f32; 16], bytes: &[u8; WIDE / 2], out: &mut [f32; WIDE]) {
        let avx = simd.avx512f;
        let table = pulp::cast(*values);
        let zip = ZIP.map(pulp::cast);
        for (bytes, out) in bytes.as_chunks::<16>().0.iter().zip(out.as_chunks_mut::<32>().0) {
            let words = avx._mm512_cvtepu8_epi32(pulp::cast(*bytes));
            let high = avx._mm512_permutexvar_ps(avx._mm512_srli_epi32::<4>(words), table);
            // A permutation reads the lowest four bits of an index.
            let low = avx._mm512_permutexvar_ps(words, table);
            let halves = zip.map(|zip| pulp::cast(avx._mm512_permutex2var_ps(high, zip, low)));
            let [first, second]: [[f32; 16]; 2] = halves;
            out[..16].copy_from_slice(&first);
            out[16..].copy_from_slice(&second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_core::nf4::Scales;
    use hankel_core::{DType, Random};

    #[test]
    fn equals_the_elements_one_by_one() {
        for block in [64, 128, 32, 10] {
            let random = Random::new(3, "codes", 0);
            let packed: Vec<u8> = (0..512).map(|i| random.below(i, 256) as u8).collect();
            let scales: Vec<f32> = (0..1024_usize.div_ceil(block)).map(|i| 0.3 + i as f32).collect();
            let codebook = std::array::from_fn(|i| i as f32 / 15.0 - 0.4);
            let scales = Scales::Plain(scales.into());
            let matrix = Nf4::new(packed.into(), scales, codebook, [1024, block], DType::BF16).unwrap();
            for (first, len) in [(0, 1024), (64, 128), (10, 54), (192, 64), (0, 65)] {
                let (mut found, mut expected) = (vec![0.0_f64; len], vec![0.0_f64; len]);
                decode(&matrix, first, &mut found);
                matrix.decode(first..first + len, &mut expected);
                assert_eq!(found, expected, "{first}, {len} in blocks of {block}");
                #[cfg(target_arch = "x86_64")]
                if let Some(dot) = DotProducts::detect() {
                    let mut found = vec![0; len];
                    dot.vectorized(|| decode_bf16(dot, &matrix, first, &mut found));
                    let expected: Vec<u16> = expected.iter().map(|&x| half::bf16::from_f64(x).to_bits()).collect();
                    assert_eq!(found, expected, "{first}, {len} in blocks of {block}");
                }
            }
        }
    }
}
