//! The 6-bit scales and minima of `q4_k` and `q5_k`.

use crate::wide::{WIDTH, Wide};

/// Scales times `d` and minima times `m` of 8 parts, from 12 bytes: six bits each, those of the last four parts in pieces.
#[inline(always)]
pub(super) fn scales_and_minima<W: Wide>(wide: W, bytes: &[u8; 12], [d, m]: [W::Floats; 2]) -> ([f32; 8], [f32; 8]) {
    const TWO: u32 = 0x0303_0303;
    const FOUR: u32 = 0x0f0f_0f0f;
    const SIX: u32 = 0x3f3f_3f3f;
    let [a, b, c] = bytemuck::cast::<[u8; 12], [[u8; 4]; 3]>(*bytes).map(u32::from_le_bytes);
    let words = [a & SIX, c & FOUR | (a >> 6 & TWO) << 4, b & SIX, c >> 4 & FOUR | (b >> 6 & TWO) << 4];
    let both = wide.float(wide.unsigned(&bytemuck::cast(words.map(u32::to_le_bytes))));
    let [mut scales, mut minima] = [[0.0; WIDTH]; 2];
    wide.store(wide.mul(d, both), &mut scales);
    wide.store(wide.mul(m, both), &mut minima);
    let half = |of: &[f32; WIDTH], first: usize| std::array::from_fn(|i| of[first + i]);
    (half(&scales, 0), half(&minima, 8))
}

/// The 12 bytes of 8 scales and minima of six bits.
pub(super) fn put_scales_and_minima(scales: [u8; 8], minima: [u8; 8], out: &mut [u8]) {
    for j in 0..4 {
        out[j] = scales[j] | scales[j + 4] >> 4 << 6;
        out[j + 4] = minima[j] | minima[j + 4] >> 4 << 6;
        out[j + 8] = scales[j + 4] & 15 | minima[j + 4] << 4;
    }
}
