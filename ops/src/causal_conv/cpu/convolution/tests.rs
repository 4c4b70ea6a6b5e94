use super::*;
use crate::scan::cpu::recurrence::{Evaluation, Modes, scan};
use hankel_core::Random;
use proptest::prelude::*;

fn normal<T: Real>(len: usize, name: &str) -> Vec<T> {
    let random = Random::new(1, name, 0);
    (0..len as u64).map(|i| T::of(f64::from(random.normal(i) as f32))).collect()
}

/// NaN where an element is, as one that was never written.
fn error<T: Real>(found: &[T], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1e-30, |a: f64, b| a.max(b.abs()));
    found.iter().zip(expected).map(|(a, b)| (a.f64() - b).abs()).max_by(f64::total_cmp).unwrap_or(0.0) / scale
}

/// The definition, in doubles.
fn oracle(direction: Direction, kernels: &[f64], [batch, tokens, channels]: [usize; 3], u: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; u.len()];
    for b in 0..batch {
        for c in 0..channels {
            for t in 0..tokens {
                for k in 0..tokens {
                    let from = if direction == Direction::Forward { t.checked_sub(k) } else { Some(t + k) };
                    if let Some(from) = from.filter(|&from| from < tokens) {
                        let element = kernels[c * tokens + k] * u[(b * tokens + from) * channels + c];
                        out[(b * tokens + t) * channels + c] += element;
                    }
                }
            }
        }
    }
    out
}

fn agrees<T: Real>(direction: Direction, sizes: [usize; 3], tolerance: f64) -> Result<(), TestCaseError> {
    let [batch, tokens, channels] = sizes;
    let n = batch * tokens * channels;
    let expected = oracle(direction, &normal::<f64>(channels * tokens, "kernel"), sizes, &normal::<f64>(n, "u"));
    let spectra = Spectra::of_kernels(&normal::<T>(channels * tokens, "kernel"), tokens);
    let mut out = vec![T::nan(); n];
    convolve(direction, &spectra, &normal::<T>(n, "u"), None, &mut out);
    let error = error(&out, &expected);
    prop_assert!(error < tolerance, "error {error}");
    Ok(())
}

proptest! {
    #[test]
    fn general_kernels(batch in 0_usize..4, tokens in 0_usize..80, channels in 0_usize..20, backwards: bool) {
        let direction = if backwards { Direction::Backward } else { Direction::Forward };
        agrees::<f32>(direction, [batch, tokens, channels], 1e-5)?;
        agrees::<f64>(direction, [batch, tokens, channels], 1e-12)?;
    }

    #[test]
    fn the_gradient_of_a_kernel_is_a_correlation(batch in 0_usize..4, tokens in 1_usize..50, channels in 1_usize..10) {
        let n = batch * tokens * channels;
        let (u, g) = (normal::<f64>(n, "u"), normal::<f64>(n, "g"));
        let mut found = vec![f64::NAN; channels * tokens];
        kernel_gradient(channels, tokens, &u, &g, &mut found);
        for c in 0..channels {
            for k in 0..tokens {
                let at = |b: usize, t: usize| (b * tokens + t) * channels + c;
                let terms = (0..batch).flat_map(|b| (k..tokens).map(move |t| (b, t)));
                let expected: f64 = terms.map(|(b, t)| g[at(b, t)] * u[at(b, t - k)]).sum();
                prop_assert!((found[c * tokens + k] - expected).abs() < 1e-11 * (1.0 + expected.abs()));
            }
        }
    }
}

/// Real poles and pairs, time scales from a few steps to ten thousand, exact in `f32`.
fn modes<T: Real>(real: usize, pairs: usize) -> (Vec<T>, Vec<[T; 2]>) {
    let random = Random::new(5, "modes", 0);
    let radius = |i: u64| 1.0 - 10.0_f64.powf(-0.3 - 3.7 * random.uniform(i));
    let single = |x: f64| T::of(f64::from(x as f32));
    let pair = |i: u64| {
        let angle = std::f64::consts::PI * random.uniform(1000 + i);
        [single(radius(i) * angle.cos()), single(radius(i) * angle.sin())]
    };
    ((0..real as u64).map(|i| single(radius(500 + i))).collect(), (0..pairs as u64).map(pair).collect())
}

fn equals_recurrence<T: Real>(batch: usize, tokens: usize, direction: Direction, tolerance: f64) {
    let (real, pairs) = modes::<f64>(11, 9);
    let exact = Modes { real: &real, pairs: &pairs };
    let dim = exact.state_dim();
    let n = batch * tokens * dim;
    let mut expected = vec![0.0; n];
    scan(Evaluation::Sequential, direction, exact, tokens, &normal::<f64>(n, "u"), None, &mut expected);
    let (real, pairs) = modes::<T>(11, 9);
    let spectra = Spectra::of_modes(Modes { real: &real, pairs: &pairs }, tokens, direction);
    let mut out = vec![T::nan(); n];
    convolve(direction, &spectra, &normal::<T>(n, "u"), None, &mut out);
    let error = error(&out, &expected);
    assert!(error < tolerance, "{tokens} tokens, {direction:?}: {error}");
}

#[test]
fn powers_of_the_poles_give_the_recurrence_within_r3() {
    for tokens in [1, 2, 3, 100, 512, 1000, 1024, 2048, 4096] {
        for direction in [Direction::Forward, Direction::Backward] {
            equals_recurrence::<f32>(3, tokens, direction, 1e-5);
            equals_recurrence::<f64>(2, tokens, direction, 1e-12);
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let (u, kernel) = (normal::<f32>(5 * 100 * 19, "u"), normal::<f32>(19 * 100, "kernel"));
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let (mut out, mut d_kernel) = (vec![0.0; u.len()], vec![0.0; kernel.len()]);
            convolve(Direction::Forward, &Spectra::of_kernels(&kernel, 100), &u, None, &mut out);
            kernel_gradient(19, 100, &u, &out, &mut d_kernel);
            (out, d_kernel)
        })
    };
    assert!(run(1) == run(2) && run(1) == run(7));
}
