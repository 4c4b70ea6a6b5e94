//! `q2_k`: 256 elements in 84 bytes. Scales `s_j` and minima `t_j` of 16 parts of 16 elements (4 bits each, 16 bytes), 64
//! bytes of codes, `d` and `m` (f16): `(d s_j) q - (m t_j)`.
//!
//! Each half of the block has 32 bytes of codes: byte `l` holds elements `l`, `l + 32`, `l + 64`, `l + 96`.

use super::{BlockFormat, decode_blocks, half_at};

pub(super) struct Q2K;

impl BlockFormat for Q2K {
    fn name(&self) -> &'static str {
        "q2_k"
    }

    fn block_size(&self) -> usize {
        256
    }

    fn block_bytes(&self) -> usize {
        84
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        decode_blocks(
            bytes,
            out,
            #[inline(always)]
            |block: &[u8; 84], out: &mut [f32; 256]| {
                let (d, m) = (half_at(block, 80), half_at(block, 82));
                for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                    let (scale, minimum) = (d * f32::from(block[j] & 15), m * f32::from(block[j] >> 4));
                    let (half, part) = (j / 8, j % 8);
                    let codes: &[u8; 16] =
                        block[16 + 32 * half + 16 * (part % 2)..].first_chunk().expect("4 times 16 bytes");
                    for l in 0..16 {
                        out[l] = scale * f32::from(codes[l] >> (2 * (part / 2)) & 3) - minimum;
                    }
                }
            },
        );
    }
}
