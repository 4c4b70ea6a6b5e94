//! `q5_1`: 32 elements in 24 bytes. A scale `d` and a minimum `m` (f16), 32 fifth bits, then 16 bytes with the low four
//! bits of elements `i` and `i + 16`: `d q + m`.

use super::{BlockFormat, decode_blocks, encode_blocks, fifth_bits, half_at, inverse, pack_nibbles, put_half, range};
use crate::Result;

pub(super) struct Q5_1;

impl BlockFormat for Q5_1 {
    fn name(&self) -> &'static str {
        "q5_1"
    }

    fn block_size(&self) -> usize {
        32
    }

    fn block_bytes(&self) -> usize {
        24
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        decode_blocks(
            bytes,
            out,
            #[inline(always)]
            |block: &[u8; 24], out: &mut [f32; 32]| {
                let (d, m) = (half_at(block, 0), half_at(block, 2));
                let high = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
                for i in 0..16 {
                    let low = u32::from(block[8 + i]);
                    out[i] = (low & 15 | (high >> i & 1) << 4) as f32 * d + m;
                    out[i + 16] = (low >> 4 | (high >> (i + 16) & 1) << 4) as f32 * d + m;
                }
            },
        );
    }

    fn encode(&self, values: &[f32], out: &mut [u8]) -> Result<()> {
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
        Ok(())
    }
}
