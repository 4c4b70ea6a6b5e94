//! `q2_k`: 256 elements in 84 bytes. Scales `s_j` and minima `t_j` of 16 parts of 16 elements (4 bits each, 16 bytes), 64
//! bytes of codes, `d` and `m` (f16): `(d s_j) q - (m t_j)`.
//!
//! Each half of the block has 32 bytes of codes: byte `l` holds elements `l`, `l + 32`, `l + 64`, `l + 96`.

use super::{Blocks, pair, part, splat_half};
use crate::wide::{WIDTH, Wide};

pub(super) struct Q2K;

impl Blocks for Q2K {
    const NAME: &str = "q2_k";
    const SIZE: usize = 256;
    const BYTES: usize = 84;

    #[inline(always)]
    fn values<W: Wide>(wide: W, block: &[u8], mut give: impl FnMut(usize, [W::Floats; 2])) {
        let four_bits = wide.splat_word(15);
        let both = wide.unsigned(part(block, 0));
        let (d, m) = (splat_half(wide, block, 80), splat_half(wide, block, 82));
        let [mut scales, mut minima] = [[0.0; WIDTH]; 2];
        wide.store(wide.mul(wide.float(wide.and(both, four_bits)), d), &mut scales);
        wide.store(wide.mul(wide.float(wide.shr(both, 4)), m), &mut minima);
        let two_bits = wide.splat_word(3);
        for half in 0..2 {
            let codes = pair!(i => wide.unsigned(part(block, 16 + 32 * half + 16 * i)));
            for quarter in 0..4 {
                let group = 4 * half + quarter;
                give(
                    group,
                    pair!(i => {
                        let code = wide.float(wide.and(wide.shr(codes[i], 2 * quarter as u32), two_bits));
                        let (scale, minimum) = (scales[2 * group + i], minima[2 * group + i]);
                        wide.sub(wide.mul(wide.splat(scale), code), wide.splat(minimum))
                    }),
                );
            }
        }
    }
}
