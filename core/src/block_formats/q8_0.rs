//! `q8_0`: 32 elements in 34 bytes. A scale `d` (f16), then 32 signed bytes: `d q`.

use super::{BlockFormat, decode_blocks, encode_blocks, extreme, half_at, inverse, put_half};
use crate::Result;

pub(super) struct Q8_0;

impl BlockFormat for Q8_0 {
    fn name(&self) -> &'static str {
        "q8_0"
    }

    fn block_size(&self) -> usize {
        32
    }

    fn block_bytes(&self) -> usize {
        34
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        decode_blocks(
            bytes,
            out,
            #[inline(always)]
            |block: &[u8; 34], out: &mut [f32; 32]| {
                let d = half_at(block, 0);
                for i in 0..32 {
                    out[i] = f32::from(block[2 + i] as i8) * d;
                }
            },
        );
    }

    fn encode(&self, values: &[f32], out: &mut [u8]) -> Result<()> {
        encode_blocks(values, out, |values: &[f32; 32], out: &mut [u8; 34]| {
            let d = extreme(values).abs() / 127.0;
            let inverse = inverse(d);
            put_half(d, out);
            // Half away from zero.
            out[2..].iter_mut().zip(values).for_each(|(q, x)| *q = (x * inverse).round() as i8 as u8);
        });
        Ok(())
    }
}
