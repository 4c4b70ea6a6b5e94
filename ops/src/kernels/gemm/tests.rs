use super::*;
use proptest::prelude::*;

/// [`gemm`] in one piece, on the calling thread.
fn gemm_serial<T: Real, B: Factor<T>>(
    alpha: T,
    a: Mat<T>,
    b: &B,
    how: Accumulate<T>,
    out: &mut [T],
    out_stride: usize,
) {
    let [m, k, n] = check([a.rows, a.cols], b, how, out, out_stride);
    if m == 0 || n == 0 {
        return;
    }
    let panels = b.panels(0..k, k_block(k), 0..n);
    multiply::<T, B>(alpha, &b.left(a), m, 0..k, &panels, n, how, out, out_stride);
}

/// The definition, in f64.
fn oracle<T: Real>(alpha: T, a: Mat<T>, b: Mat<T>, how: Accumulate<T>, out: &[T], stride: usize) -> Vec<f64> {
    let mut expected: Vec<f64> = out.iter().map(|x| x.f64()).collect();
    for i in 0..a.rows() {
        for j in 0..b.cols() {
            let sum: f64 = (0..a.cols()).map(|p| a.at(i, p).f64() * b.at(p, j).f64()).sum();
            let base = match how {
                Accumulate::Overwrite => 0.0,
                Accumulate::Add => out[i * stride + j].f64(),
                Accumulate::Bias(bias) => bias[j].f64(),
                Accumulate::Onto(base, bias) => base.at(i, j).f64() + bias.map_or(0.0, |bias| bias[j].f64()),
            };
            expected[i * stride + j] = base + alpha.f64() * sum;
        }
    }
    expected
}

fn values<T: Real>(len: usize, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            T::of((state >> 33) as f64 / f64::from(1_u32 << 30) - 1.0)
        })
        .collect()
}

/// Every way to accumulate.
fn ways<'a, T: Copy>(bias: &'a [T], base: Mat<'a, T>) -> [Accumulate<'a, T>; 5] {
    [
        Accumulate::Overwrite,
        Accumulate::Add,
        Accumulate::Bias(bias),
        Accumulate::Onto(base, None),
        Accumulate::Onto(base, Some(bias)),
    ]
}

fn matches<T: Real>(m: usize, k: usize, n: usize, layout: u8, how: u8, gap: usize) -> Result<(), TestCaseError> {
    let a_data = values::<T>((m + gap) * (k + gap), 1);
    let b_data = values::<T>((n + gap) * (k + gap), 2);
    let a =
        if layout & 1 == 0 { Mat::strided(&a_data, m, k, k + gap) } else { Mat::strided(&a_data, k, m, m + gap).t() };
    let b =
        if layout & 2 == 0 { Mat::strided(&b_data, k, n, n + gap) } else { Mat::strided(&b_data, n, k, k + gap).t() };
    let (bias, base) = (values::<T>(n, 3), values::<T>(m * (n + 2 * gap), 5));
    let how = ways(&bias, Mat::strided(&base, m, n, n + 2 * gap))[usize::from(how)];
    let alpha = T::of(0.75);
    let before = values::<T>(m * (n + gap), 4);
    let expected = oracle(alpha, a, b, how, &before, n + gap);
    let tolerance = 4.0 * T::epsilon().f64() * (k as f64 + 4.0);
    for parallel in [false, true] {
        let mut out = before.clone();
        if parallel {
            gemm(alpha, a, &b, how, &mut out, n + gap);
        } else {
            gemm_serial(alpha, a, &b, how, &mut out, n + gap);
        }
        for (i, (&found, &expected)) in out.iter().zip(&expected).enumerate() {
            prop_assert!((found.f64() - expected).abs() <= tolerance, "element {i}: {found} for {expected}");
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn agrees_with_the_definition(
        m in 0_usize..70, k in 0_usize..80, n in 0_usize..80, layout in 0_u8..4, how in 0_u8..5, gap in 0_usize..3,
    ) {
        matches::<f32>(m, k, n, layout, how, gap)?;
        matches::<f64>(m, k, n, layout, how, gap)?;
    }
}

#[test]
fn every_plan_agrees_with_the_definition() {
    for layout in 0..4 {
        for how in 0..5 {
            // Shared panels, several blocks of k; a long sum; a right factor that each task packs.
            for (m, k, n) in [(300, K_BLOCK + 37, 49), (33, 2 * K_CHUNK + 5, 17), (130, 700, 600)] {
                matches::<f32>(m, k, n, layout, how, 1).unwrap();
                matches::<f64>(m, k, n, layout, how, 0).unwrap();
            }
        }
    }
}

/// Products that are cut in every way give the bits of one thread: each element is summed up in the same blocks.
fn is_the_same_however_cut<T: Real, B: Factor<T>>(a: Mat<T>, b: &B) {
    let (m, n) = (a.rows(), b.cols());
    let (left, size) = (b.left(a), [m, a.cols(), n]);
    let (bias, base) = (values::<T>(n, 3), values::<T>(m * n, 5));
    for how in ways(&bias, Mat::new(&base, m, n)) {
        let before = values::<T>(m * n, 4);
        let product = |run: &dyn Fn(&mut [T])| {
            let mut out = before.clone();
            run(&mut out);
            out
        };
        let alpha = T::of(0.75);
        let expected = product(&|out| gemm_serial(alpha, a, b, how, out, n));
        for cols in TASK_COLS {
            assert!(product(&|out| apart(alpha, &left, size, b, how, out, n, cols)) == expected);
        }
        for most in [1, 700 * n, SHARED] {
            assert!(product(&|out| shared(alpha, &left, size, b, how, out, n, most)) == expected, "{most}");
        }
    }
}

#[test]
fn how_a_product_is_cut_changes_no_bit() {
    for (m, k, n) in [(150, 1100, 330), (70, 513, 65), (1, 40, 600)] {
        for transposed in [false, true] {
            let (a, b) = (values::<f32>(m * k, 5), values::<f32>(k * n, 6));
            let right = if transposed { Mat::new(&b, n, k).t() } else { Mat::new(&b, k, n) };
            is_the_same_however_cut(Mat::new(&a, m, k), &right);
            is_the_same_however_cut(Mat::new(&a, k, m).t(), &right);
            let (wide_a, wide_b) = (values::<f64>(m * k, 5), values::<f64>(k * n, 6));
            is_the_same_however_cut(Mat::new(&wide_a, m, k), &Mat::new(&wide_b, k, n));
            #[cfg(target_arch = "x86_64")]
            in_bf16::with(&b, k, n, transposed, |b| is_the_same_however_cut(Mat::new(&a, m, k), b));
        }
    }
}

#[test]
fn sums_of_nothing() {
    for layout in 0..4 {
        for how in 0..3 {
            for gap in [0, 1] {
                matches::<f32>(70, 0, 100, layout, how, gap).unwrap();
                #[cfg(target_arch = "x86_64")]
                in_bf16::matches_rounded(70, 0, 100, layout, how, gap).unwrap();
            }
        }
    }
}

#[test]
#[should_panic(expected = "needs more elements")]
fn a_matrix_too_large_to_be_counted() {
    Mat::<f32>::new(&[], 1 << 62, 4);
}

/// The same bits from any number of threads.
fn is_the_same_in_parallel<T: Real, B: Factor<T>>(a: Mat<T>, b: &B) {
    let product = |threads| {
        let mut out = vec![T::zero(); a.rows() * b.cols()];
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| gemm(T::one(), a, b, Accumulate::Overwrite, &mut out, b.cols()));
        out
    };
    let one = product(1);
    for threads in [2, 3, 8] {
        assert!(product(threads) == one);
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for (m, k, n) in [(1000, 128, 65), (40, 3 * K_CHUNK, 32), (200, 600, 700)] {
        let (a, b) = (values::<f32>(m * k, 5), values::<f32>(k * n, 6));
        is_the_same_in_parallel(Mat::new(&a, m, k), &Mat::new(&b, k, n));
        let (wide_a, wide_b) = (values::<f64>(m * k, 5), values::<f64>(k * n, 6));
        is_the_same_in_parallel(Mat::new(&wide_a, m, k), &Mat::new(&wide_b, k, n));
        #[cfg(target_arch = "x86_64")]
        in_bf16::with(&b, k, n, false, |b| is_the_same_in_parallel(Mat::new(&a, m, k), b));
    }
}

#[cfg(target_arch = "x86_64")]
mod in_bf16 {
    use super::bf16::{Bf16Factor, Bf16Source, DotProducts};
    use super::*;

    pub(super) struct Plain<'a>(&'a [f32]);

    impl Bf16Source for Plain<'_> {
        #[inline(always)]
        fn decode(&self, dot: DotProducts, first: usize, out: &mut [u16]) {
            dot.round(&self.0[first..][..out.len()], out);
        }
    }

    /// Calls `f` with the factor `[k, n]`, or its transpose in memory, for every way in which this processor can multiply by it.
    pub(super) fn with(data: &[f32], k: usize, n: usize, transposed: bool, mut f: impl FnMut(&Bf16Factor<Plain>)) {
        let (rows, cols) = if transposed { (n, k) } else { (k, n) };
        for dot in [DotProducts::detect(), DotProducts::detect_without_matrix_unit()].into_iter().flatten() {
            f(&Bf16Factor { source: &Plain(data), rows, cols, transposed, dot });
        }
    }

    fn rounded(x: f32) -> f32 {
        half::bf16::from_f32(x).to_f32()
    }

    /// Against sums of rounded operands: they are exact in f64 but for 2^-53, ours are rounded `k` times.
    pub fn matches_rounded(m: usize, k: usize, n: usize, layout: u8, how: u8, gap: usize) -> Result<(), TestCaseError> {
        let a_data = values::<f32>((m + gap) * (k + gap), 1);
        let b_data = values::<f32>(n * k, 2);
        let transposed = layout & 1 == 1;
        let a = if layout & 2 == 0 {
            Mat::strided(&a_data, m, k, k + gap)
        } else {
            Mat::strided(&a_data, k, m, m + gap).t()
        };
        let (bias, base) = (values::<f32>(n, 3), values::<f32>(m * (n + 2 * gap), 5));
        let how = ways(&bias, Mat::strided(&base, m, n, n + 2 * gap))[usize::from(how)];
        let before = values::<f32>(m * (n + gap), 4);
        let (a_rounded, b_rounded): (Vec<f32>, Vec<f32>) =
            (a_data.iter().map(|&x| rounded(x)).collect(), b_data.iter().map(|&x| rounded(x)).collect());
        let b = if transposed { Mat::new(&b_rounded, n, k).t() } else { Mat::new(&b_rounded, k, n) };
        let expected = oracle(0.75, a.with_data(&a_rounded), b, how, &before, n + gap);
        // Magnitudes are at most 1.
        let tolerance = f64::from(f32::EPSILON) * (k as f64 + 4.0);
        for parallel in [false, true] {
            let mut outcome = Ok(());
            with(&b_data, k, n, transposed, |b| {
                let mut out = before.clone();
                if parallel {
                    gemm(0.75, a, b, how, &mut out, n + gap);
                } else {
                    gemm_serial(0.75, a, b, how, &mut out, n + gap);
                }
                // Not a number is wrong, too.
                let is_right = |(&found, &expected): (&f32, &f64)| (f64::from(found) - expected).abs() <= tolerance;
                let wrong = out.iter().zip(&expected).position(|pair| !is_right(pair));
                if let Some(i) = wrong {
                    let message = format!("element {i}: {} for {}, {m} x {k} x {n}", out[i], expected[i]);
                    outcome = Err(TestCaseError::fail(message));
                }
            });
            outcome?;
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(
            m in 0_usize..40, k in 0_usize..70, n in 0_usize..70, layout in 0_u8..4, how in 0_u8..5, gap in 0_usize..3,
        ) {
            matches_rounded(m, k, n, layout, how, gap)?;
        }

        #[test]
        fn rounds_as_the_type(values in prop::collection::vec(prop::num::f32::NORMAL | prop::num::f32::ZERO, 0..70)) {
            let mut found = vec![0; values.len()];
            if let Some(dot) = DotProducts::detect() {
                dot.vectorized(|| dot.round(&values, &mut found));
                for (found, x) in found.iter().zip(values) {
                    prop_assert_eq!(*found, half::bf16::from_f32(x).to_bits());
                }
            }
        }
    }

    #[test]
    fn every_plan_agrees_with_the_definition() {
        for layout in 0..4 {
            for (m, k, n) in [(70, 2 * K_BLOCK + 37, 49), (40, 2 * K_CHUNK + 5, 17), (66, 700, 401)] {
                for how in 0..5 {
                    matches_rounded(m, k, n, layout, how, 1).unwrap();
                }
            }
        }
    }
}
