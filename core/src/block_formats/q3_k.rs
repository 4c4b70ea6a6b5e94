//! `q3_k`: 256 elements in 110 bytes. Third bits (32 bytes), low two bits (64 bytes), scales `s_j` of 16 parts of 16
//! elements (6 bits each, 12 bytes), and `d` (f16): `(d (s_j - 32)) (q - 4)`.
//!
//! Each half of the block has 32 bytes of low bits: byte `l` holds elements `l`, `l + 32`, `l + 64`, `l + 96`. Bit `i` of byte
//! `l` of the third bits belongs to element `l + 32 i` of the block.

use super::{Blocks, pair, part, splat_half};
use crate::wide::{WIDTH, Wide};

/// The scales: low four bits in bytes 0 to 7, the low halves first, high two bits in bytes 8 to 11, two for each in turn.
#[inline(always)]
fn six_bits(bytes: &[u8; 12]) -> [u8; WIDTH] {
    const TWO: u32 = 0x0303_0303;
    const FOUR: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    let [a, b, c, d, e, f, g, h, last @ ..] = *bytes;
    let (low, high) = (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes(last));
    let pair = |by: u32| u64::from(high >> by & TWO) | u64::from(high >> (by + 2) & TWO) << 32;
    let scales = [low & FOUR | pair(0) << 4, low >> 4 & FOUR | pair(4) << 4];
    bytemuck::cast(scales.map(u64::to_le_bytes))
}

pub(super) struct Q3K;

impl Blocks for Q3K {
    const NAME: &str = "q3_k";
    const SIZE: usize = 256;
    const BYTES: usize = 110;

    #[inline(always)]
    fn values<W: Wide>(wide: W, block: &[u8], mut give: impl FnMut(usize, [W::Floats; 2])) {
        let mut scales = [0.0; WIDTH];
        let from_zero = wide.add_words(wide.unsigned(&six_bits(part(block, 96))), wide.splat_word(-32_i32 as u32));
        wide.store(wide.mul(splat_half(wide, block, 108), wide.float(from_zero)), &mut scales);
        let (one_bit, two_bits, minus_4) = (wide.splat_word(1), wide.splat_word(3), wide.splat_word(-4_i32 as u32));
        let third = pair!(i => wide.unsigned(part(block, 16 * i)));
        for half in 0..2 {
            let low = pair!(i => wide.unsigned(part(block, 32 + 32 * half + 16 * i)));
            for quarter in 0..4 {
                let group = 4 * half + quarter;
                give(
                    group,
                    pair!(i => {
                        let two = wide.and(wide.shr(low[i], 2 * quarter as u32), two_bits);
                        let one = wide.and(wide.shr(third[i], group as u32), one_bit);
                        let code = wide.add_words(wide.or(two, wide.shl(one, 2)), minus_4);
                        wide.mul(wide.splat(scales[2 * group + i]), wide.float(code))
                    }),
                );
            }
        }
    }
}
