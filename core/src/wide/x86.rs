//! One register of AVX-512, or two of AVX2.

use super::{WIDTH, Wide};
use half::f16;
use pulp::x86::{V3, V4};
use std::arch::x86_64::{__m128i, __m256, __m256i, __m512, __m512i};

/// The first or the second halves of two registers, one element of each in turn.
const ZIP: [[u32; WIDTH]; 2] = {
    let mut zip = [[0; WIDTH]; 2];
    let mut i = 0;
    while i < WIDTH {
        let (register, place) = (i as u32 % 2 * 16, i as u32 / 2);
        zip[0][i] = register + place;
        zip[1][i] = register + place + 8;
        i += 1;
    }
    zip
};

impl Wide for V4 {
    type Floats = __m512;
    type Words = __m512i;

    #[inline(always)]
    fn load(self, x: &[f32; WIDTH]) -> __m512 {
        // SAFETY: the array is as long as the register. A cast would go through the stack in builds with checks.
        unsafe { self.avx512f._mm512_loadu_ps(x.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, x: __m512, out: &mut [f32; WIDTH]) {
        // SAFETY: the array is as long as the register.
        unsafe { self.avx512f._mm512_storeu_ps(out.as_mut_ptr(), x) }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        self.avx512f._mm512_set1_ps(x)
    }
    #[inline(always)]
    fn splat_word(self, x: u32) -> __m512i {
        self.avx512f._mm512_set1_epi32(x as i32)
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        self.avx512f._mm512_add_ps(a, b)
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        self.avx512f._mm512_sub_ps(a, b)
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        self.avx512f._mm512_mul_ps(a, b)
    }
    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        self.avx512f._mm512_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    fn unsigned(self, bytes: &[u8; WIDTH]) -> __m512i {
        self.avx512f._mm512_cvtepu8_epi32(pulp::cast(*bytes))
    }
    #[inline(always)]
    fn signed(self, bytes: &[u8; WIDTH]) -> __m512i {
        self.avx512f._mm512_cvtepi8_epi32(pulp::cast(*bytes))
    }
    #[inline(always)]
    fn shorts(self, x: &[u16; WIDTH]) -> __m512i {
        self.avx512f._mm512_cvtepu16_epi32(pulp::cast(*x))
    }
    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        self.avx512f._mm512_and_si512(a, b)
    }
    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        self.avx512f._mm512_or_si512(a, b)
    }
    #[inline(always)]
    fn add_words(self, a: __m512i, b: __m512i) -> __m512i {
        self.avx512f._mm512_add_epi32(a, b)
    }
    #[inline(always)]
    fn shl(self, x: __m512i, by: u32) -> __m512i {
        self.avx512f._mm512_sll_epi32(x, self.sse2._mm_cvtsi32_si128(by as i32))
    }
    #[inline(always)]
    fn shr(self, x: __m512i, by: u32) -> __m512i {
        self.avx512f._mm512_srl_epi32(x, self.sse2._mm_cvtsi32_si128(by as i32))
    }
    #[inline(always)]
    fn where_set(self, bits: u16, value: u32) -> __m512i {
        self.avx512f._mm512_maskz_set1_epi32(bits, value as i32)
    }
    #[inline(always)]
    fn float(self, x: __m512i) -> __m512 {
        self.avx512f._mm512_cvtepi32_ps(x)
    }
    #[inline(always)]
    fn bits(self, x: __m512) -> __m512i {
        self.avx512f._mm512_castps_si512(x)
    }
    #[inline(always)]
    fn of_bits(self, x: __m512i) -> __m512 {
        self.avx512f._mm512_castsi512_ps(x)
    }
    #[inline(always)]
    fn look_up(self, table: __m512, codes: __m512i) -> __m512 {
        self.avx512f._mm512_permutexvar_ps(codes, table)
    }
    #[inline(always)]
    fn zip(self, a: __m512, b: __m512) -> [__m512; 2] {
        let [first, second] = ZIP;
        [
            self.avx512f._mm512_permutex2var_ps(a, pulp::cast(first), b),
            self.avx512f._mm512_permutex2var_ps(a, pulp::cast(second), b),
        ]
    }
    #[inline(always)]
    fn halves(self, x: &[f16; WIDTH]) -> __m512 {
        self.avx512f._mm512_cvtph_ps(pulp::cast(x.map(f16::to_bits)))
    }
    #[inline(always)]
    fn splat_half(self, bits: u16) -> __m512 {
        self.avx512f._mm512_cvtph_ps(self.avx._mm256_set1_epi16(bits as i16))
    }
}

/// Both halves by the same expression. No closure: these are not always inlined, and code that is not has no vectors.
macro_rules! each {
    (|$($x:ident),*| $result:expr) => {{
        let first = {
            $(let $x = $x[0];)*
            $result
        };
        let second = {
            $(let $x = $x[1];)*
            $result
        };
        [first, second]
    }};
}

impl Wide for V3 {
    type Floats = [__m256; 2];
    type Words = [__m256i; 2];

    #[inline(always)]
    fn load(self, x: &[f32; WIDTH]) -> [__m256; 2] {
        let [first, second]: &[[f32; 8]; 2] = bytemuck::cast_ref(x);
        // SAFETY: each half is as long as a register.
        unsafe { [self.avx._mm256_loadu_ps(first.as_ptr()), self.avx._mm256_loadu_ps(second.as_ptr())] }
    }
    #[inline(always)]
    fn store(self, x: [__m256; 2], out: &mut [f32; WIDTH]) {
        let halves: &mut [[f32; 8]; 2] = bytemuck::cast_mut(out);
        for (half, x) in halves.iter_mut().zip(x) {
            // SAFETY: each half is as long as a register.
            unsafe { self.avx._mm256_storeu_ps(half.as_mut_ptr(), x) }
        }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> [__m256; 2] {
        [self.avx._mm256_set1_ps(x); 2]
    }
    #[inline(always)]
    fn splat_word(self, x: u32) -> [__m256i; 2] {
        [self.avx._mm256_set1_epi32(x as i32); 2]
    }
    #[inline(always)]
    fn add(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        each!(|a, b| self.avx._mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        each!(|a, b| self.avx._mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        each!(|a, b| self.avx._mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn mul_add(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        each!(|a, b, c| self.fma._mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn unsigned(self, bytes: &[u8; WIDTH]) -> [__m256i; 2] {
        let bytes: __m128i = pulp::cast(*bytes);
        let halves = [bytes, self.sse2._mm_srli_si128::<8>(bytes)];
        each!(|halves| self.avx2._mm256_cvtepu8_epi32(halves))
    }
    #[inline(always)]
    fn signed(self, bytes: &[u8; WIDTH]) -> [__m256i; 2] {
        let bytes: __m128i = pulp::cast(*bytes);
        let halves = [bytes, self.sse2._mm_srli_si128::<8>(bytes)];
        each!(|halves| self.avx2._mm256_cvtepi8_epi32(halves))
    }
    #[inline(always)]
    fn shorts(self, x: &[u16; WIDTH]) -> [__m256i; 2] {
        let halves: [__m128i; 2] = pulp::cast(*x);
        each!(|halves| self.avx2._mm256_cvtepu16_epi32(halves))
    }
    #[inline(always)]
    fn and(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        each!(|a, b| self.avx2._mm256_and_si256(a, b))
    }
    #[inline(always)]
    fn or(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        each!(|a, b| self.avx2._mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn add_words(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        each!(|a, b| self.avx2._mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn shl(self, x: [__m256i; 2], by: u32) -> [__m256i; 2] {
        let by = self.sse2._mm_cvtsi32_si128(by as i32);
        each!(|x| self.avx2._mm256_sll_epi32(x, by))
    }
    #[inline(always)]
    fn shr(self, x: [__m256i; 2], by: u32) -> [__m256i; 2] {
        let by = self.sse2._mm_cvtsi32_si128(by as i32);
        each!(|x| self.avx2._mm256_srl_epi32(x, by))
    }
    #[inline(always)]
    fn where_set(self, bits: u16, value: u32) -> [__m256i; 2] {
        let place: [__m256i; 2] =
            pulp::cast([1_u32, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768]);
        let (bits, value) = (self.splat_word(u32::from(bits)), self.splat_word(value));
        let set = self.and(bits, place);
        let set = each!(|set, place| self.avx2._mm256_cmpeq_epi32(set, place));
        self.and(set, value)
    }
    #[inline(always)]
    fn float(self, x: [__m256i; 2]) -> [__m256; 2] {
        each!(|x| self.avx._mm256_cvtepi32_ps(x))
    }
    #[inline(always)]
    fn bits(self, x: [__m256; 2]) -> [__m256i; 2] {
        each!(|x| self.avx._mm256_castps_si256(x))
    }
    #[inline(always)]
    fn of_bits(self, x: [__m256i; 2]) -> [__m256; 2] {
        each!(|x| self.avx._mm256_castsi256_ps(x))
    }
    #[inline(always)]
    fn look_up(self, table: [__m256; 2], codes: [__m256i; 2]) -> [__m256; 2] {
        // A permutation reads three bits; the fourth, moved to the sign, chooses between the halves of the table.
        let fourth = self.of_bits(self.shl(codes, 28));
        let [low, high] = table;
        let low = each!(|codes| self.avx2._mm256_permutevar8x32_ps(low, codes));
        let high = each!(|codes| self.avx2._mm256_permutevar8x32_ps(high, codes));
        each!(|low, high, fourth| self.avx._mm256_blendv_ps(low, high, fourth))
    }
    #[inline(always)]
    fn zip(self, a: [__m256; 2], b: [__m256; 2]) -> [[__m256; 2]; 2] {
        // Within halves of 128 bits first, then these in their order.
        each!(|a, b| {
            let (low, high) = (self.avx._mm256_unpacklo_ps(a, b), self.avx._mm256_unpackhi_ps(a, b));
            let first = self.avx._mm256_permute2f128_ps::<0x20>(low, high);
            [first, self.avx._mm256_permute2f128_ps::<0x31>(low, high)]
        })
    }
}
