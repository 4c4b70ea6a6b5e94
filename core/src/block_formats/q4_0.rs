//! `q4_0`: 32 elements in 18 bytes. A scale `d` (f16), then 16 bytes with elements `i` and `i + 16`: `d (q - 8)`.

use super::{Blocks, Encode, encode_blocks, extreme, inverse, pack_nibbles, part, put_half, splat_half};
use crate::wide::Wide;

/// What the codes stand for.
const CODES: [f32; 16] = [-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];

pub(super) struct Q4_0;

impl Blocks for Q4_0 {
    const NAME: &str = "q4_0";
    const SIZE: usize = 32;
    const BYTES: usize = 18;

    #[inline(always)]
    fn values<W: Wide>(wide: W, block: &[u8], mut give: impl FnMut(usize, [W::Floats; 2])) {
        // What the codes stand for, times the scale.
        let table = wide.mul(wide.load(&CODES), splat_half(wide, block, 0));
        let codes = wide.unsigned(part(block, 2));
        give(0, [wide.look_up(table, codes), wide.look_up(table, wide.shr(codes, 4))]);
    }

    const ENCODE: Option<Encode> = Some(|values, out| {
        encode_blocks(values, out, |values: &[f32; 32], out: &mut [u8; 18]| {
            let d = extreme(values) / -8.0;
            let inverse = f64::from(inverse(d));
            // A fused multiply-add, as ggml has where it is compiled for one.
            let codes = values.map(|x| ((f64::from(x) * inverse + 8.5) as f32).clamp(0.0, 15.0) as u8);
            put_half(d, out);
            pack_nibbles(&codes, &mut out[2..]);
        });
    });
}
