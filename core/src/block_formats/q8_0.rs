//! `q8_0`: 32 elements in 34 bytes. A scale `d` (f16), then 32 signed bytes: `d q`.

use super::{Blocks, Encode, encode_blocks, extreme, inverse, pair, part, put_half, splat_half};
use crate::wide::Wide;

pub(super) struct Q8_0;

impl Blocks for Q8_0 {
    const NAME: &str = "q8_0";
    const SIZE: usize = 32;
    const BYTES: usize = 34;

    #[inline(always)]
    fn values<W: Wide>(wide: W, block: &[u8], mut give: impl FnMut(usize, [W::Floats; 2])) {
        let d = splat_half(wide, block, 0);
        give(0, pair!(i => wide.mul(wide.float(wide.signed(part(block, 2 + 16 * i))), d)));
    }

    const ENCODE: Option<Encode> = Some(|values, out| {
        encode_blocks(values, out, |values: &[f32; 32], out: &mut [u8; 34]| {
            let d = extreme(values).abs() / 127.0;
            let inverse = inverse(d);
            put_half(d, out);
            // Half away from zero.
            out[2..].iter_mut().zip(values).for_each(|(q, x)| *q = (x * inverse).round() as i8 as u8);
        });
    });
}
