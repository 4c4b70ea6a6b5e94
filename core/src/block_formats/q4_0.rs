//! `q4_0`: 32 elements in 18 bytes. A scale `d` (f16), then 16 bytes with elements `i` and `i + 16`: `d (q - 8)`.

use super::{BlockFormat, decode_blocks, encode_blocks, extreme, half_at, inverse, pack_nibbles, put_half};
use crate::Result;

pub(super) struct Q4_0;

impl BlockFormat for Q4_0 {
    fn name(&self) -> &'static str {
        "q4_0"
    }

    fn block_size(&self) -> usize {
        32
    }

    fn block_bytes(&self) -> usize {
        18
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        decode_blocks(
            bytes,
            out,
            #[inline(always)]
            |block: &[u8; 18], out: &mut [f32; 32]| {
                let d = half_at(block, 0);
                for i in 0..16 {
                    out[i] = (i32::from(block[2 + i] & 15) - 8) as f32 * d;
                    out[i + 16] = (i32::from(block[2 + i] >> 4) - 8) as f32 * d;
                }
            },
        );
    }

    fn encode(&self, values: &[f32], out: &mut [u8]) -> Result<()> {
        encode_blocks(values, out, |values: &[f32; 32], out: &mut [u8; 18]| {
            let d = extreme(values) / -8.0;
            let inverse = f64::from(inverse(d));
            // A fused multiply-add, as ggml has where it is compiled for one.
            let codes = values.map(|x| ((f64::from(x) * inverse + 8.5) as f32).clamp(0.0, 15.0) as u8);
            put_half(d, out);
            pack_nibbles(&codes, &mut out[2..]);
        });
        Ok(())
    }
}
