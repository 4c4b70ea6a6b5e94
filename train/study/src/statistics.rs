//! What several runs say together: means and deviations over seeds, and differences between pairs of runs that share everything
//! but the adapter, with intervals.
//!
//! Pairs are runs of the same seed, data and table, so what varies between cells cancels and few of them suffice. Two intervals of
//! 95 % are computed for a mean: that of Student's t, exact for normal differences and honest about few of them, by which claims are
//! judged; and a bootstrap (percentiles), which assumes no distribution but cannot be wider than the sample, so that
//! with three runs it is too narrow.

use crate::units::Unit;
use statrs::distribution::{ContinuousCDF, DiscreteCDF, Hypergeometric, StudentsT};
use statrs::function::gamma::ln_gamma;

/// Probability that an interval covers the mean.
pub(crate) const CONFIDENCE: f64 = 0.95;
/// Deviation of values beside their mean that is rounding.
const ROUNDING: f64 = 1e-12;

/// Number, mean and deviation of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Number of values.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, with `n - 1`; absent for a single value.
    pub sd: Option<f64>,
}

impl Summary {
    /// Of finite values; `None` when there is none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        Some(Summary { n, mean, sd: (n > 1).then(|| (squares / (n - 1) as f64).sqrt()) })
    }
}

/// The mean of a sample with its uncertainty: of paired differences, or of any figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The sample.
    pub summary: Summary,
    /// Interval of Student's t for the mean.
    pub interval: (f64, f64),
    /// Student's t of the mean against a limit; infinite when all values are the same, but for rounding, and not that.
    pub t: f64,
    /// Two-sided probability of such a t when the true mean is the limit; of values that are all the same, that of a sign test.
    pub p: f64,
    /// Distance of the mean from the limit over the standard deviation: Cohen's d_z.
    pub cohen_dz: f64,
    /// The same corrected for small samples: Hedges' g_z; absent for two values, where it does not exist.
    pub hedges_g: Option<f64>,
}

impl Estimate {
    /// Of at least two finite values, tested against 0; `None` with fewer, since one run has no uncertainty to tell.
    pub fn of(values: &[f64]) -> Option<Self> {
        Self::against(values, 0.0)
    }

    /// Of at least two finite values, tested against `limit`.
    pub fn against(values: &[f64], limit: f64) -> Option<Self> {
        let finite = values.iter().copied().filter(|value| value.is_finite());
        Self::of_units(&Unit::Within(finite.map(|value| Unit::Figures(vec![value])).collect()), limit)
    }

    /// Of the units within `unit`, at least two: Student's t takes the mean of each once.
    pub(crate) fn of_units(unit: &Unit, limit: f64) -> Option<Self> {
        let summary = Summary::of(&unit.means())?;
        let sd = summary.sd.filter(|sd| *sd > ROUNDING * summary.mean.abs()).or(summary.sd.map(|_| 0.0))?;
        let degrees = (summary.n - 1) as f64;
        let student = StudentsT::new(0.0, 1.0, degrees).expect("positive degrees of freedom");
        let error = sd / (summary.n as f64).sqrt();
        let reach = student.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * error;
        let distance = summary.mean - limit;
        let (t, p, cohen_dz) = if sd > 0.0 {
            let t = distance / error;
            (t, (2.0 * student.cdf(-t.abs())).min(1.0), distance / sd)
        } else if distance == 0.0 {
            (0.0, 1.0, 0.0)
        } else {
            let sign = distance.signum();
            (sign * f64::INFINITY, all_on_a_side(summary.n), sign * f64::INFINITY)
        };
        Some(Estimate {
            summary,
            interval: (summary.mean - reach, summary.mean + reach),
            t,
            p,
            cohen_dz,
            hedges_g: (summary.n > 2).then(|| cohen_dz * small_sample_correction(degrees)),
        })
    }

    /// Of the differences `a - b` of pairs.
    pub fn paired(pairs: &[(f64, f64)]) -> Option<Self> {
        Self::of(&pairs.iter().map(|(a, b)| a - b).collect::<Vec<_>>())
    }
}

/// The probability that `n` values are all on one side of a limit by chance, whichever side: the two-sided p of a sign test. It is for
/// values that are all the same, whose standard deviation says nothing.
pub(crate) fn all_on_a_side(n: usize) -> f64 {
    0.5_f64.powi(n as i32 - 1)
}

/// Hedges' J for more than one degree of freedom: the exact factor `Γ(m/2) / (sqrt(m/2) Γ((m-1)/2))` (Hedges, 1981).
fn small_sample_correction(degrees: f64) -> f64 {
    (ln_gamma(degrees / 2.0) - ln_gamma((degrees - 1.0) / 2.0) - 0.5 * (degrees / 2.0).ln()).exp()
}

/// `p` values after Holm's correction, in their order: the k-th smallest of m times `m - k + 1`, none below a smaller one's, at most 1
/// (S. Holm, A simple sequentially rejective multiple test procedure, 1979).
pub(crate) fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let (mut corrected, mut largest) = (vec![0.0; p.len()], 0.0_f64);
    for (smaller, &index) in order.iter().enumerate() {
        largest = largest.max((p.len() - smaller) as f64 * p[index]).min(1.0);
        corrected[index] = largest;
    }
    corrected
}

/// One-sided p of Fisher's exact test that the first of two shares, counts of so many each, is larger.
pub(crate) fn fisher((more, of): (usize, usize), (fewer, of_others): (usize, usize)) -> f64 {
    let counted = [of + of_others, more + fewer, of].map(|count| count as u64);
    match (Hypergeometric::new(counted[0], counted[1], counted[2]), more) {
        (Ok(distribution), 1..) => distribution.sf(more as u64 - 1),
        _ => 1.0,
    }
}

/// Slope of the least-squares line through points.
pub(crate) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let (x, y) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let (over, under) =
        points.iter().fold((0.0, 0.0), |(over, under), p| (over + (p.0 - x) * (p.1 - y), under + (p.0 - x).powi(2)));
    (points.len() > 1 && under > 0.0).then(|| over / under)
}

/// For each point its jackknife pseudo-value of the slope, `n s - (n - 1) s'` with `s'` the slope without it: their mean is the slope with its
/// bias taken off, and the standard error of that mean the slope's (J. W. Tukey, 1958). `None` for fewer than four points, or where all but one
/// have the same abscissa.
pub(crate) fn slope_pseudo_values(points: &[(f64, f64)]) -> Option<Vec<f64>> {
    let (n, whole) = (points.len(), slope(points)?);
    let without = |i: usize| slope(&[&points[..i], &points[i + 1..]].concat());
    let values: Option<Vec<f64>> = (0..n).map(|i| Some(n as f64 * whole - (n - 1) as f64 * without(i)?)).collect();
    values.filter(|_| n >= 4)
}

/// Spearman's rank correlation of points, ties with their mean rank: Pearson's correlation of the ranks. 0 where one coordinate is everywhere the
/// same, which tells nothing of the other; `None` for fewer than three points, and where a coordinate is not finite.
pub(crate) fn spearman(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < 3 || points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
        return None;
    }
    let ranks = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        let rank = |own: f64| {
            let below = points.iter().filter(|point| of(point) < own).count();
            let equal = points.iter().filter(|point| of(point) == own).count();
            below as f64 + f64::midpoint(equal as f64, 1.0)
        };
        points.iter().map(|point| rank(of(point))).collect()
    };
    let (x, y) = (ranks(|point| point.0), ranks(|point| point.1));
    let mean = f64::midpoint(points.len() as f64, 1.0);
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let spread = (product(&x, &x) * product(&y, &y)).sqrt();
    Some(if spread > 0.0 { product(&x, &y) / spread } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 16 runs 8 are on one side: 1 in 12,870 draws; and sums of such.
    #[test]
    fn fisher_counts_draws() {
        for (more, fewer, p) in
            [((8, 8), (0, 8), 1.0 / 12_870.0), ((6, 8), (0, 8), 28.0 / 8008.0), ((3, 5), (0, 5), 10.0 / 120.0)]
        {
            assert!((fisher(more, fewer) - p).abs() < 1e-12, "{more:?} {fewer:?} {}", fisher(more, fewer));
        }
        assert!((fisher((0, 8), (3, 8)) - 1.0).abs() < 1e-12);
        assert!((fisher((2, 4), (2, 4)) - 53.0 / 70.0).abs() < 1e-12);
        assert!((fisher((0, 0), (0, 0)) - 1.0).abs() < 1e-12);
    }

    #[track_caller]
    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() <= 1e-10 * expected.abs().max(1e-3), "{value} {expected}");
    }

    /// Student's sleep data (Student, 1908; R's `sleep`): the paired t test that R's manual prints as t = -4.0621, df = 9,
    /// p-value = 0.002833, 95 percent confidence interval -2.4598858 -0.7001142.
    #[test]
    fn the_sleep_data() {
        let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let pairs: Vec<(f64, f64)> = first.into_iter().zip(second).collect();
        let estimate = Estimate::paired(&pairs).unwrap();
        assert!((estimate.t + 4.0621).abs() < 5e-5, "{}", estimate.t);
        assert!((estimate.p - 0.002_833).abs() < 5e-7, "{}", estimate.p);
        let (low, high) = estimate.interval;
        assert!((low + 2.459_885_8).abs() < 5e-8 && (high + 0.700_114_2).abs() < 5e-8, "{low} {high}");
        near(estimate.summary.mean, -1.58);
        near(estimate.cohen_dz, estimate.t / 10_f64.sqrt());
    }

    /// Three runs, computed by scipy.stats.ttest_1samp and its confidence_interval (SciPy 1.17).
    #[test]
    fn three_runs() {
        let estimate = Estimate::of(&[0.012, 0.031, 0.02]).unwrap();
        near(estimate.summary.sd.unwrap(), 0.009_539_392_014_169_456);
        near(estimate.t, 3.812_933_455_813_455_6);
        near(estimate.p, 0.062_412_794_753_543_75);
        near(estimate.interval.0, -0.002_697_163_449_568_281);
        near(estimate.interval.1, 0.044_697_163_449_568_28);
        // With two degrees of freedom J is 1 / Γ(1/2).
        near(estimate.hedges_g.unwrap(), estimate.cohen_dz / std::f64::consts::PI.sqrt());
        // Against a limit, what is tested is the distance from it; the interval stays.
        let against = Estimate::against(&[0.012, 0.031, 0.02], 0.02).unwrap();
        let moved = Estimate::of(&[-0.008, 0.011, 0.0]).unwrap();
        near(against.t, moved.t);
        near(against.p, moved.p);
        assert_eq!(against.interval, estimate.interval);
    }

    #[test]
    fn hedges_correction_of_the_literature() {
        // Table 2 of Hedges (1981), c(m).
        for (degrees, factor) in [(2.0, 0.5642), (3.0, 0.7236), (10.0, 0.9227), (50.0, 0.9849)] {
            assert!((small_sample_correction(degrees) - factor).abs() < 1e-4, "{degrees}");
        }
    }

    /// p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") of R.
    #[test]
    fn holm_as_r_has_it() {
        for (own, expected) in holm(&[0.01, 0.04, 0.03, 0.005]).into_iter().zip([0.03, 0.06, 0.06, 0.02]) {
            near(own, expected);
        }
        assert_eq!(holm(&[0.7, 0.9]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn degenerate_samples() {
        assert_eq!(Summary::of(&[f64::NAN]), None);
        assert_eq!(Summary::of(&[2.0]), Some(Summary { n: 1, mean: 2.0, sd: None }));
        assert!(Estimate::of(&[1.0]).is_none() && Estimate::of(&[1.0, f64::INFINITY]).is_none());
        let same = Estimate::of(&[0.5; 4]).unwrap();
        assert_eq!((same.t, same.p, same.interval), (f64::INFINITY, 0.125, (0.5, 0.5)));
        // Sums of thirds round.
        let rounded = Estimate::of(&[0.1 + 0.2, 0.3, 0.3]).unwrap();
        assert_eq!((rounded.p, rounded.interval.0), (0.25, rounded.interval.1));
        let zero = Estimate::of(&[0.0; 2]).unwrap();
        assert_eq!((zero.t, zero.p, zero.cohen_dz, zero.hedges_g), (0.0, 1.0, 0.0, None));
    }

    #[test]
    fn pseudo_values_of_slopes() {
        // On a line every one is the slope.
        let line: Vec<(f64, f64)> = [0.0, 1.0, 3.0, 4.0].iter().map(|&x| (x, 2.0 - 0.5 * x)).collect();
        assert!(slope_pseudo_values(&line).unwrap().iter().all(|value| (value + 0.5).abs() < 1e-12));
        assert_eq!(slope_pseudo_values(&line[..3]), None);
        assert_eq!(slope_pseudo_values(&[(1.0, 0.0), (1.0, 1.0), (1.0, 2.0), (2.0, 3.0)]), None);
        // By hand: slope 0.8; without each of the points 1/2, 13/14, 13/14 and 1/2.
        let values = slope_pseudo_values(&[(0.0, 0.0), (1.0, 2.0), (2.0, 1.0), (3.0, 3.0)]).unwrap();
        let without = |x: f64| 4.0 * 0.8 - 3.0 * x;
        for (value, left_out) in values.iter().zip([0.5, 0.928_571_428_571_428_6, 0.928_571_428_571_428_6, 0.5]) {
            assert!((value - without(left_out)).abs() < 1e-12, "{values:?}");
        }
    }

    #[test]
    fn slopes() {
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), Some(2.0));
        assert_eq!(slope(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(slope(&[(1.0, 1.0)]), None);
    }

    /// `scipy.stats.spearmanr` (SciPy 1.17).
    #[test]
    fn rank_correlations() {
        let points = |x: &[f64], y: &[f64]| -> Vec<(f64, f64)> { x.iter().copied().zip(y.iter().copied()).collect() };
        let x = [1.0, 2.0, 4.0, 8.0, 16.0, 24.0];
        near(spearman(&points(&x, &[20.0, 22.0, 22.0, 25.0, 23.0, 32.0])).unwrap(), 0.927_633_657_043_917_5);
        assert_eq!(spearman(&points(&x, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])), Some(1.0));
        assert_eq!(spearman(&points(&x, &[32.0; 6])), Some(0.0));
        assert_eq!(spearman(&points(&x[..2], &[1.0, 2.0])), None);
        assert_eq!(spearman(&points(&x, &[1.0, 2.0, f64::NAN, 4.0, 5.0, 6.0])), None);
    }
}
