//! Gramians of diagonal systems that vary in time, averaged along recorded trajectories (R7).
//!
//! ```text
//! s_t = a_t * s_{t-1} + b_t * (B x_t)        a_t, b_t, c_t [d], * elementwise
//! y_t = C (c_t * s_t)
//! ```
//!
//! The Gramians of such a system depend on time. With white input, and for the outputs from `t` on,
//!
//! ```text
//! Wc(t) = (B B^T) * P(t)     P(t) = b_t b_t^T + (a_t a_t^T) * P(t-1)
//! Wo(t) = (C^T C) * M(t)     M(t) = c_t c_t^T + (a_{t+1} a_{t+1}^T) * M(t+1)
//! ```
//!
//! so that B and C, and with them the width of the stream, stay outside the recursion, which is about `d^2 / 2` multiplications a
//! step where the adapter itself costs `2 d D`. What is balanced is the pair of their means over time and trajectories (S. Lall,
//! J. E. Marsden and S. Glavaški 2002 do so with recorded states). The recursion takes every step; the mean is over every fourth
//! P(t) and M(t), which differ little from their neighbours and cost as much to add up as to compute. Before and after a
//! trajectory the system is taken to go on with its mean coefficients, so that a system that does not vary has its ordinary
//! Gramians, whatever the length.
//!
//! A truncation by an averaged pair has no error bound.

use super::empirical::EmpiricalFactor;
use super::gramians::GramianFactors;
use super::linalg::{compress_columns, product};
use super::poles::MIN_RATE;
use super::{LtiError, Result};
use faer::{Mat, MatRef, Side};
use pulp::Arch;
use rayon::prelude::*;

/// Which controllability Gramian is averaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Controllability {
    /// That of the varying system with white input: what could be excited.
    #[default]
    White,
    /// The second moment of the recorded states: what was excited (R7).
    Recorded,
}

/// Coefficients of a system along one trajectory of T steps, each row-major `[T, d]`.
#[derive(Debug, Clone, Copy)]
pub struct Coefficients<'a> {
    /// `-ln a_t`.
    pub rate: &'a [f64],
    /// `b_t`.
    pub input: &'a [f64],
    /// `c_t`.
    pub output: &'a [f64],
}

impl Coefficients<'_> {
    fn check(&self, d: usize) -> Result<()> {
        let rate = self.rate.len();
        for (what, values) in [("rates", self.rate), ("input gains", self.input), ("output gains", self.output)] {
            if values.len() != rate || d == 0 || !rate.is_multiple_of(d) {
                let (expected, got) = ((rate / d.max(1), d), (values.len() / d.max(1), d));
                return Err(LtiError::Shape { what: what.into(), expected, got });
            }
            // Without an early end, which would keep the loop from being vectorised.
            if values.iter().fold(true, |finite, v| finite & v.is_finite()) {
                continue;
            }
            if let Some(at) = values.iter().position(|v| !v.is_finite()) {
                let (row, column, value) = (at / d, at % d, values[at]);
                return Err(LtiError::NotFinite { what: what.into(), row, column, value });
            }
        }
        Ok(())
    }

    /// Lower triangles of the sums of P(t) and M(t), each that is computed standing for the steps of its window.
    fn sums(&self, d: usize) -> [Vec<f64>; 2] {
        let mean = mean_rates(self.rate, d);
        let poles = |rates: &[f64]| -> Vec<f64> { rates.iter().map(|rate| (-rate).exp()).collect() };
        let (a, after) = (poles(self.rate), poles(&mean));
        let forwards = Windows::new(d, a.chunks(d).zip(self.input.chunks(d)));
        // A step of M takes the poles of the step after it; after the last one come the mean poles.
        let next = std::iter::once(&after[..]).chain(a.chunks(d).skip(1).rev());
        let backwards = Windows::new(d, next.zip(self.output.chunks(d).rev()));
        [forwards.sum(at_rest(self.input, &mean)), backwards.sum(at_rest(self.output, &mean))]
    }
}

/// Columns that are computed together, and rows.
const LANES: usize = 8;
const ROWS: usize = 4;
/// Steps of a window.
const WINDOW: usize = 4;

/// The recursion `w = g g^T + (a a^T) * w`, several steps at once: for each window the product of its a, and the g of its steps
/// multiplied by the a of the steps behind them, in rows of d numbers padded to a multiple of [`LANES`].
struct Windows {
    d: usize,
    steps: usize,
    rows: Vec<f64>,
}

impl Windows {
    /// From rows (a, g).
    fn new<'a>(d: usize, steps: impl Iterator<Item = (&'a [f64], &'a [f64])>) -> Self {
        let width = d.next_multiple_of(LANES);
        let mut windows = Windows {
            d,
            steps: 0,
            rows: Vec::with_capacity(steps.size_hint().0.div_ceil(WINDOW) * (1 + WINDOW) * width),
        };
        for (a, g) in steps {
            let place = windows.steps % WINDOW;
            if place == 0 {
                windows.rows.resize(windows.rows.len() + width, 1.0);
                windows.rows.resize(windows.rows.len() + WINDOW * width, 0.0);
            }
            windows.steps += 1;
            let begin = windows.rows.len() - (1 + WINDOW) * width;
            let (before, rest) = windows.rows[begin..].split_at_mut((1 + place) * width);
            before.chunks_exact_mut(width).for_each(|row| row.iter_mut().zip(a).for_each(|(x, a)| *x *= a));
            rest[..d].copy_from_slice(g);
        }
        windows
    }

    /// Sum over the windows of their steps times w at their end, lower triangle [d, d], from a first `w`. A block of the matrix
    /// stays in registers over all windows.
    fn sum(&self, first: Vec<f64>) -> Vec<f64> {
        let (d, width) = (self.d, self.d.next_multiple_of(LANES));
        let mut sum = first;
        for i in (0..d).step_by(ROWS) {
            for j in (0..(i + ROWS).min(d)).step_by(LANES) {
                let place = |r: usize, l: usize| (i + r < d && j + l < d).then(|| (i + r) * d + j + l);
                let start = |r, l| place(r, l).map_or(0.0, |at| sum[at]);
                let w: [[f64; LANES]; ROWS] = std::array::from_fn(|r| std::array::from_fn(|l| start(r, l)));
                let block = Arch::new().dispatch(
                    #[inline(always)]
                    || {
                        let (mut w, mut block) = (w, [[0.0; LANES]; ROWS]);
                        let mut left = self.steps;
                        for window in self.rows.chunks_exact((1 + WINDOW) * width) {
                            let steps = left.min(WINDOW) as f64;
                            left = left.saturating_sub(WINDOW);
                            let (Some(heads), Some(lanes)) =
                                (part::<ROWS>(window, width, i), part::<LANES>(window, width, j))
                            else {
                                continue;
                            };
                            for r in 0..ROWS {
                                let (mut keep, mut new) = ([0.0; LANES], [0.0; LANES]);
                                multiply_add(&mut keep, heads[0][r], lanes[0]);
                                multiply_add(&mut new, heads[1][r], lanes[1]);
                                for k in 2..=WINDOW {
                                    multiply_add(&mut new, heads[k][r], lanes[k]);
                                }
                                for l in 0..LANES {
                                    keep[l] = keep[l].mul_add(w[r][l], new[l]);
                                }
                                w[r] = keep;
                                multiply_add(&mut block[r], steps, &keep);
                            }
                        }
                        block
                    },
                );
                for (r, l) in (0..ROWS).flat_map(|r| (0..LANES).map(move |l| (r, l))) {
                    if let Some(at) = place(r, l) {
                        sum[at] = block[r][l];
                    }
                }
            }
        }
        sum
    }
}

/// Columns `at..at + N` of the rows of a window.
#[inline(always)]
fn part<const N: usize>(window: &[f64], width: usize, at: usize) -> Option<[&[f64; N]; 1 + WINDOW]> {
    // Written out: an iterator would keep the pointers in memory.
    let row = window.get(at..)?;
    let (r0, r1) = (row.first_chunk()?, row.get(width..)?.first_chunk()?);
    let row = row.get(2 * width..)?;
    let (r2, r3) = (row.first_chunk()?, row.get(width..)?.first_chunk()?);
    Some([r0, r1, r2, r3, row.get(2 * width..)?.first_chunk()?])
}

/// `sum += factor x`.
#[inline(always)]
fn multiply_add(sum: &mut [f64; LANES], factor: f64, x: &[f64; LANES]) {
    for l in 0..LANES {
        sum[l] = x[l].mul_add(factor, sum[l]);
    }
}

/// Sums of `P(t)` and `M(t)` over time and trajectories, in d x d memory.
#[derive(Debug, Clone)]
pub struct VaryingGramians {
    d: usize,
    count: usize,
    p: Vec<f64>,
    m: Vec<f64>,
    states: EmpiricalFactor,
}

impl VaryingGramians {
    /// Empty sums for `d` states.
    pub fn new(d: usize) -> Self {
        VaryingGramians { d, count: 0, p: vec![0.0; d * d], m: vec![0.0; d * d], states: EmpiricalFactor::new(d) }
    }

    /// Adds trajectories, in parallel.
    ///
    /// # Errors
    /// Coefficients of other sizes, or not finite.
    pub fn add(&mut self, trajectories: &[Coefficients<'_>]) -> Result<()> {
        let sums = |along: &Coefficients<'_>| along.check(self.d).map(|()| along.sums(self.d));
        let sums: Vec<[Vec<f64>; 2]> = trajectories.par_iter().map(sums).collect::<Result<_>>()?;
        for ([p, m], along) in sums.iter().zip(trajectories) {
            accumulate(&mut self.p, p);
            accumulate(&mut self.m, m);
            self.count += along.rate.len() / self.d;
        }
        Ok(())
    }

    /// Adds recorded states, `[n, d]`, for [`Controllability::Recorded`].
    ///
    /// # Errors
    /// States of another number or not finite.
    pub fn add_states(&mut self, states: MatRef<'_, f64>) -> Result<()> {
        self.states.add(states)
    }

    /// The averaged pair of a system with input matrix `b` [d, D] and output matrix `c` [D, d].
    ///
    /// # Errors
    /// When nothing was added.
    pub fn finish(self, b: MatRef<'_, f64>, c: MatRef<'_, f64>, which: Controllability) -> Result<GramianFactors> {
        if self.count == 0 {
            return Err(LtiError::Unsupported("there are no trajectories to form Gramians from".into()));
        }
        let lc = match which {
            Controllability::White => hadamard_factor(b, &self.p, self.count)?,
            Controllability::Recorded => self.states.finish(self.count)?,
        };
        let lo = hadamard_factor(c.transpose(), &self.m, self.count)?;
        // The sums are not factors: their small directions are known to the rounding of the large ones, squared.
        Ok(GramianFactors::without_equation(lc, lo, 1.0 / f64::EPSILON.sqrt()))
    }
}

/// Rates whose poles are held before and after the trajectory.
fn mean_rates(rate: &[f64], d: usize) -> Vec<f64> {
    let steps = (rate.len() / d).max(1) as f64;
    let mut mean = vec![0.0; d];
    for row in rate.chunks(d) {
        mean.iter_mut().zip(row).for_each(|(m, r)| *m += r / steps);
    }
    mean
}

/// `mean(g g^T) / (1 - a a^T)` over the first step of every window: the fixed point with mean coefficients.
fn at_rest(gains: &[f64], rates: &[f64]) -> Vec<f64> {
    let d = rates.len();
    let steps = (gains.len() / d).div_ceil(WINDOW);
    let gains = MatRef::from_row_major_slice_with_stride(gains, steps, d, WINDOW * d);
    let gram = product(gains.transpose(), gains);
    let mut moment: Vec<f64> = (0..d * d).map(|i| gram[(i / d, i % d)] / steps.max(1) as f64).collect();
    // 1 - a_i a_j = (1 - a_i) + a_i (1 - a_j), without cancellation.
    let distances: Vec<f64> = rates.iter().map(|rate| -(-rate.max(MIN_RATE)).exp_m1()).collect();
    for (row, i) in moment.chunks_mut(d).zip(&distances) {
        row.iter_mut().zip(&distances).for_each(|(m, j)| *m /= i + (1.0 - i) * j);
    }
    moment
}

fn accumulate(sum: &mut [f64], w: &[f64]) {
    sum.iter_mut().zip(w).for_each(|(s, w)| *s += w);
}

/// Factor L, [d, k], of `(B B^T) * (sum / count)`: rows of the Khatri-Rao product of the two factors.
fn hadamard_factor(b: MatRef<'_, f64>, sum: &[f64], count: usize) -> Result<Mat<f64>> {
    let d = b.nrows();
    let weights = Mat::from_fn(d, d, |i, j| sum[i.max(j) * d + i.min(j)] / count as f64);
    let decomposed =
        weights.self_adjoint_eigen(Side::Lower).map_err(|_| LtiError::NoConvergence("the eigenvalues of a Gramian"))?;
    let (values, vectors) = (decomposed.S().column_vector(), decomposed.U());
    let root = Mat::from_fn(d, d, |i, j| vectors[(i, j)] * values[j].max(0.0).sqrt());
    let b = compress_columns(b);
    let width = b.ncols();
    let rows = Mat::from_fn(d, width * d, |i, k| b[(i, k / d)] * root[(i, k % d)]);
    Ok(compress_columns(rows.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Means of both Gramians over one trajectory by matrices of full size, the mean coefficients going on before and after.
    fn naive(along: Coefficients<'_>, b: &Mat<f64>, c: &Mat<f64>) -> (Mat<f64>, Mat<f64>) {
        let d = b.nrows();
        let steps = along.rate.len() / d;
        let diagonal = |v: &[f64], t: usize| Mat::from_fn(d, d, |i, j| if i == j { v[t * d + i] } else { 0.0 });
        let a: Vec<f64> = along.rate.iter().map(|r| (-r).exp()).collect();
        let mean_rate = |i: usize| (0..steps).map(|t| along.rate[t * d + i]).sum::<f64>() / steps as f64;
        let tail = diagonal(&(0..d).map(|i| (-mean_rate(i)).exp()).collect::<Vec<_>>(), 0);
        let scale = faer::Scale(1.0 / steps as f64);
        let input = |t: usize| diagonal(along.input, t) * b * b.transpose() * diagonal(along.input, t);
        let output = |t: usize| diagonal(along.output, t) * c.transpose() * c * diagonal(along.output, t);
        // The moment of the first steps of the windows.
        let steps_seen = (0..steps).step_by(WINDOW).count() as f64;
        let mean = |of: &dyn Fn(usize) -> Mat<f64>| {
            (0..steps).step_by(WINDOW).fold(Mat::zeros(d, d), |sum: Mat<f64>, t| sum + of(t))
                * faer::Scale(1.0 / steps_seen)
        };
        let at_rest = |q: &Mat<f64>| (0..400).fold(Mat::zeros(d, d), |w: Mat<f64>, _| &tail * w * &tail + q);
        let (mut wc, mut wo) = (at_rest(&mean(&input)), at_rest(&mean(&output)));
        let (mut sum_c, mut sum_o) = (Mat::<f64>::zeros(d, d), Mat::<f64>::zeros(d, d));
        // At the end of each window, for its steps.
        let weight = |done: usize| match done % WINDOW {
            0 => faer::Scale(WINDOW as f64),
            rest if done == steps => faer::Scale(rest as f64),
            _ => faer::Scale(0.0),
        };
        for t in 0..steps {
            wc = diagonal(&a, t) * wc * diagonal(&a, t) + input(t);
            sum_c += &wc * weight(t + 1);
        }
        for t in (0..steps).rev() {
            let next = if t + 1 < steps { diagonal(&a, t + 1) } else { tail.clone() };
            wo = &next * wo * &next + output(t);
            sum_o += &wo * weight(steps - t);
        }
        (sum_c * scale, sum_o * scale)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
        /// Trajectories of several lengths, each step of which counts once.
        #[test]
        fn averages_are_those_of_the_definition(
            lengths in proptest::collection::vec(1_usize..12, 1..4),
            d in 1_usize..20,
            rates in proptest::collection::vec(0.1..2.0_f64, 3 * 12 * 20),
            values in proptest::collection::vec(-1.0..1.0_f64, 3 * 3 * 12 * 20),
            ends in proptest::collection::vec(-1.0..1.0_f64, 6 * 20),
        ) {
            let part = |of: usize, k: usize, n: usize| &values[(3 * k + of) * 240..][..n];
            let along: Vec<Coefficients<'_>> = lengths.iter().enumerate().map(|(k, steps)| {
                let n = steps * d;
                Coefficients { rate: &rates[k * 240..][..n], input: part(0, k, n), output: part(1, k, n) }
            }).collect();
            let b = Mat::from_fn(d, 3, |i, j| ends[3 * i + j]);
            let c = Mat::from_fn(3, d, |i, j| ends[60 + 3 * i + j]);
            let total = lengths.iter().sum::<usize>() as f64;
            let (mut wc, mut wo, mut recorded) = (Mat::zeros(d, d), Mat::zeros(d, d), Mat::zeros(d, d));
            let (mut white, mut by_states) = (VaryingGramians::new(d), VaryingGramians::new(d));
            for (k, (along, &steps)) in along.iter().zip(&lengths).enumerate() {
                let (controllability, observability) = naive(*along, &b, &c);
                let share = faer::Scale(steps as f64 / total);
                wc += controllability * share;
                wo += observability * share;
                let states = MatRef::from_row_major_slice(part(2, k, steps * d), steps, d);
                recorded += states.transpose() * states * faer::Scale(1.0 / total);
                by_states.add_states(states).unwrap();
            }
            white.add(&along).unwrap();
            by_states.add(&along).unwrap();
            let white = white.finish(b.as_ref(), c.as_ref(), Controllability::White).unwrap();
            let by_states = by_states.finish(b.as_ref(), c.as_ref(), Controllability::Recorded).unwrap();
            for (got, expected) in [
                (white.controllability(), &wc),
                (white.observability(), &wo),
                (by_states.controllability(), &recorded),
                (by_states.observability(), &wo),
            ] {
                let scale = expected.norm_max().max(1e-3);
                prop_assert!((&got - expected).norm_max() < 1e-11 * scale, "{got:?} {expected:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut gramians = VaryingGramians::new(2);
        let bad = Coefficients { rate: &[1.0, 1.0], input: &[1.0], output: &[1.0, 1.0] };
        assert!(gramians.add(&[bad]).unwrap_err().to_string().contains("input gains"));
        let bad = Coefficients { rate: &[1.0, f64::NAN], input: &[1.0; 2], output: &[1.0; 2] };
        assert!(gramians.add(&[bad]).is_err());
        let (b, c) = (Mat::zeros(2, 1), Mat::zeros(1, 2));
        assert!(gramians.finish(b.as_ref(), c.as_ref(), Controllability::White).is_err());
    }
}
