//! Sums over a row.

use super::Real;

/// Accumulators side by side: a sum in vector registers, in an order that depends on the length only.
pub const LANES: usize = 32;

/// The sum of accumulators.
#[inline(always)]
pub fn total<T: Real>(lanes: [T; LANES]) -> T {
    lanes.into_iter().fold(T::zero(), |sum, x| sum + x)
}

/// `sum (x_i - center)^2`.
#[inline(always)]
pub fn sum_of_squares<T: Real>(x: &[T], center: T) -> T {
    let mut squares = [T::zero(); LANES];
    for x in x.chunks(LANES) {
        for (sum, &x) in squares.iter_mut().zip(x) {
            *sum += (x - center) * (x - center);
        }
    }
    total(squares)
}
