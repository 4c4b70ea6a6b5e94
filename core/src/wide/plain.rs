//! Plain arrays, for the compiler to make of what it can.

use super::{WIDTH, Wide};
use std::array::from_fn;

impl Wide for pulp::Scalar {
    type Floats = [f32; WIDTH];
    type Words = [u32; WIDTH];

    #[inline(always)]
    fn load(self, x: &[f32; WIDTH]) -> [f32; WIDTH] {
        *x
    }
    #[inline(always)]
    fn store(self, x: [f32; WIDTH], out: &mut [f32; WIDTH]) {
        *out = x;
    }
    #[inline(always)]
    fn splat(self, x: f32) -> [f32; WIDTH] {
        [x; WIDTH]
    }
    #[inline(always)]
    fn splat_word(self, x: u32) -> [u32; WIDTH] {
        [x; WIDTH]
    }
    #[inline(always)]
    fn add(self, a: [f32; WIDTH], b: [f32; WIDTH]) -> [f32; WIDTH] {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: [f32; WIDTH], b: [f32; WIDTH]) -> [f32; WIDTH] {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: [f32; WIDTH], b: [f32; WIDTH]) -> [f32; WIDTH] {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: [f32; WIDTH], b: [f32; WIDTH], c: [f32; WIDTH]) -> [f32; WIDTH] {
        from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn unsigned(self, bytes: &[u8; WIDTH]) -> [u32; WIDTH] {
        bytes.map(u32::from)
    }
    #[inline(always)]
    fn signed(self, bytes: &[u8; WIDTH]) -> [u32; WIDTH] {
        bytes.map(|x| i32::from(x as i8) as u32)
    }
    #[inline(always)]
    fn shorts(self, x: &[u16; WIDTH]) -> [u32; WIDTH] {
        x.map(u32::from)
    }
    #[inline(always)]
    fn and(self, a: [u32; WIDTH], b: [u32; WIDTH]) -> [u32; WIDTH] {
        from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn or(self, a: [u32; WIDTH], b: [u32; WIDTH]) -> [u32; WIDTH] {
        from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn add_words(self, a: [u32; WIDTH], b: [u32; WIDTH]) -> [u32; WIDTH] {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn shl(self, x: [u32; WIDTH], by: u32) -> [u32; WIDTH] {
        x.map(|x| x << by)
    }
    #[inline(always)]
    fn shr(self, x: [u32; WIDTH], by: u32) -> [u32; WIDTH] {
        x.map(|x| x >> by)
    }
    #[inline(always)]
    fn where_set(self, bits: u16, value: u32) -> [u32; WIDTH] {
        from_fn(|i| u32::from(bits >> i & 1) * value)
    }
    #[inline(always)]
    fn float(self, x: [u32; WIDTH]) -> [f32; WIDTH] {
        x.map(|x| x as i32 as f32)
    }
    #[inline(always)]
    fn bits(self, x: [f32; WIDTH]) -> [u32; WIDTH] {
        x.map(f32::to_bits)
    }
    #[inline(always)]
    fn of_bits(self, x: [u32; WIDTH]) -> [f32; WIDTH] {
        x.map(f32::from_bits)
    }
    #[inline(always)]
    fn look_up(self, table: [f32; WIDTH], codes: [u32; WIDTH]) -> [f32; WIDTH] {
        codes.map(|code| table[(code & 15) as usize])
    }
    #[inline(always)]
    fn zip(self, a: [f32; WIDTH], b: [f32; WIDTH]) -> [[f32; WIDTH]; 2] {
        let part = |first: usize| from_fn(|i| if i % 2 == 0 { a[first + i / 2] } else { b[first + i / 2] });
        [part(0), part(WIDTH / 2)]
    }
}
