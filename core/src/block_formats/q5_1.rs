//! `q5_1`: 32 elements in 24 bytes. A scale `d` and a minimum `m` (f16), 32 fifth bits, then 16 bytes with the low four
//! bits of elements `i` and `i + 16`: `d q + m`.

use super::{
    Blocks, Encode, encode_blocks, fifth_bits, five_bits, inverse, pack_nibbles, pair, part, put_half, range,
    splat_half,
};
use crate::wide::Wide;

pub(super) struct Q5_1;

impl Blocks for Q5_1 {
    const NAME: &str = "q5_1";
    const SIZE: usize = 32;
    const BYTES: usize = 24;

    #[inline(always)]
    fn values<W: Wide>(wide: W, block: &[u8], mut give: impl FnMut(usize, [W::Floats; 2])) {
        let (d, m) = (splat_half(wide, block, 0), splat_half(wide, block, 2));
        let codes = five_bits(wide, part(block, 8), part(block, 4));
        give(0, pair!(i => wide.add(wide.mul(wide.float(codes[i]), d), m)));
    }

    const ENCODE: Option<Encode> = Some(|values, out| {
        encode_blocks(values, out, |values: &[f32; 32], out: &mut [u8; 24]| {
            let (low, high) = range(values);
            let d = (high - low) / 31.0;
            let inverse = inverse(d);
            let codes = values.map(|x| ((x - low) * inverse + 0.5).clamp(0.0, 31.0) as u8);
            put_half(d, out);
            put_half(low, &mut out[2..]);
            out[4..8].copy_from_slice(&fifth_bits(&codes));
            pack_nibbles(&codes, &mut out[8..]);
        });
    });
}
