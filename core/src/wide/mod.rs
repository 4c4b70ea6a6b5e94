//! Sixteen floats at a time, in registers: what quantised weights are decoded with.
//!
//! [`Wide`] is implemented for AVX-512 (one register), AVX2 (two) and plain arrays, so that a format is written once.
//! Every operation is exact or rounded once, so all three give the same bits; only [`Wide::mul_add`] is fused where
//! the processor can.

mod plain;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use half::f16;
use half::slice::HalfFloatSliceExt;
use pulp::{Arch, Simd, WithSimd};

/// Elements of [`Wide::Floats`] and [`Wide::Words`].
pub const WIDTH: usize = 16;

/// An instruction set's vectors of 16 elements.
pub trait Wide: Copy {
    /// 16 floats.
    type Floats: Copy;
    /// 16 words of 32 bits.
    type Words: Copy;

    /// The floats of an array.
    fn load(self, x: &[f32; WIDTH]) -> Self::Floats;
    /// Writes floats to an array.
    fn store(self, x: Self::Floats, out: &mut [f32; WIDTH]);
    /// Every element `x`.
    fn splat(self, x: f32) -> Self::Floats;
    /// Every element `x`.
    fn splat_word(self, x: u32) -> Self::Words;
    /// `a + b`.
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a - b`.
    fn sub(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b`.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, fused where the processor can.
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// Bytes as numbers from 0 to 255.
    fn unsigned(self, bytes: &[u8; WIDTH]) -> Self::Words;
    /// Bytes as numbers from -128 to 127.
    fn signed(self, bytes: &[u8; WIDTH]) -> Self::Words;
    /// Words of 16 bits.
    fn shorts(self, x: &[u16; WIDTH]) -> Self::Words;
    /// `a & b`.
    fn and(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// `a | b`.
    fn or(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// `a + b`, wrapping.
    fn add_words(self, a: Self::Words, b: Self::Words) -> Self::Words;
    /// `x << by`, for `by < 32`.
    fn shl(self, x: Self::Words, by: u32) -> Self::Words;
    /// `x >> by` filled up with zeros, for `by < 32`.
    fn shr(self, x: Self::Words, by: u32) -> Self::Words;
    /// `value` where the element's bit is set, 0 elsewhere.
    fn where_set(self, bits: u16, value: u32) -> Self::Words;
    /// Signed words as floats.
    fn float(self, x: Self::Words) -> Self::Floats;
    /// The bits of floats.
    fn bits(self, x: Self::Floats) -> Self::Words;
    /// The floats with these bits.
    fn of_bits(self, x: Self::Words) -> Self::Floats;
    /// The entries of a table that the lowest four bits of each code name.
    fn look_up(self, table: Self::Floats, codes: Self::Words) -> Self::Floats;

    /// Elements of `a` and `b` in turn.
    fn zip(self, a: Self::Floats, b: Self::Floats) -> [Self::Floats; 2];

    /// Half-precision floats.
    #[inline(always)]
    fn halves(self, x: &[f16; WIDTH]) -> Self::Floats {
        let mut wide = [0.0; WIDTH];
        x.convert_to_f32_slice(&mut wide);
        self.load(&wide)
    }

    /// Every element the half-precision float with these bits, which is not a NaN.
    #[inline(always)]
    fn splat_half(self, bits: u16) -> Self::Floats {
        self.splat(widen(bits))
    }

    /// Rounded to the nearest `bf16`, ties to even; the floats are no NaN.
    #[inline(always)]
    fn round_bf16(self, x: Self::Floats) -> Self::Floats {
        let bits = self.bits(x);
        let odd = self.and(self.shr(bits, 16), self.splat_word(1));
        let sum = self.add_words(self.add_words(bits, self.splat_word(0x7fff)), odd);
        self.of_bits(self.and(sum, self.splat_word(0xffff_0000)))
    }

    /// The sum of the elements: of halves, of their halves, and so on.
    #[inline(always)]
    fn sum(self, x: Self::Floats) -> f32 {
        let mut lanes = [0.0; WIDTH];
        self.store(x, &mut lanes);
        let mut width = WIDTH / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
            width /= 2;
        }
        lanes[0]
    }
}

/// A half-precision float, widened. Exact; without calls, so that it is inlined in vector code.
#[inline(always)]
fn widen(bits: u16) -> f32 {
    let bits = u32::from(bits);
    // The exponent is shifted by a product, which also makes subnormal numbers normal.
    let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((127 + 112) << 23);
    let magnitude =
        if bits & 0x7c00 == 0x7c00 { f32::from_bits(0x7f80_0000 | (bits & 0x3ff) << 13) } else { magnitude };
    f32::from_bits(magnitude.to_bits() | (bits & 0x8000) << 16)
}

/// Something to be compiled for each instruction set. `run` and what it calls must be `#[inline(always)]`.
pub trait WideOp {
    /// The result.
    type Output;
    /// Runs it.
    fn run<W: Wide>(self, wide: W) -> Self::Output;
}

/// A closure as pulp wants it: run inside of a function compiled for the instruction set.
struct Inside<F>(F);

impl<R, F: FnOnce() -> R> WithSimd for Inside<F> {
    type Output = R;
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> R {
        (self.0)()
    }
}

/// Runs `op` with the instructions of `arch`.
#[inline]
pub fn dispatch<Op: WideOp>(arch: Arch, op: Op) -> Op::Output {
    match arch {
        #[cfg(target_arch = "x86_64")]
        Arch::V4(simd) => Simd::vectorize(
            simd,
            Inside(
                #[inline(always)]
                || op.run(simd),
            ),
        ),
        #[cfg(target_arch = "x86_64")]
        Arch::V3(simd) => Simd::vectorize(
            simd,
            Inside(
                #[inline(always)]
                || op.run(simd),
            ),
        ),
        _ => op.run(pulp::Scalar),
    }
}
