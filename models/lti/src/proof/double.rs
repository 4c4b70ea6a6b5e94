//! Numbers of twice the precision, as unevaluated sums of two doubles, and matrices of them.
//!
//! Every operation here rounds by less than [`UNIT`], relative to its result: M. Joldes, J.-M. Muller and V. Popescu, Tight and
//! rigorous error bounds for basic building blocks of double-word arithmetic, ACM Trans. Math. Softw. 44 (2017), prove at most
//! `15 * 2^-106` for the algorithms taken (AccurateDWPlusDW, DWTimesDW2, division by two quotients). So the standard model of rounding
//! holds, and with it all that is proved from it, with [`UNIT`] for the unit of rounding. It needs numbers away from the ends of the
//! range: what is below [`SMALL`] may be lost.

use faer::{Mat, MatRef};
use pulp::{Arch, Simd, WithSimd};
use std::f64::consts::{FRAC_PI_2, PI};

/// No operation rounds by more than this, relative to its result.
pub const UNIT: f64 = 1.0 / (1_u128 << 101) as f64;

/// More than all that underflow takes from a sum of products, of numbers below `2^400`.
pub const SMALL: f64 = f64::MIN_POSITIVE * 9_007_199_254_740_992.0 * 9_007_199_254_740_992.0;

/// `hi + lo`, with `|lo|` at most half a unit in the last place of `hi`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Double {
    /// The nearest double.
    pub hi: f64,
    /// The rest.
    pub lo: f64,
}

#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

#[inline(always)]
fn fast_two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    (s, b - (s - a))
}

#[inline(always)]
fn add(a: Double, b: Double) -> Double {
    let (sum, sum_rest) = two_sum(a.hi, b.hi);
    let (rest, rest_rest) = two_sum(a.lo, b.lo);
    let (sum, sum_rest) = fast_two_sum(sum, sum_rest + rest);
    let (hi, lo) = fast_two_sum(sum, rest_rest + sum_rest);
    Double { hi, lo }
}

#[inline(always)]
fn mul(a: Double, b: Double) -> Double {
    let product = a.hi * b.hi;
    let rest = a.hi.mul_add(b.hi, -product);
    let cross = a.lo.mul_add(b.hi, a.hi * b.lo);
    let (hi, lo) = fast_two_sum(product, rest + cross);
    Double { hi, lo }
}

impl Double {
    /// A double as it is.
    pub const fn of(value: f64) -> Self {
        Self { hi: value, lo: 0.0 }
    }
}

impl std::ops::Add for Double {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        add(self, other)
    }
}

impl std::ops::Sub for Double {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        add(self, -other)
    }
}

impl std::ops::Neg for Double {
    type Output = Self;
    fn neg(self) -> Self {
        Self { hi: -self.hi, lo: -self.lo }
    }
}

impl std::ops::Mul for Double {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        mul(self, other)
    }
}

impl std::ops::Div for Double {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        let first = self.hi / other.hi;
        let rest = self - mul(Self::of(first), other);
        let (hi, lo) = fast_two_sum(first, rest.hi / other.hi);
        Self { hi, lo }
    }
}

/// Sine and cosine of an angle in [-pi, pi], to `2^-84`: by the series of a 64th of it, doubled six times, each time with at most
/// four times the error. As everywhere, the doubles next to pi and its half stand for these; an angle outside gives NaN.
pub fn sin_cos(angle: f64) -> (Double, Double) {
    const TERMS: u32 = 16;
    let right = angle.abs() == FRAC_PI_2 || angle.abs() == PI;
    if right || angle.abs() > PI || angle.is_nan() {
        let (sin, cos) = if right { crate::poles::sin_cos(angle) } else { (f64::NAN, f64::NAN) };
        return (Double::of(sin), Double::of(cos));
    }
    let x = Double::of(angle / 64.0);
    let square = mul(x, x);
    // Horner's rule from the last term on: sin x = x (1 - x^2/(2 3) (1 - x^2/(4 5) ...)).
    let series = |first: u32| {
        (0..TERMS).rev().fold(Double::of(1.0), |sum, k| {
            let divisor = f64::from((2 * k + first) * (2 * k + first + 1));
            Double::of(1.0) - mul(square, sum) / Double::of(divisor)
        })
    };
    let (mut sin, mut cos) = (mul(x, series(2)), series(1));
    for _ in 0..6 {
        let two = Double::of(2.0);
        (sin, cos) = (mul(two, mul(sin, cos)), Double::of(1.0) - mul(two, mul(sin, sin)));
    }
    (sin, cos)
}

/// A matrix of such numbers, row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    hi: Vec<f64>,
    lo: Vec<f64>,
}

/// `y += a x`, for the instructions that the processor has. (A closure would not be compiled for them.)
struct AddMultiple<'a> {
    y: (&'a mut [f64], &'a mut [f64]),
    a: Double,
    x: (&'a [f64], &'a [f64]),
}

impl WithSimd for AddMultiple<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { y: (y_hi, y_lo), a, x: (x_hi, x_lo) } = self;
        let n = y_hi.len();
        let (y_lo, x_hi, x_lo) = (&mut y_lo[..n], &x_hi[..n], &x_lo[..n]);
        for j in 0..n {
            let y = Double { hi: y_hi[j], lo: y_lo[j] };
            let sum = add(y, mul(a, Double { hi: x_hi[j], lo: x_lo[j] }));
            (y_hi[j], y_lo[j]) = (sum.hi, sum.lo);
        }
    }
}

impl Matrix {
    /// Zeros.
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self { rows, columns, hi: vec![0.0; rows * columns], lo: vec![0.0; rows * columns] }
    }

    /// Ones on the diagonal.
    pub fn identity(n: usize) -> Self {
        Self::from_fn(n, n, |i, j| Double::of(f64::from(u8::from(i == j))))
    }

    /// Entries by row and column.
    pub fn from_fn(rows: usize, columns: usize, f: impl Fn(usize, usize) -> Double) -> Self {
        let mut out = Self::zeros(rows, columns);
        for i in 0..rows {
            for j in 0..columns {
                out.set(i, j, f(i, j));
            }
        }
        out
    }

    /// A matrix of doubles.
    pub fn of(m: MatRef<'_, f64>) -> Self {
        Self::from_fn(m.nrows(), m.ncols(), |i, j| Double::of(m[(i, j)]))
    }

    /// The matrix rounded to doubles.
    pub fn rounded(&self) -> Mat<f64> {
        Mat::from_fn(self.rows, self.columns, |i, j| self.hi[i * self.columns + j])
    }

    /// Upper bounds of the moduli of the entries.
    pub fn moduli(&self) -> Mat<f64> {
        Mat::from_fn(self.rows, self.columns, |i, j| self.hi[i * self.columns + j].abs() * (1.0 + 2.0 * f64::EPSILON))
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// An entry.
    pub fn at(&self, i: usize, j: usize) -> Double {
        let at = i * self.columns + j;
        Double { hi: self.hi[at], lo: self.lo[at] }
    }

    /// Sets an entry.
    pub fn set(&mut self, i: usize, j: usize, value: Double) {
        let at = i * self.columns + j;
        (self.hi[at], self.lo[at]) = (value.hi, value.lo);
    }

    /// The transpose.
    pub fn transposed(&self) -> Self {
        Self::from_fn(self.columns, self.rows, |i, j| self.at(j, i))
    }

    /// Entry by entry.
    pub fn combined(&self, other: &Self, f: impl Fn(Double, Double) -> Double) -> Self {
        Self::from_fn(self.rows, self.columns, |i, j| f(self.at(i, j), other.at(i, j)))
    }

    /// The symmetric matrix that has the upper triangle of this one.
    pub fn symmetric(&self) -> Self {
        Self::from_fn(self.rows, self.columns, |i, j| self.at(i.min(j), i.max(j)))
    }

    fn row(&self, i: usize, from: usize) -> (&[f64], &[f64]) {
        let range = i * self.columns + from..(i + 1) * self.columns;
        (&self.hi[range.clone()], &self.lo[range])
    }

    /// Row i from a column on, to be changed, and another row from there on.
    fn two_rows(&mut self, i: usize, other: usize, from: usize) -> ((&mut [f64], &mut [f64]), (&[f64], &[f64])) {
        let n = self.columns;
        let (first, second) = (i.min(other) * n, i.max(other) * n);
        let (hi, lo) = (self.hi.split_at_mut(second), self.lo.split_at_mut(second));
        let low = (&mut hi.0[first + from..first + n], &mut lo.0[first + from..first + n]);
        let high = (&mut hi.1[from..n], &mut lo.1[from..n]);
        if i < other { (low, (high.0, high.1)) } else { (high, (low.0, low.1)) }
    }

    /// `self * other`. Entries that are zero cost nothing.
    pub fn times(&self, other: &Self) -> Self {
        self.times_from(other, |_| 0)
    }

    /// `self * other` where that is symmetric: its upper triangle is computed.
    pub fn times_symmetric(&self, other: &Self) -> Self {
        self.times_from(other, |i| i).symmetric()
    }

    fn times_from(&self, other: &Self, from: impl Fn(usize) -> usize) -> Self {
        assert_eq!(self.columns, other.rows, "matrices that can be multiplied");
        let mut out = Self::zeros(self.rows, other.columns);
        let arch = Arch::new();
        for i in 0..self.rows {
            let from = from(i);
            let range = i * other.columns + from..(i + 1) * other.columns;
            let (y_hi, y_lo) = (&mut out.hi[range.clone()], &mut out.lo[range]);
            for k in 0..self.columns {
                let a = self.at(i, k);
                if a.hi != 0.0 {
                    arch.dispatch(AddMultiple { y: (y_hi, y_lo), a, x: other.row(k, from) });
                }
            }
        }
        out
    }

    /// The inverse of a lower triangular matrix.
    pub fn inverse_of_lower(&self) -> Self {
        let n = self.rows;
        let mut out = Self::zeros(n, n);
        let arch = Arch::new();
        for i in 0..n {
            out.set(i, i, Double::of(1.0));
            for k in 0..i {
                let a = -self.at(i, k);
                if a.hi != 0.0 {
                    let (y, x) = out.two_rows(i, k, 0);
                    let (y, x) = ((&mut y.0[..=k], &mut y.1[..=k]), (&x.0[..=k], &x.1[..=k]));
                    arch.dispatch(AddMultiple { y, a, x });
                }
            }
            for j in 0..=i {
                out.set(i, j, out.at(i, j) / self.at(i, i));
            }
        }
        out
    }

    /// Whether elimination without pivoting of a symmetric matrix, of which only the upper triangle is read, meets positive pivots
    /// only.
    pub fn has_positive_pivots(mut self) -> bool {
        let n = self.rows;
        let arch = Arch::new();
        for k in 0..n {
            let pivot = self.at(k, k);
            // A NaN is not positive.
            if !(pivot.hi > 0.0 && pivot.hi.is_finite()) {
                return false;
            }
            for i in k + 1..n {
                let entry = self.at(k, i);
                if entry.hi != 0.0 {
                    let a = -(entry / pivot);
                    let (y, x) = self.two_rows(i, k, i);
                    arch.dispatch(AddMultiple { y, a, x });
                }
            }
        }
        true
    }

    /// L with `L L^T = self`, rounded, by Cholesky's elimination with pivots of the largest share of their diagonal entry. It ends where
    /// no share is above `lost`: what is left is rounding, and columns are zeros.
    pub fn factor(mut self, lost: f64) -> Mat<f64> {
        let n = self.rows;
        let sizes: Vec<f64> = (0..n).map(|i| self.at(i, i).hi).collect();
        let mut out = Mat::zeros(n, n);
        let arch = Arch::new();
        for k in 0..n {
            let share = |i: usize| if sizes[i] > 0.0 { self.at(i, i).hi / sizes[i] } else { 0.0 };
            let Some(best) = (0..n).max_by(|&i, &j| share(i).total_cmp(&share(j))).filter(|&i| share(i) > lost) else {
                break;
            };
            let pivot = self.at(best, best);
            let root = pivot.hi.sqrt();
            (0..n).for_each(|i| out[(i, k)] = self.at(i, best).hi / root);
            for i in (0..n).filter(|&i| i != best) {
                let a = -(self.at(i, best) / pivot);
                if a.hi != 0.0 {
                    let (y, x) = self.two_rows(i, best, 0);
                    arch.dispatch(AddMultiple { y, a, x });
                }
            }
            for j in 0..n {
                self.set(best, j, Double::of(0.0));
                self.set(j, best, Double::of(0.0));
            }
        }
        out
    }

    /// `self^-1 right` by elimination with partial pivoting; what cannot be solved is not finite.
    pub fn solve(&self, right: &Self) -> Self {
        let (n, m) = (self.rows, right.columns);
        let mut all = Self::from_fn(n, n + m, |i, j| if j < n { self.at(i, j) } else { right.at(i, j - n) });
        let arch = Arch::new();
        for k in 0..n {
            let best = (k..n).max_by(|&i, &j| all.at(i, k).hi.abs().total_cmp(&all.at(j, k).hi.abs()));
            let best = best.unwrap_or(k);
            if best != k {
                for j in k..n + m {
                    let (one, two) = (all.at(k, j), all.at(best, j));
                    all.set(k, j, two);
                    all.set(best, j, one);
                }
            }
            let pivot = all.at(k, k);
            for i in k + 1..n {
                let a = -(all.at(i, k) / pivot);
                let (y, x) = all.two_rows(i, k, k);
                arch.dispatch(AddMultiple { y, a, x });
            }
        }
        for k in (0..n).rev() {
            let pivot = all.at(k, k);
            for j in n..n + m {
                all.set(k, j, all.at(k, j) / pivot);
            }
            for i in 0..k {
                let a = -all.at(i, k);
                let (y, x) = all.two_rows(i, k, n);
                arch.dispatch(AddMultiple { y, a, x });
            }
        }
        Self::from_fn(n, m, |i, j| all.at(i, n + j))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values in (-1, 1) with all bits of both parts in use.
    fn value(k: usize) -> Double {
        let part = |k: usize| 2.0 * (k as f64 * 0.618_033_988_749_895 + 0.1 * ((k * k) as f64).sin()).fract() - 1.0;
        Double::of(part(3 * k + 1)) + Double::of(part(7 * k + 2) * 1e-17)
    }

    /// Integers of 100 bits have exact sums and products modulo `2^128`, and products of their halves fit.
    #[test]
    fn sums_and_products_are_right_to_a_unit() {
        let integer = |x: Double| x.hi as i128 + x.lo as i128;
        for k in 0..2000_usize {
            let part = |seed: u64| {
                let mixed = (k as u64 + 1).wrapping_mul(seed) ^ (k as u64).rotate_left(29);
                (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1) as i64
            };
            let (a, b) = (part(0xbf58_476d_1ce4_e5b9) >> (k % 23), -(part(0x94d0_49bb_1331_11eb) >> (k % 31)));
            let split = |x: i64| {
                let high = x as f64;
                Double { hi: high, lo: (i128::from(x) - high as i128) as f64 }
            };
            let (x, y) = (split(a), split(b));
            assert_eq!(integer(x + y), i128::from(a) + i128::from(b));
            let exact = i128::from(a) * i128::from(b);
            let error = (integer(x * y) - exact).abs() as f64;
            assert!(error <= UNIT * exact.abs() as f64, "{a} * {b}");
            let quotient = x / y;
            let error = (quotient * y - x).hi.abs();
            assert!(error <= 2.0 * UNIT * x.hi.abs(), "{a} / {b}");
        }
    }

    #[test]
    fn sines_have_their_digits() {
        // Digits of sin 1 and cos 3 beyond a double.
        let sin = sin_cos(1.0).0;
        assert_eq!(sin.hi, 0.841_470_984_807_896_5);
        // sin 1 = 0.84147098480789650665250232163029899962256306079837...
        assert!((sin.lo - 6.652_502_321_630_299e-18 - (0.841_470_984_807_896_5_f64 - sin.hi)).abs() < 1e-17);
        for angle in [0.0, 1e-9, 0.3, 1.0, 2.5, 3.0, 3.1, -2.0, PI.next_down(), PI, FRAC_PI_2] {
            let (sin, cos) = sin_cos(angle);
            let one = sin * sin + cos * cos - Double::of(1.0);
            assert!(one.hi.abs() < 2_f64.powi(-84), "{angle}: {}", one.hi);
            assert!((sin.hi - angle.sin()).abs() <= 2e-16 && (cos.hi - angle.cos()).abs() <= 2e-16);
        }
        // The double next to pi is pi less 1.2246467991473532e-16 (and 2.9e-33).
        let below = PI - PI.next_down() + 1.224_646_799_147_353_2e-16;
        assert!((sin_cos(PI.next_down()).0.hi / below - 1.0).abs() < 1e-9);
        assert!(sin_cos(4.0).0.hi.is_nan() && sin_cos(f64::INFINITY).0.hi.is_nan());
    }

    #[test]
    fn inverses_and_solutions_are_what_they_say() {
        let n = 9;
        let lower =
            Matrix::from_fn(n, n, |i, j| if j <= i { value(i * n + j) + Double::of(2.0) } else { Double::default() });
        let full = Matrix::from_fn(n, n, |i, j| value(5 * i + 11 * j) + Double::of(if i == j { 3.0 } else { 0.0 }));
        let identity = Matrix::identity(n);
        let near = |a: &Matrix, b: &Matrix| a.combined(b, |a, b| a - b).moduli().norm_max();
        assert!(near(&lower.times(&lower.inverse_of_lower()), &identity) < 1e-24);
        assert!(near(&full.times(&full.solve(&identity)), &identity) < 1e-28);
        let gram = full.times_symmetric(&full.transposed());
        assert!(near(&gram, &full.times(&full.transposed())) < 1e-30);
        assert!(gram.clone().has_positive_pivots());
        // Positive definite to 1e-25, and not quite.
        let singular = Matrix::from_fn(2, 2, |i, j| Double::of(1.0) + Double::of(if i + j == 2 { 1e-25 } else { 0.0 }));
        assert!(singular.has_positive_pivots());
        let singular = Matrix::from_fn(2, 2, |i, j| Double::of(1.0) - Double::of(if i + j == 2 { 1e-25 } else { 0.0 }));
        assert!(!singular.has_positive_pivots());
        assert!(!Matrix::from_fn(1, 1, |_, _| Double::of(f64::NAN)).has_positive_pivots());
    }
}
