//! `q5_0`: 32 elements in 22 bytes. A scale `d` (f16), 32 fifth bits, then 16 bytes with the low four bits of elements
//! `i` and `i + 16`: `d (q - 16)`.

use super::{BlockFormat, decode_blocks, encode_blocks, extreme, fifth_bits, half_at, inverse, pack_nibbles, put_half};
use crate::Result;

pub(super) struct Q5_0;

impl BlockFormat for Q5_0 {
    fn name(&self) -> &'static str {
        "q5_0"
    }

    fn block_size(&self) -> usize {
        32
    }

    fn block_bytes(&self) -> usize {
        22
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        decode_blocks(
            bytes,
            out,
            #[inline(always)]
            |block: &[u8; 22], out: &mut [f32; 32]| {
                let d = half_at(block, 0);
                let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
                for i in 0..16 {
                    let low = u32::from(block[6 + i]);
                    out[i] = ((low & 15 | (high >> i & 1) << 4) as i32 - 16) as f32 * d;
                    out[i + 16] = ((low >> 4 | (high >> (i + 16) & 1) << 4) as i32 - 16) as f32 * d;
                }
            },
        );
    }

    fn encode(&self, values: &[f32], out: &mut [u8]) -> Result<()> {
        encode_blocks(values, out, |values: &[f32; 32], out: &mut [u8; 22]| {
            let d = extreme(values) / -16.0;
            let inverse = f64::from(inverse(d));
            // A fused multiply-add, as ggml has where it is compiled for one.
            let codes = values.map(|x| ((f64::from(x) * inverse + 16.5) as f32).clamp(0.0, 31.0) as u8);
            put_half(d, out);
            out[2..6].copy_from_slice(&fifth_bits(&codes));
            pack_nibbles(&codes, &mut out[6..]);
        });
        Ok(())
    }
}
