//! The 6-bit scales and minima of `q4_k` and `q5_k`.

/// Scale and minimum of part `j` (of 8), from 12 bytes: six bits each, those of the last four parts in pieces.
#[inline(always)]
pub(super) fn scale_and_minimum(bytes: &[u8], j: usize) -> (f32, f32) {
    let (scale, minimum) = if j < 4 {
        (bytes[j] & 63, bytes[j + 4] & 63)
    } else {
        (bytes[j + 4] & 15 | bytes[j - 4] >> 6 << 4, bytes[j + 4] >> 4 | bytes[j] >> 6 << 4)
    };
    (f32::from(scale), f32::from(minimum))
}

/// The 12 bytes of 8 scales and minima of six bits.
pub(super) fn put_scales_and_minima(scales: [u8; 8], minima: [u8; 8], out: &mut [u8]) {
    for j in 0..4 {
        out[j] = scales[j] | scales[j + 4] >> 4 << 6;
        out[j + 4] = minima[j] | minima[j + 4] >> 4 << 6;
        out[j + 8] = scales[j + 4] & 15 | minima[j + 4] << 4;
    }
}
