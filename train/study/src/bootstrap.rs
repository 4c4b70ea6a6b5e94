//! Percentile intervals of the bootstrap (Efron, 1979), the same numbers every time.

use hankel_core::Random;

/// Resamples.
const RESAMPLES: u64 = 10_000;
const SEED: u64 = 0x4841_4e4b_454c;

/// Interval that holds the middle `confidence` of the means of resamples of `values`, which must not be empty.
///
/// # Panics
/// With no values.
pub(crate) fn mean_interval(values: &[f64], confidence: f64) -> (f64, f64) {
    let n = values.len();
    assert!(n > 0, "a resample needs values");
    let random = Random::new(SEED, "bootstrap", 0);
    let mean = |draw: u64| (0..n as u64).map(|i| values[random.below(draw * n as u64 + i, n)]).sum::<f64>() / n as f64;
    let mut means: Vec<f64> = (0..RESAMPLES).map(mean).collect();
    means.sort_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    (quantile(&means, tail), quantile(&means, 1.0 - tail))
}

/// Quantile of sorted values, by linear interpolation.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (low, rest) = (at.floor() as usize, at.fract());
    let next = sorted[(low + 1).min(sorted.len() - 1)];
    sorted[low] + rest * (next - sorted[low])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let sorted = [0.0, 1.0, 2.0, 3.0];
        assert_eq!((quantile(&sorted, 0.0), quantile(&sorted, 0.5), quantile(&sorted, 1.0)), (0.0, 1.5, 3.0));
    }

    /// For 200 values the interval is close to that of the normal distribution, mean ± 1.96 sd / sqrt(n), and it is deterministic.
    #[test]
    fn large_samples_are_normal() {
        let values: Vec<f64> = (0..200).map(|i| f64::from(i % 20)).collect();
        let (low, high) = mean_interval(&values, 0.95);
        let reach = 1.96 * (399.0_f64 / 12.0).sqrt() / 200_f64.sqrt();
        assert!((low - (9.5 - reach)).abs() < 0.05 && (high - (9.5 + reach)).abs() < 0.05, "{low} {high}");
        assert_eq!((low, high), mean_interval(&values, 0.95));
    }

    /// All 27 resamples of three values: the extreme ones have probability 1/27 each, more than 2.5 %.
    #[test]
    fn three_values_reach_from_the_least_to_the_largest() {
        assert_eq!(mean_interval(&[1.0, 2.0, 4.0], 0.95), (1.0, 4.0));
    }
}
