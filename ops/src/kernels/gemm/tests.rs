use super::*;
use proptest::prelude::*;

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

fn matches<T: Real>(m: usize, k: usize, n: usize, layout: u8, how: u8, gap: usize) -> Result<(), TestCaseError> {
    let a_data = values::<T>((m + gap) * (k + gap), 1);
    let b_data = values::<T>((n + gap) * (k + gap), 2);
    let a =
        if layout & 1 == 0 { Mat::strided(&a_data, m, k, k + gap) } else { Mat::strided(&a_data, k, m, m + gap).t() };
    let b =
        if layout & 2 == 0 { Mat::strided(&b_data, k, n, n + gap) } else { Mat::strided(&b_data, n, k, k + gap).t() };
    let bias = values::<T>(n, 3);
    let how = match how {
        0 => Accumulate::Overwrite,
        1 => Accumulate::Add,
        _ => Accumulate::Bias(&bias),
    };
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
        m in 0_usize..70, k in 0_usize..80, n in 0_usize..80, layout in 0_u8..4, how in 0_u8..3, gap in 0_usize..3,
    ) {
        matches::<f32>(m, k, n, layout, how, gap)?;
        matches::<f64>(m, k, n, layout, how, gap)?;
    }
}

#[test]
fn every_plan_agrees_with_the_definition() {
    for layout in 0..4 {
        for how in 0..3 {
            // Shared panels, several blocks of k; a long sum; a right factor that each task packs.
            for (m, k, n) in [(300, K_BLOCK + 37, 49), (33, 2 * K_CHUNK + 5, 17), (130, 700, 600)] {
                matches::<f32>(m, k, n, layout, how, 1).unwrap();
                matches::<f64>(m, k, n, layout, how, 0).unwrap();
            }
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for (m, k, n) in [(1000, 128, 65), (40, 3 * K_CHUNK, 32), (200, 600, 700)] {
        let (a, b) = (values::<f32>(m * k, 5), values::<f32>(k * n, 6));
        let product = |threads| {
            let mut out = vec![0.0; m * n];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                gemm(1.0, Mat::new(&a, m, k), &Mat::new(&b, k, n), Accumulate::Overwrite, &mut out, n);
            });
            out
        };
        let one = product(1);
        for threads in [2, 3, 8] {
            assert!(product(threads) == one);
        }
    }
}
