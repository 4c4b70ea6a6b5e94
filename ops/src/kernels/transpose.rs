//! Transposition of squares of 16 x 16 elements.

use bytemuck::Pod;

/// Rows and columns of a square.
pub(crate) const SIDE: usize = 16;

/// Writes the columns of 16 rows of 16 elements, which begin `stride` apart, as rows `width` apart: `count` of them.
///
/// # Panics
/// When a slice is too short.
#[inline(always)]
pub(crate) fn transpose<T: Pod>(rows: &[T], stride: usize, out: &mut [T], width: usize, count: usize) {
    #[cfg(target_arch = "x86_64")]
    if size_of::<T>() == size_of::<u32>() && is_x86_feature_detected!("avx512f") && super::simd::is_unlimited() {
        let (rows, out) = (bytemuck::cast_slice(rows), bytemuck::cast_slice_mut(out));
        // SAFETY: the processor has the instructions.
        unsafe { avx512::transpose(rows, stride, out, width, count) }
        return;
    }
    for (i, row) in rows.chunks(stride).take(SIDE).enumerate() {
        for (p, &x) in row[..count].iter().enumerate() {
            out[p * width + i] = x;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::SIDE;
    use std::arch::x86_64::{
        __m512i, _mm512_loadu_si512, _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_unpackhi_epi32,
        _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
    };

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn transpose(rows: &[u32], stride: usize, out: &mut [u32], width: usize, count: usize) {
        assert!(count <= SIDE && rows.len() >= (SIDE - 1) * stride + SIDE);
        assert!(count == 0 || out.len() >= (count - 1) * width + SIDE);
        // SAFETY: 16 rows of a register each, as asserted.
        let r: [__m512i; SIDE] =
            std::array::from_fn(|i| unsafe { _mm512_loadu_si512(rows.as_ptr().add(i * stride).cast()) });
        // Of rows 2i and 2i + 1, columns 0 and 1, then 2 and 3, of every quarter of a register.
        let mut t = r;
        for i in (0..SIDE).step_by(2) {
            t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
            t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
        }
        // Of rows 4i .. 4i + 4, column c of every quarter.
        let mut q = t;
        for i in (0..SIDE).step_by(4) {
            q[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
            q[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
            q[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
            q[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
        }
        // Quarters 0 and 2, or 1 and 3, of two registers.
        let even = |a, b| _mm512_shuffle_i32x4::<0b10_00_10_00>(a, b);
        let odd = |a, b| _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b);
        for c in 0..4 {
            let (low, low_rest) = (even(q[c], q[4 + c]), even(q[8 + c], q[12 + c]));
            let (high, high_rest) = (odd(q[c], q[4 + c]), odd(q[8 + c], q[12 + c]));
            t[c] = even(low, low_rest);
            t[8 + c] = odd(low, low_rest);
            t[4 + c] = even(high, high_rest);
            t[12 + c] = odd(high, high_rest);
        }
        for (i, &column) in t[..count].iter().enumerate() {
            // SAFETY: as asserted.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(i * width).cast(), column) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_rows() {
        for (stride, width, count) in [(16, 16, 16), (20, 32, 16), (17, 19, 5), (16, 16, 0)] {
            let rows: Vec<u32> = (0..15 * stride as u32 + 16).collect();
            let mut out = vec![0; 16 * width];
            transpose(&rows, stride, &mut out, width, count);
            let wide: Vec<u64> = rows.iter().map(|&x| x.into()).collect();
            let mut wide_out = vec![0; 16 * width];
            transpose(&wide, stride, &mut wide_out, width, count);
            for p in 0..16 {
                for i in 0..16 {
                    let expected = if p < count { (i * stride + p) as u32 } else { 0 };
                    assert_eq!((out[p * width + i], wide_out[p * width + i]), (expected, expected.into()));
                }
            }
        }
    }
}
