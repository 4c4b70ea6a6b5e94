//! Kernels over rows of logits.

use crate::kernels::Real;
use crate::kernels::elementary::Elementary;
use crate::kernels::simd::{self, dispatch, vectorized};
use hankel_core::parallel;
use pulp::{Simd, WithSimd};

/// The parts of a loss that every row shares.
pub struct Settings<'a, T> {
    pub tokens: &'a [u32],
    pub weights: &'a [T],
    pub smoothing: T,
    pub scale: T,
    pub gradient: bool,
}

/// The weighted loss of some rows, which are replaced by its gradient when that is wanted.
pub fn rows<T: Real + Elementary>(first: usize, classes: usize, settings: &Settings<T>, logits: &mut [T]) -> f64 {
    /// Rows of a task.
    const ROWS: usize = 16;
    let mut losses = vec![0.0; logits.len() / classes.max(1)];
    let row_loss = |i: usize, row: &mut [T]| -> f64 {
        let (target, weight) = (settings.tokens[first + i] as usize, settings.weights[first + i] * settings.scale);
        if weight == T::zero() {
            row.fill(T::zero());
            return 0.0;
        }
        let (log_sum, sum) = log_sum_exp(row);
        let nll = log_sum - row[target].f64();
        let smoothing = settings.smoothing.f64();
        // A class of no probability makes the mean over all infinite, which counts only where it is asked for.
        let even = if smoothing > 0.0 { log_sum - sum / classes as f64 } else { 0.0 };
        let loss = (1.0 - smoothing) * nll + smoothing * even;
        if settings.gradient {
            let (log_sum, share) = (T::of(log_sum), settings.smoothing / T::of(classes as f64));
            vectorized(
                #[inline(always)]
                || gradient(row, log_sum, share, weight),
            );
            row[target] -= (T::one() - settings.smoothing) * weight;
        }
        weight.f64() * loss
    };
    parallel::for_paired_chunks((logits, ROWS * classes), (&mut losses, ROWS), |task, logits, losses| {
        for (i, (row, loss)) in logits.chunks_mut(classes).zip(losses).enumerate() {
            *loss = row_loss(task * ROWS + i, row);
        }
    });
    losses.iter().sum()
}

/// Replaces logits by `(softmax - share) weight`.
#[inline(always)]
fn gradient<T: Elementary>(row: &mut [T], log_sum: T, share: T, weight: T) {
    for z in row {
        *z = ((*z - log_sum).vexp() - share) * weight;
    }
}

/// Scores of one token.
pub struct Score {
    pub nll: f64,
    pub mean_nll: f64,
    pub predicted: u32,
}

/// Scores of some rows.
pub fn scores<T: Real + Elementary>(tokens: &[u32], classes: usize, logits: &[T]) -> Vec<Score> {
    let score = |i: usize| {
        let (row, target) = (&logits[i * classes..][..classes], tokens[i]);
        let (log_sum, sum) = log_sum_exp(row);
        let best = (0..classes).fold(0, |best, i| if row[i] > row[best] { i } else { best });
        let nll = log_sum - row[target as usize].f64();
        Score { nll, mean_nll: log_sum - sum / classes as f64, predicted: best as u32 }
    };
    parallel::collect(logits.len() / classes.max(1), score)
}

/// `ln sum exp z` and `sum z`.
fn log_sum_exp<T: Real + Elementary>(row: &[T]) -> (f64, f64) {
    struct Sums<'a, T>(&'a [T]);
    impl<T: Real + Elementary> WithSimd for Sums<'_, T> {
        type Output = (f64, f64);
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> (f64, f64) {
            let top = simd::max(simd, self.0);
            let mut lanes = [T::zero(); 16];
            for z in self.0.chunks(16) {
                for (sum, &z) in lanes.iter_mut().zip(z) {
                    *sum += (z - top).vexp();
                }
            }
            let total = lanes.into_iter().fold(T::zero(), |sum, x| sum + x);
            (top.f64() + total.f64().ln(), simd::sum(simd, self.0).f64())
        }
    }
    dispatch(Sums(row))
}
