//! Percentile intervals of the bootstrap (Efron, 1979), the same numbers every time.

use crate::units::Unit;
use hankel_core::Random;

/// Resamples.
const RESAMPLES: u64 = 10_000;
const SEED: u64 = 0x4841_4e4b_454c;

/// Interval that holds the middle `confidence` of the means of resamples of a unit, drawn at every level: a hierarchical bootstrap (A. C. Davison and
/// D. V. Hinkley, Bootstrap Methods and Their Application, 1997, section 3.8).
pub(crate) fn interval(unit: &Unit, confidence: f64) -> (f64, f64) {
    let random = Random::new(SEED, "bootstrap", 0);
    let mut index = 0;
    let mut below = |n: usize| {
        index += 1;
        random.below(index - 1, n)
    };
    let mut means: Vec<f64> = (0..RESAMPLES).map(|_| unit.resampled_mean(&mut below)).collect();
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

    fn mean_interval(values: &[f64], confidence: f64) -> (f64, f64) {
        interval(&Unit::Within(values.iter().map(|value| Unit::Figures(vec![*value])).collect()), confidence)
    }

    /// Two tables of a hundred seeds each: what is not known is the table. As 200 seeds the interval would be a tenth of that.
    #[test]
    fn many_seeds_do_not_make_up_for_few_tables() {
        let seeds = |mean: f64| (0..100).map(|i| Unit::Figures(vec![mean + 0.01 * f64::from(i % 10)])).collect();
        let (low, high) = interval(&Unit::Within(vec![Unit::Within(seeds(0.0)), Unit::Within(seeds(1.0))]), 0.95);
        assert!((low - 0.045).abs() < 0.01 && (high - 1.045).abs() < 0.01, "{low} {high}");
        let flat: Vec<f64> = (0..200).map(|i| f64::from(i / 100) + 0.01 * f64::from(i % 10)).collect();
        let (low, high) = mean_interval(&flat, 0.95);
        assert!(high - low < 0.2, "{low} {high}");
    }

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
