//! `q4_1`: 32 elements in 20 bytes. A scale `d` and a minimum `m` (f16), then 16 bytes with elements `i` and `i + 16`:
//! `d q + m`.

use super::{Blocks, Encode, FROM_0, encode_blocks, inverse, pack_nibbles, part, put_half, range, splat_half};
use crate::wide::Wide;

pub(super) struct Q4_1;

impl Blocks for Q4_1 {
    const NAME: &str = "q4_1";
    const SIZE: usize = 32;
    const BYTES: usize = 20;

    #[inline(always)]
    fn values<W: Wide>(wide: W, block: &[u8], mut give: impl FnMut(usize, [W::Floats; 2])) {
        let (d, m) = (splat_half(wide, block, 0), splat_half(wide, block, 2));
        let table = wide.add(wide.mul(wide.load(&FROM_0), d), m);
        let codes = wide.unsigned(part(block, 4));
        give(0, [wide.look_up(table, codes), wide.look_up(table, wide.shr(codes, 4))]);
    }

    const ENCODE: Option<Encode> = Some(|values, out| {
        encode_blocks(values, out, |values: &[f32; 32], out: &mut [u8; 20]| {
            let (low, high) = range(values);
            let d = (high - low) / 15.0;
            let inverse = inverse(d);
            let codes = values.map(|x| ((x - low) * inverse + 0.5).clamp(0.0, 15.0) as u8);
            put_half(d, out);
            put_half(low, &mut out[2..]);
            pack_nibbles(&codes, &mut out[4..]);
        });
    });
}
