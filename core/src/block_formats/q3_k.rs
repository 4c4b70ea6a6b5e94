//! `q3_k`: 256 elements in 110 bytes. Third bits (32 bytes), low two bits (64 bytes), scales `s_j` of 16 parts of 16
//! elements (6 bits each, 12 bytes), and `d` (f16): `(d (s_j - 32)) (q - 4)`.
//!
//! Each half of the block has 32 bytes of low bits: byte `l` holds elements `l`, `l + 32`, `l + 64`, `l + 96`. Bit `i` of byte
//! `l` of the third bits belongs to element `l + 32 i` of the block.

use super::{BlockFormat, decode_blocks, half_at};

pub(super) struct Q3K;

/// Scale `j`: its low four bits are in bytes 0 to 7, its high two in bytes 8 to 11.
#[inline(always)]
fn scale(bytes: &[u8], j: usize) -> i32 {
    let low = bytes[j % 8] >> (4 * (j / 8)) & 15;
    let high = bytes[8 + j % 4] >> (2 * (j / 4)) & 3;
    i32::from(low | high << 4) - 32
}

impl BlockFormat for Q3K {
    fn name(&self) -> &'static str {
        "q3_k"
    }

    fn block_size(&self) -> usize {
        256
    }

    fn block_bytes(&self) -> usize {
        110
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        decode_blocks(
            bytes,
            out,
            #[inline(always)]
            |block: &[u8; 110], out: &mut [f32; 256]| {
                let d = half_at(block, 108);
                for (j, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                    let scale = d * scale(&block[96..108], j) as f32;
                    let (half, part) = (j / 8, j % 8);
                    let first = 16 * (part % 2);
                    let third: &[u8; 16] = block[first..].first_chunk().expect("2 times 16 bytes");
                    let low: &[u8; 16] = block[32 + 32 * half + first..].first_chunk().expect("4 times 16 bytes");
                    for l in 0..16 {
                        let two = low[l] >> (2 * (part / 2)) & 3;
                        let one = third[l] >> (j / 2) & 1;
                        out[l] = scale * (i32::from(two | one << 2) - 4) as f32;
                    }
                }
            },
        );
    }
}
