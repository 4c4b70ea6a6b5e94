//! Sums over a row.

use super::Real;

/// Accumulators side by side: a sum in vector registers, in an order that depends on the length only.
pub const LANES: usize = 32;

/// The sum of accumulators: of halves, of their halves, and so on, so that few additions wait for others.
#[inline(always)]
pub fn total<T: Real>(mut lanes: [T; LANES]) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            let other = lanes[i + width];
            lanes[i] += other;
        }
        width /= 2;
    }
    lanes[0]
}

/// `sum x_i`.
#[inline(always)]
pub fn sum<T: Real>(x: &[T]) -> T {
    sum_of(
        x,
        #[inline(always)]
        |x| x,
    )
}

/// `sum (x_i - center)^2`.
#[inline(always)]
pub fn sum_of_squares<T: Real>(x: &[T], center: T) -> T {
    sum_of(
        x,
        #[inline(always)]
        |x| (x - center) * (x - center),
    )
}

#[inline(always)]
fn sum_of<T: Real>(x: &[T], term: impl Fn(T) -> T) -> T {
    let mut sums = [T::zero(); LANES];
    // Whole groups apart from the last elements: their length is known to the compiler.
    let (groups, last) = x.as_chunks::<LANES>();
    for x in groups {
        for lane in 0..LANES {
            sums[lane] += term(x[lane]);
        }
    }
    for (sum, &x) in sums.iter_mut().zip(last) {
        *sum += term(x);
    }
    total(sums)
}

/// `sum f(x_i, g_i, w_i)` of slices of equal length, two sums at once.
#[inline(always)]
pub fn two_sums<T: Real>([x, g, w]: [&[T]; 3], f: impl Fn(T, T, T) -> [T; 2]) -> [T; 2] {
    // Two arrays: of one that holds both the compiler keeps no sum in a register.
    let (mut first, mut second) = ([T::zero(); LANES], [T::zero(); LANES]);
    let [(x, x_last), (g, g_last), (w, w_last)] = [x, g, w].map(<[T]>::as_chunks::<LANES>);
    for ((x, g), w) in x.iter().zip(g).zip(w) {
        for lane in 0..LANES {
            let [a, b] = f(x[lane], g[lane], w[lane]);
            first[lane] += a;
            second[lane] += b;
        }
    }
    for (lane, ((&x, &g), &w)) in x_last.iter().zip(g_last).zip(w_last).enumerate() {
        let [a, b] = f(x, g, w);
        first[lane] += a;
        second[lane] += b;
    }
    [total(first), total(second)]
}

/// `sum x_i g_i w_i` of slices of equal length.
#[inline(always)]
pub fn sum_of_products<T: Real>(factors: [&[T]; 3]) -> T {
    two_sums(
        factors,
        #[inline(always)]
        |x, g, w| [x * g * w, T::zero()],
    )[0]
}
