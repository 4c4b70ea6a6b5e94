//! `q4_k`: 256 elements in 144 bytes. `d` and `m` (f16), scales `s_j` and minima `t_j` of 8 parts of 32 elements (6 bits
//! each), then 4 times 32 bytes with parts `2i` and `2i + 1` in their low and high halves: `(d s_j) q - (m t_j)`.

use super::k_scales::scale_and_minimum;
use super::{BlockFormat, decode_blocks, half_at};

pub(super) struct Q4K;

impl BlockFormat for Q4K {
    fn name(&self) -> &'static str {
        "q4_k"
    }

    fn block_size(&self) -> usize {
        256
    }

    fn block_bytes(&self) -> usize {
        144
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        decode_blocks(
            bytes,
            out,
            #[inline(always)]
            |block: &[u8; 144], out: &mut [f32; 256]| {
                let (d, m) = (half_at(block, 0), half_at(block, 2));
                for (i, out) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
                    let (s0, t0) = scale_and_minimum(&block[4..16], 2 * i);
                    let (s1, t1) = scale_and_minimum(&block[4..16], 2 * i + 1);
                    let (d0, m0, d1, m1) = (d * s0, m * t0, d * s1, m * t1);
                    let codes: &[u8; 32] = block[16 + 32 * i..].first_chunk().expect("4 times 32 bytes");
                    for l in 0..32 {
                        out[l] = d0 * f32::from(codes[l] & 15) - m0;
                        out[l + 32] = d1 * f32::from(codes[l] >> 4) - m1;
                    }
                }
            },
        );
    }
}
