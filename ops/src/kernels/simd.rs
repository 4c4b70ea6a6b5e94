//! Vectors of floats, written once for `f32` and `f64` and compiled for every instruction set.
//!
//! Two styles live side by side. Where registers must be managed (matrix products, reductions) kernels use [`Real`]'s
//! explicit vectors. Element-wise loops are plain Rust over slices, called through [`vectorized`], so that the compiler
//! vectorises them for the instruction set found at run time.

use super::elementary::Elementary;
use hankel_fft::Planned;
use pulp::{Arch, Simd, WithSimd};
use std::sync::atomic::{AtomicU8, Ordering};

/// `f32` or `f64` with their vectors. All operations are lane by lane; `mul_add` is fused wherever the processor can.
pub trait Real: Elementary + Planned {
    /// A register of this type.
    type Vector<S: Simd>: Copy + Send + Sync + bytemuck::Pod;

    /// Elements in a register.
    fn lanes<S: Simd>() -> usize {
        size_of::<Self::Vector<S>>() / size_of::<Self>()
    }
    /// Every lane `x`.
    fn splat<S: Simd>(simd: S, x: Self) -> Self::Vector<S>;
    /// `a + b`.
    fn vadd<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a * b`.
    fn vmul<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a * b + c`.
    fn vmul_add<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;
    /// The larger of each pair.
    fn vmax<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// Sum of the lanes.
    fn reduce_sum<S: Simd>(simd: S, a: Self::Vector<S>) -> Self;
    /// Maximum of the lanes.
    fn reduce_max<S: Simd>(simd: S, a: Self::Vector<S>) -> Self;
    /// The whole registers of a slice and what is left over.
    fn split<S: Simd>(slice: &[Self]) -> (&[Self::Vector<S>], &[Self]);
    /// As [`Real::split`], mutable.
    fn split_mut<S: Simd>(slice: &mut [Self]) -> (&mut [Self::Vector<S>], &mut [Self]);
}

macro_rules! real {
    ($float:ty, $vector:ident, $splat:ident, $add:ident, $mul:ident, $mul_add:ident, $max:ident, $sum:ident,
     $reduce_max:ident, $split:ident, $split_mut:ident) => {
        impl Real for $float {
            type Vector<S: Simd> = S::$vector;
            #[inline(always)]
            fn splat<S: Simd>(simd: S, x: Self) -> S::$vector {
                simd.$splat(x)
            }
            #[inline(always)]
            fn vadd<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$add(a, b)
            }
            #[inline(always)]
            fn vmul<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$mul(a, b)
            }
            #[inline(always)]
            fn vmul_add<S: Simd>(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                simd.$mul_add(a, b, c)
            }
            #[inline(always)]
            fn vmax<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$max(a, b)
            }
            #[inline(always)]
            fn reduce_sum<S: Simd>(simd: S, a: S::$vector) -> Self {
                simd.$sum(a)
            }
            #[inline(always)]
            fn reduce_max<S: Simd>(simd: S, a: S::$vector) -> Self {
                simd.$reduce_max(a)
            }
            #[inline(always)]
            fn split<S: Simd>(slice: &[Self]) -> (&[S::$vector], &[Self]) {
                S::$split(slice)
            }
            #[inline(always)]
            fn split_mut<S: Simd>(slice: &mut [Self]) -> (&mut [S::$vector], &mut [Self]) {
                S::$split_mut(slice)
            }
        }
    };
}

real!(
    f32,
    f32s,
    splat_f32s,
    add_f32s,
    mul_f32s,
    mul_add_e_f32s,
    max_f32s,
    reduce_sum_f32s,
    reduce_max_f32s,
    as_simd_f32s,
    as_mut_simd_f32s
);
real!(
    f64,
    f64s,
    splat_f64s,
    add_f64s,
    mul_f64s,
    mul_add_e_f64s,
    max_f64s,
    reduce_sum_f64s,
    reduce_max_f64s,
    as_simd_f64s,
    as_mut_simd_f64s
);

/// Runs `op` compiled for the best instruction set of this processor.
#[inline]
pub fn dispatch<Op: WithSimd>(op: Op) -> Op::Output {
    match best() {
        #[cfg(target_arch = "x86_64")]
        Arch::V4(simd) => Simd::vectorize(simd, op),
        #[cfg(target_arch = "x86_64")]
        Arch::V3(simd) => Simd::vectorize(simd, op),
        #[cfg(target_arch = "aarch64")]
        Arch::Neon(simd) => Simd::vectorize(simd, op),
        _ => without_vectors(op),
    }
}

/// Runs `op` compiled for the plain instruction set. pulp inlines that where it is called: a call compiles it once.
#[inline(never)]
pub(super) fn without_vectors<Op: WithSimd>(op: Op) -> Op::Output {
    op.with_simd(pulp::Scalar)
}

/// Instruction sets that tests choose between, to run on one processor what others would run. Builds without debug assertions
/// always take the best.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum InstructionSet {
    /// The best of this processor.
    Best = 0,
    /// AVX2 and FMA; the best where there is no x86.
    Avx2 = 1,
    /// No vectors.
    Scalar = 2,
}

static LIMIT: AtomicU8 = AtomicU8::new(0);

/// Restricts all kernels of this process.
#[doc(hidden)]
pub fn limit(set: InstructionSet) {
    LIMIT.store(set as u8, Ordering::Relaxed);
}

/// Whether kernels may use every instruction of this processor.
pub(crate) fn is_unlimited() -> bool {
    !cfg!(debug_assertions) || LIMIT.load(Ordering::Relaxed) == InstructionSet::Best as u8
}

/// The best instruction set of this processor that is allowed.
pub(crate) fn best() -> Arch {
    if cfg!(debug_assertions) {
        match LIMIT.load(Ordering::Relaxed) {
            #[cfg(target_arch = "x86_64")]
            1 => return pulp::x86::V3::try_new().map_or(Arch::Scalar, Arch::V3),
            2 => return Arch::Scalar,
            _ => {}
        }
    }
    Arch::new()
}

/// Whether the processor has the vectors that tiles of matrix products were measured with.
pub(super) fn has_tiles() -> bool {
    cfg!(target_arch = "x86_64") && !matches!(best(), Arch::Scalar)
}

/// Runs a closure with the vector instructions of this processor available to the compiler.
///
/// The closure, closures within it and what they call must be `#[inline(always)]`: code that is not inlined is compiled
/// for the plain instruction set, where a fused multiply-add is a call of the mathematical library.
#[inline]
pub fn vectorized<R>(f: impl FnOnce() -> R) -> R {
    struct Call<F>(F);
    impl<R, F: FnOnce() -> R> WithSimd for Call<F> {
        type Output = R;
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> R {
            (self.0)()
        }
    }
    dispatch(Call(f))
}

/// Asks for elements to be brought to the cache. What lies outside the slice does no harm.
#[inline(always)]
pub fn prefetch<T>(data: &[T], first: usize, count: usize) {
    #[cfg(target_arch = "x86_64")]
    for byte in (0..count * size_of::<T>()).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = data.as_ptr().wrapping_add(first).cast::<i8>().wrapping_add(byte);
        // SAFETY: a prefetch reads nothing and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (data, first, count);
}

/// Sum of `x`, in an order that depends on the length only.
#[inline(always)]
pub fn sum<S: Simd, T: Real>(simd: S, x: &[T]) -> T {
    fold(simd, x, |acc, v| T::vadd(simd, acc, v), |acc, x| acc + x, T::zero(), T::vadd, T::reduce_sum)
}

/// Maximum of `x`, minus infinity when empty.
#[inline(always)]
pub fn max<S: Simd, T: Real>(simd: S, x: &[T]) -> T {
    fold(simd, x, |acc, v| T::vmax(simd, acc, v), T::max, T::neg_infinity(), T::vmax, T::reduce_max)
}

/// Four accumulators of registers, so that additions do not wait for each other; then the tail.
#[inline(always)]
fn fold<S: Simd, T: Real>(
    simd: S,
    x: &[T],
    vector: impl Fn(T::Vector<S>, T::Vector<S>) -> T::Vector<S>,
    scalar: impl Fn(T, T) -> T,
    start: T,
    combine: impl Fn(S, T::Vector<S>, T::Vector<S>) -> T::Vector<S>,
    reduce: impl Fn(S, T::Vector<S>) -> T,
) -> T {
    let (body, tail) = T::split::<S>(x);
    let start_vector = T::splat(simd, start);
    let mut acc = [start_vector; 4];
    let (fours, rest) = body.as_chunks::<4>();
    for four in fours {
        for (acc, &v) in acc.iter_mut().zip(four) {
            *acc = vector(*acc, v);
        }
    }
    for (acc, &v) in acc.iter_mut().zip(rest) {
        *acc = vector(*acc, v);
    }
    let total = reduce(simd, combine(simd, combine(simd, acc[0], acc[1]), combine(simd, acc[2], acc[3])));
    tail.iter().fold(total, |acc, &x| scalar(acc, x))
}

/// Inner product of two slices of equal length, in an order that depends on the length only.
#[inline(always)]
pub fn dot<S: Simd, T: Real>(simd: S, x: &[T], y: &[T]) -> T {
    debug_assert_eq!(x.len(), y.len());
    let (x_body, x_tail) = T::split::<S>(x);
    let (y_body, y_tail) = T::split::<S>(y);
    let mut acc = [T::splat(simd, T::zero()); 4];
    let (x_fours, x_rest) = x_body.as_chunks::<4>();
    let (y_fours, y_rest) = y_body.as_chunks::<4>();
    for (x, y) in x_fours.iter().zip(y_fours) {
        for i in 0..4 {
            acc[i] = T::vmul_add(simd, x[i], y[i], acc[i]);
        }
    }
    for ((acc, &x), &y) in acc.iter_mut().zip(x_rest).zip(y_rest) {
        *acc = T::vmul_add(simd, x, y, *acc);
    }
    let total = T::reduce_sum(simd, T::vadd(simd, T::vadd(simd, acc[0], acc[1]), T::vadd(simd, acc[2], acc[3])));
    x_tail.iter().zip(y_tail).fold(total, |acc, (&x, &y)| acc + x * y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sum, maximum and inner product, with the vectors of this processor.
    struct All<'a, T>(&'a [T], &'a [T]);
    impl<T: Real> WithSimd for All<'_, T> {
        type Output = [f64; 3];
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> [f64; 3] {
            [sum(simd, self.0), max(simd, self.0), dot(simd, self.0, self.1)].map(T::f64)
        }
    }

    fn checks<T: Real>(x: &[f64], y: &[f64]) -> Result<(), TestCaseError> {
        let (x, y): (Vec<T>, Vec<T>) = x.iter().zip(y).map(|(&x, &y)| (T::of(x), T::of(y))).unzip();
        let found = dispatch(All(&x, &y));
        let wide = |x: &T| x.f64();
        let expected = [
            x.iter().map(wide).sum(),
            x.iter().map(wide).fold(f64::NEG_INFINITY, f64::max),
            x.iter().zip(&y).map(|(x, y)| x.f64() * y.f64()).sum::<f64>(),
        ];
        let tolerance = T::epsilon().f64() * (x.len() as f64 + 1.0).powi(2);
        for (found, expected) in found.into_iter().zip(expected) {
            prop_assert!(found == expected || (found - expected).abs() <= tolerance, "{found} for {expected}");
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn reductions(pairs in prop::collection::vec((-1.0..1.0, -1.0..1.0), 0..300)) {
            let (x, y): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            checks::<f32>(&x, &y)?;
            checks::<f64>(&x, &y)?;
        }
    }
}
