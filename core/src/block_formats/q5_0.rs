//! `q5_0`: 32 elements in 22 bytes. A scale `d` (f16), 32 fifth bits, then 16 bytes with the low four bits of elements
//! `i` and `i + 16`: `d (q - 16)`.

use super::{
    Blocks, Encode, encode_blocks, extreme, fifth_bits, five_bits, inverse, pack_nibbles, pair, part, put_half,
    splat_half,
};
use crate::wide::Wide;

pub(super) struct Q5_0;

impl Blocks for Q5_0 {
    const NAME: &str = "q5_0";
    const SIZE: usize = 32;
    const BYTES: usize = 22;

    #[inline(always)]
    fn values<W: Wide>(wide: W, block: &[u8], mut give: impl FnMut(usize, [W::Floats; 2])) {
        let d = splat_half(wide, block, 0);
        let minus_16 = wide.splat_word(-16_i32 as u32);
        let codes = five_bits(wide, part(block, 6), part(block, 2));
        give(0, pair!(i => wide.mul(wide.float(wide.add_words(codes[i], minus_16)), d)));
    }

    const ENCODE: Option<Encode> = Some(|values, out| {
        encode_blocks(values, out, |values: &[f32; 32], out: &mut [u8; 22]| {
            let d = extreme(values) / -16.0;
            let inverse = f64::from(inverse(d));
            // A fused multiply-add, as ggml has where it is compiled for one.
            let codes = values.map(|x| ((f64::from(x) * inverse + 16.5) as f32).clamp(0.0, 31.0) as u8);
            put_half(d, out);
            out[2..6].copy_from_slice(&fifth_bits(&codes));
            pack_nibbles(&codes, &mut out[6..]);
        });
    });
}
