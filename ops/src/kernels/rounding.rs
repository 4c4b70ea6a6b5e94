//! Rounding to 16 bits, in place.

use super::Real;

/// Rounds to the nearest `bf16`, ties to even.
#[inline(always)]
pub(crate) fn round<T: Real>(x: &mut [T]) {
    for x in x {
        let value = x.f64() as f32;
        let bits = value.to_bits();
        let rounded = f32::from_bits(bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000);
        *x = T::of(f64::from(if value.is_nan() { value } else { rounded }));
    }
}
