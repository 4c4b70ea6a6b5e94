//! `iq4_nl`: 32 elements in 18 bytes. A scale `d` (f16), then 16 bytes with elements `i` and `i + 16`: `d CODEBOOK[q]`.

use super::{BlockFormat, decode_blocks, half_at};

/// What the codes stand for.
const CODEBOOK: [f32; 16] =
    [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];

pub(super) struct Iq4Nl;

impl BlockFormat for Iq4Nl {
    fn name(&self) -> &'static str {
        "iq4_nl"
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
                    out[i] = d * CODEBOOK[usize::from(block[2 + i] & 15)];
                    out[i + 16] = d * CODEBOOK[usize::from(block[2 + i] >> 4)];
                }
            },
        );
    }
}
