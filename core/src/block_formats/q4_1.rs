//! `q4_1`: 32 elements in 20 bytes. A scale `d` and a minimum `m` (f16), then 16 bytes with elements `i` and `i + 16`:
//! `d q + m`.

use super::{BlockFormat, decode_blocks, encode_blocks, half_at, inverse, pack_nibbles, put_half, range};
use crate::Result;

pub(super) struct Q4_1;

impl BlockFormat for Q4_1 {
    fn name(&self) -> &'static str {
        "q4_1"
    }

    fn block_size(&self) -> usize {
        32
    }

    fn block_bytes(&self) -> usize {
        20
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        decode_blocks(
            bytes,
            out,
            #[inline(always)]
            |block: &[u8; 20], out: &mut [f32; 32]| {
                let (d, m) = (half_at(block, 0), half_at(block, 2));
                for i in 0..16 {
                    out[i] = f32::from(block[4 + i] & 15) * d + m;
                    out[i + 16] = f32::from(block[4 + i] >> 4) * d + m;
                }
            },
        );
    }

    fn encode(&self, values: &[f32], out: &mut [u8]) -> Result<()> {
        encode_blocks(values, out, |values: &[f32; 32], out: &mut [u8; 20]| {
            let (low, high) = range(values);
            let d = (high - low) / 15.0;
            let inverse = inverse(d);
            let codes = values.map(|x| ((x - low) * inverse + 0.5).clamp(0.0, 15.0) as u8);
            put_half(d, out);
            put_half(low, &mut out[2..]);
            pack_nibbles(&codes, &mut out[4..]);
        });
        Ok(())
    }
}
