//! Decoding of 4-bit floats, by table look-ups in registers where the processor has them.

use crate::kernels::Real;
#[cfg(target_arch = "x86_64")]
use crate::kernels::gemm::bf16::DotProducts;
use crate::kernels::simd::best;
use hankel_core::wide::{WIDTH, Wide, WideOp, dispatch};
use hankel_core::{DType, Nf4};

/// Elements decoded by one look-up in registers.
const WIDE: usize = 32;

/// Elements from `first` on.
#[inline(always)]
pub(super) fn decode<T: Real>(matrix: &Nf4, first: usize, out: &mut [T]) {
    if !in_registers(matrix, first, out.len()) {
        return matrix.decode(first..first + out.len(), out);
    }
    if T::ELEMENT == DType::F32 {
        return dispatch(best(), Decode { matrix, first, out: bytemuck::cast_slice_mut(out) });
    }
    let mut wide = [0.0_f32; WIDE];
    let run = WIDE.min(matrix.block());
    for (i, out) in out.chunks_mut(run).enumerate() {
        let wide = &mut wide[..out.len()];
        dispatch(best(), Decode { matrix, first: first + i * run, out: wide });
        out.iter_mut().zip(&*wide).for_each(|(y, &x)| *y = T::of(f64::from(x)));
    }
}

/// Whether [`values`] gives `len` elements from `first` on: they are whole blocks, or lie in one.
#[inline(always)]
pub(super) fn in_registers(matrix: &Nf4, first: usize, len: usize) -> bool {
    let block = matrix.block();
    let whole = first.is_multiple_of(block) && len.is_multiple_of(block);
    let inside = len.is_multiple_of(WIDE) && first.is_multiple_of(WIDE) && first % block + len <= block;
    block.is_multiple_of(WIDE) && (whole || inside) && matrix.source() != DType::F16
}

/// Calls `give(i, [even, odd])` with every other of the elements `first + 32 i ..`, for all of `len`: those in the high and those
/// in the low nibbles. For runs that are [`in_registers`].
#[inline(always)]
pub(super) fn values<W: Wide>(
    wide: W,
    matrix: &Nf4,
    first: usize,
    len: usize,
    give: impl FnMut(usize, [W::Floats; 2]),
) {
    let of_block = matrix.block().min(len.max(WIDE)) / WIDE;
    let bytes = matrix.packed()[first / 2..][..len / 2].as_chunks::<{ WIDE / 2 }>().0;
    let first_block = first / matrix.block();
    // The usual size is known where the loop over a block is compiled: it takes less time then.
    match of_block {
        2 => blocks::<W, 2>(wide, matrix, first_block, 2, bytes, give),
        _ => blocks::<W, 0>(wide, matrix, first_block, of_block, bytes, give),
    }
}

/// As [`values`], in blocks of `of_block` times [`WIDE`] elements, which is `KNOWN` unless that is 0.
#[inline(always)]
fn blocks<W: Wide, const KNOWN: usize>(
    wide: W,
    matrix: &Nf4,
    first_block: usize,
    of_block: usize,
    bytes: &[[u8; WIDE / 2]],
    mut give: impl FnMut(usize, [W::Floats; 2]),
) {
    /// Scales read at a time.
    const SCALES: usize = 16;
    let codebook = wide.load(matrix.codebook());
    let rounded = matrix.source() == DType::BF16;
    let table = |scale: f32| {
        let exact = wide.mul(codebook, wide.splat(scale));
        if rounded { wide.round_bf16(exact) } else { exact }
    };
    let mut scales = [0.0; SCALES];
    for (k, bytes) in bytes.chunks(SCALES * of_block).enumerate() {
        let scales = &mut scales[..bytes.len().div_ceil(of_block)];
        matrix.scales().read(first_block + k * SCALES, scales);
        let scales = scales.iter().enumerate();
        if KNOWN == 0 {
            for ((j, &scale), bytes) in scales.zip(bytes.chunks(of_block)) {
                let first = (k * SCALES + j) * of_block;
                look_up(wide, table(scale), bytes, |i, values| give(first + i, values));
            }
        } else {
            for ((j, &scale), bytes) in scales.zip(bytes.as_chunks::<KNOWN>().0) {
                let first = (k * SCALES + j) * KNOWN;
                look_up(wide, table(scale), bytes, |i, values| give(first + i, values));
            }
        }
    }
}

/// Calls `give(i, [even, odd])` with the values of a block's table for each 32 nibbles.
#[inline(always)]
fn look_up<W: Wide>(wide: W, table: W::Floats, bytes: &[[u8; WIDE / 2]], mut give: impl FnMut(usize, [W::Floats; 2])) {
    for (i, bytes) in bytes.iter().enumerate() {
        let codes = wide.unsigned(bytes);
        give(i, [wide.look_up(table, wide.shr(codes, 4)), wide.look_up(table, codes)]);
    }
}

/// Elements to be decoded, in registers.
struct Decode<'a> {
    matrix: &'a Nf4,
    first: usize,
    out: &'a mut [f32],
}

impl WideOp for Decode<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, wide: W) {
        let Decode { matrix, first, out } = self;
        let len = out.len();
        let out = out.as_chunks_mut::<WIDTH>().0;
        values(
            wide,
            matrix,
            first,
            len,
            #[inline(always)]
            |i, [even, odd]| {
                let [a, b] = wide.zip(even, odd);
                wide.store(a, &mut out[2 * i]);
                wide.store(b, &mut out[2 * i + 1]);
            },
        );
    }
}

/// The elements from `first` on in `bf16`, each the rounding of what [`decode`] gives.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn decode_bf16(dot: DotProducts, matrix: &Nf4, first: usize, out: &mut [u16]) {
    /// Scales read at a time.
    const SCALES: usize = 16;
    if in_registers(matrix, first, out.len()) {
        // Values of a weight that was `bf16` are rounded once: the second time changes nothing.
        let block = matrix.block();
        let of_block = block.min(out.len().max(WIDE)) / WIDE;
        let bytes = matrix.packed()[first / 2..][..out.len() / 2].as_chunks::<{ WIDE / 2 }>().0;
        let out = out.as_chunks_mut::<WIDE>().0;
        let mut scales = [0.0; SCALES];
        for (i, (bytes, out)) in bytes.chunks(SCALES * of_block).zip(out.chunks_mut(SCALES * of_block)).enumerate() {
            let scales = &mut scales[..bytes.len() / of_block];
            matrix.scales().read(first / block + i * SCALES, scales);
            dot.look_up(matrix.codebook(), scales, bytes, out);
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

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_core::Random;
    use hankel_core::nf4::Scales;

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
