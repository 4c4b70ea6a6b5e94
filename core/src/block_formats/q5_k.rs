//! `q5_k`: 256 elements in 176 bytes. As `q4_k`, with 32 bytes of fifth bits between the scales and the codes: bit `j` of
//! byte `l` belongs to element `l` of part `j`.

use super::k_scales::scales_and_minima;
use super::{Blocks, pair, part, splat_half};
use crate::wide::Wide;

pub(super) struct Q5K;

impl Blocks for Q5K {
    const NAME: &str = "q5_k";
    const SIZE: usize = 256;
    const BYTES: usize = 176;

    #[inline(always)]
    fn values<W: Wide>(wide: W, block: &[u8], mut give: impl FnMut(usize, [W::Floats; 2])) {
        let (scales, minima) =
            scales_and_minima(wide, part(block, 4), [splat_half(wide, block, 0), splat_half(wide, block, 2)]);
        let (one_bit, four_bits) = (wide.splat_word(1), wide.splat_word(15));
        let fifth = pair!(i => wide.unsigned(part(block, 16 + 16 * i)));
        for i in 0..4 {
            let codes = pair!(j => wide.unsigned(part(block, 48 + 32 * i + 16 * j)));
            for j in 0..2 {
                let group = 2 * i + j;
                give(
                    group,
                    pair!(half => {
                        let low = wide.and(wide.shr(codes[half], 4 * j as u32), four_bits);
                        let high = wide.and(wide.shr(fifth[half], group as u32), one_bit);
                        let code = wide.float(wide.or(low, wide.shl(high, 4)));
                        wide.sub(wide.mul(wide.splat(scales[group]), code), wide.splat(minima[group]))
                    }),
                );
            }
        }
    }
}
