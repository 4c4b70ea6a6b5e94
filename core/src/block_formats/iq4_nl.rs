//! `iq4_nl`: 32 elements in 18 bytes. A scale `d` (f16), then 16 bytes with elements `i` and `i + 16`: `d CODEBOOK[q]`.

use super::{Blocks, part, splat_half};
use crate::wide::Wide;

/// What the codes stand for.
const CODEBOOK: [f32; 16] =
    [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];

pub(super) struct Iq4Nl;

impl Blocks for Iq4Nl {
    const NAME: &str = "iq4_nl";
    const SIZE: usize = 32;
    const BYTES: usize = 18;

    #[inline(always)]
    fn values<W: Wide>(wide: W, block: &[u8], mut give: impl FnMut(usize, [W::Floats; 2])) {
        let table = wide.mul(wide.load(&CODEBOOK), splat_half(wide, block, 0));
        let codes = wide.unsigned(part(block, 2));
        give(0, [wide.look_up(table, codes), wide.look_up(table, wide.shr(codes, 4))]);
    }
}
