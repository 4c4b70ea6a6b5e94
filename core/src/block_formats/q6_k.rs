//! `q6_k`: 256 elements in 210 bytes. Low four bits (128 bytes), high two bits (64), signed scales `s_j` of 16 parts of 16
//! elements, and `d` (f16): `(d s_j) (q - 32)`.
//!
//! Each half of the block has 64 bytes of low bits and 32 of high ones: low byte `l` holds elements `l` and `l + 64`, high
//! byte `l` holds elements `l`, `l + 32`, `l + 64`, `l + 96`.

use super::{BlockFormat, decode_blocks, half_at};

pub(super) struct Q6K;

impl BlockFormat for Q6K {
    fn name(&self) -> &'static str {
        "q6_k"
    }

    fn block_size(&self) -> usize {
        256
    }

    fn block_bytes(&self) -> usize {
        210
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        decode_blocks(
            bytes,
            out,
            #[inline(always)]
            |block: &[u8; 210], out: &mut [f32; 256]| {
                let d = half_at(block, 208);
                for (n, out) in out.as_chunks_mut::<128>().0.iter_mut().enumerate() {
                    let low: &[u8; 64] = block[64 * n..].first_chunk().expect("64 bytes");
                    let high: &[u8; 32] = block[128 + 32 * n..].first_chunk().expect("32 bytes");
                    for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                        let scale = d * f32::from(block[192 + 8 * n + j] as i8);
                        let (first, quarter) = (16 * (j % 2), j / 2);
                        for l in 0..16 {
                            let four = low[32 * (quarter % 2) + first + l] >> (4 * (quarter / 2)) & 15;
                            let two = high[first + l] >> (2 * quarter) & 3;
                            out[l] = scale * (i32::from(four | two << 4) - 32) as f32;
                        }
                    }
                }
            },
        );
    }
}
