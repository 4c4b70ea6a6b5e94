//! `q6_k`: 256 elements in 210 bytes. Low four bits (128 bytes), high two bits (64), signed scales `s_j` of 16 parts of 16
//! elements, and `d` (f16): `(d s_j) (q - 32)`.
//!
//! Each half of the block has 64 bytes of low bits and 32 of high ones: low byte `l` holds elements `l` and `l + 64`, high
//! byte `l` holds elements `l`, `l + 32`, `l + 64`, `l + 96`.

use super::{Blocks, pair, part, splat_half};
use crate::wide::{WIDTH, Wide};

pub(super) struct Q6K;

impl Blocks for Q6K {
    const NAME: &str = "q6_k";
    const SIZE: usize = 256;
    const BYTES: usize = 210;

    #[inline(always)]
    fn values<W: Wide>(wide: W, block: &[u8], mut give: impl FnMut(usize, [W::Floats; 2])) {
        let mut scales = [0.0; WIDTH];
        let d = splat_half(wide, block, 208);
        wide.store(wide.mul(d, wide.float(wide.signed(part(block, 192)))), &mut scales);
        let (two_bits, four_bits) = (wide.splat_word(3), wide.splat_word(15));
        let minus_32 = wide.splat_word(-32_i32 as u32);
        for n in 0..2 {
            let low = pair!(j => pair!(i => wide.unsigned(part(block, 64 * n + 32 * j + 16 * i))));
            let high = pair!(i => wide.unsigned(part(block, 128 + 32 * n + 16 * i)));
            for quarter in 0..4 {
                let group = 4 * n + quarter;
                give(
                    group,
                    pair!(i => {
                        let four = wide.and(wide.shr(low[quarter % 2][i], 4 * (quarter as u32 / 2)), four_bits);
                        let two = wide.and(wide.shr(high[i], 2 * quarter as u32), two_bits);
                        let code = wide.add_words(wide.or(four, wide.shl(two, 4)), minus_32);
                        wide.mul(wide.splat(scales[2 * group + i]), wide.float(code))
                    }),
                );
            }
        }
    }
}
