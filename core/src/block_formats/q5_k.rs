//! `q5_k`: 256 elements in 176 bytes. As `q4_k`, with 32 bytes of fifth bits between the scales and the codes: bit `j` of
//! byte `l` belongs to element `l` of part `j`.

use super::k_scales::scale_and_minimum;
use super::{BlockFormat, decode_blocks, half_at};

pub(super) struct Q5K;

impl BlockFormat for Q5K {
    fn name(&self) -> &'static str {
        "q5_k"
    }

    fn block_size(&self) -> usize {
        256
    }

    fn block_bytes(&self) -> usize {
        176
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        decode_blocks(
            bytes,
            out,
            #[inline(always)]
            |block: &[u8; 176], out: &mut [f32; 256]| {
                let (d, m) = (half_at(block, 0), half_at(block, 2));
                let high: &[u8; 32] = block[16..].first_chunk().expect("32 bytes");
                for (i, out) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
                    let (s0, t0) = scale_and_minimum(&block[4..16], 2 * i);
                    let (s1, t1) = scale_and_minimum(&block[4..16], 2 * i + 1);
                    let (d0, m0, d1, m1) = (d * s0, m * t0, d * s1, m * t1);
                    let codes: &[u8; 32] = block[48 + 32 * i..].first_chunk().expect("4 times 32 bytes");
                    for l in 0..32 {
                        let fifth = high[l] >> (2 * i);
                        out[l] = d0 * f32::from(codes[l] & 15 | (fifth & 1) << 4) - m0;
                        out[l + 32] = d1 * f32::from(codes[l] >> 4 | (fifth >> 1 & 1) << 4) - m1;
                    }
                }
            },
        );
    }
}
