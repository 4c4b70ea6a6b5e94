//! How sums in a register become part of the output.

use super::Accumulate;
use super::bf16::LANES;
use super::micro::Target;
use std::arch::x86_64::{
    __m512, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};

/// Writes `alpha acc`, and what it is added to, to 16 columns of row `i` from `first` on, or as many as there are.
///
/// # Safety
/// The row of `c` is writable, and readable when added to; what is added has it and the columns.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn store(acc: __m512, alpha: f32, i: usize, first: usize, how: Accumulate<f32>, c: Target<f32>) {
    let alpha = _mm512_set1_ps(alpha);
    let left = c.cols.saturating_sub(first).min(LANES);
    let mask = ((1_u32 << left) - 1) as u16;
    // SAFETY: the mask leaves the columns of the target, and as many of the bias.
    unsafe {
        let out = c.data.add(i * c.row_stride).wrapping_add(first);
        if left == LANES {
            let base = match how {
                Accumulate::Overwrite => _mm512_setzero_ps(),
                Accumulate::Add => _mm512_loadu_ps(out),
                Accumulate::Bias(bias) => _mm512_loadu_ps(bias.as_ptr().add(first)),
                Accumulate::Onto(base, bias) => {
                    let base = _mm512_loadu_ps(base.at_ptr(i, first));
                    bias.map_or(base, |bias| _mm512_add_ps(base, _mm512_loadu_ps(bias.as_ptr().add(first))))
                }
            };
            _mm512_storeu_ps(out, _mm512_fmadd_ps(alpha, acc, base));
            return;
        }
        let base = match how {
            Accumulate::Overwrite => _mm512_setzero_ps(),
            Accumulate::Add => _mm512_maskz_loadu_ps(mask, out),
            Accumulate::Bias(bias) => _mm512_maskz_loadu_ps(mask, bias.as_ptr().wrapping_add(first)),
            Accumulate::Onto(base, bias) => {
                let base = _mm512_maskz_loadu_ps(mask, base.at_ptr(i, first));
                bias.map_or(base, |bias| {
                    let bias = _mm512_maskz_loadu_ps(mask, bias.as_ptr().wrapping_add(first));
                    _mm512_add_ps(base, bias)
                })
            }
        };
        _mm512_mask_storeu_ps(out, mask, _mm512_fmadd_ps(alpha, acc, base));
    }
}
