//! Vector autoregressions: the input weight that recorded inputs call for.
//!
//! ```text
//! u_t = m x_t + v_t     v_t = Phi_1 v_{t-1} + ... + Phi_p v_{t-p} + e_t     E e_t e_t^T = S S^T
//! x_t = rho x_{t-1} + sqrt(1 - rho^2) e'_t                                  rho = exp(-1 / T)
//! ```
//!
//! is a stable system from white noise w, `e = S w` and e' beside it, to inputs u of the recorded second moments: the weight V of
//! [`weighted`](crate::weighted). m is the mean of the inputs. A reduced system has to answer it as well, so it enters with all of its
//! energy, `E x^2 = 1`, as a mode that lasts as long as a sequence, T steps. An autoregression of moments about zero would have to take the mean
//! for a part of what changes from step to step, and spread its energy over frequencies where there is none.
//!
//! The coefficients solve the Yule-Walker equations of the autocovariances, all orders at once, by the recursion of P. Whittle
//! (Biometrika 50 (1963)). From autocovariances that are divided by the number of steps, as here, the solution is stable, whatever the
//! data.

use super::linalg::{above, beside, block_diagonal, product};
use super::system::check_shape;
use super::{LinearSystem, LtiError, Result, StateMatrix};
use faer::linalg::solvers::Solve;
use faer::{Col, Mat, MatRef, Scale};
use std::f64::consts::PI;

/// White noise of this share of the mean square is added, so that directions without inputs can be solved for.
const NOISE: f64 = 1e-8;

/// Sums of the products of inputs some steps apart, from any number of sequences.
#[derive(Debug, Clone)]
pub struct Moments {
    /// `sum u_{t+j} u_t^T`, j = 0, 1, ..., [k, k] each.
    products: Vec<Mat<f64>>,
    /// `sum u_{t+j}` and `sum u_t` over the same steps.
    sums: Vec<[Col<f64>; 2]>,
    /// How many steps these are.
    counts: Vec<usize>,
    sequences: usize,
}

impl Moments {
    /// None yet, for `inputs` inputs and orders up to `order`.
    pub fn new(inputs: usize, order: usize) -> Self {
        let sums = vec![[Col::zeros(inputs), Col::zeros(inputs)]; order + 1];
        Self { products: vec![Mat::zeros(inputs, inputs); order + 1], sums, counts: vec![0; order + 1], sequences: 0 }
    }

    /// Adds a sequence, [T, k].
    ///
    /// # Errors
    /// Another number of inputs, values that are not finite.
    pub fn add(&mut self, sequence: MatRef<'_, f64>) -> Result<()> {
        let (steps, inputs) = sequence.shape();
        let expected = self.products[0].ncols();
        if inputs != expected {
            let what = "a sequence of inputs".into();
            return Err(LtiError::Shape { what, expected: (steps, expected), got: (steps, inputs) });
        }
        for (row, column) in (0..steps).flat_map(|i| (0..inputs).map(move |j| (i, j))) {
            let value = sequence[(row, column)];
            if !value.is_finite() {
                return Err(LtiError::NotFinite { what: "a sequence of inputs".into(), row, column, value });
            }
        }
        for (lag, sum) in self.products.iter_mut().enumerate().take(steps) {
            let (later, earlier) = (sequence.subrows(lag, steps - lag), sequence.subrows(0, steps - lag));
            *sum += product(later.transpose(), earlier);
            for (sum, rows) in self.sums[lag].iter_mut().zip([later, earlier]) {
                for j in 0..inputs {
                    sum[j] += rows.col(j).iter().sum::<f64>();
                }
            }
            self.counts[lag] += steps - lag;
        }
        self.sequences += usize::from(steps > 0);
        Ok(())
    }

    /// The autoregressions of order 0, 1, ... up to the one asked for.
    ///
    /// # Errors
    /// No steps, inputs that are all zero, or inputs that depend linearly on each other or on their past, up to rounding.
    pub fn autoregressions(&self) -> Result<Vec<Autoregression>> {
        let k = self.products[0].ncols();
        let over = 1.0 / self.counts[0].max(1) as f64;
        let power = over * (0..k).map(|i| self.products[0][(i, i)]).sum::<f64>() / k.max(1) as f64;
        if power == 0.0 {
            return Err(LtiError::Unsupported(
                "there are no inputs to fit a weight to: all recorded ones are zero".into(),
            ));
        }
        let mean = Mean {
            value: &self.sums[0][0] * Scale(over),
            memory: self.counts[0] as f64 / self.sequences.max(1) as f64,
        };
        let mut gamma: Vec<Mat<f64>> =
            (0..self.products.len()).map(|lag| self.autocovariance(lag, &mean.value)).collect();
        for i in 0..k {
            gamma[0][(i, i)] += NOISE * power;
        }
        let (mut forward, mut backward): (Vec<Mat<f64>>, Vec<Mat<f64>>) = (Vec::new(), Vec::new());
        let (mut v, mut w) = (gamma[0].clone(), gamma[0].clone());
        let mut found = vec![Autoregression::new(&forward, &v, &mean)?];
        for next in 1..gamma.len() {
            let mut delta = gamma[next].clone();
            for (j, phi) in forward.iter().enumerate() {
                delta -= product(phi.as_ref(), gamma[next - 1 - j].as_ref());
            }
            // Delta W^-1 and Delta^T V^-1 of symmetric V and W.
            let last = w.partial_piv_lu().solve(delta.transpose()).transpose().to_owned();
            let first = v.partial_piv_lu().solve(&delta).transpose().to_owned();
            let longer = |own: &[Mat<f64>], other: &[Mat<f64>], new: &Mat<f64>| -> Vec<Mat<f64>> {
                let changed = own.iter().zip(other.iter().rev()).map(|(a, b)| a - product(new.as_ref(), b.as_ref()));
                changed.chain([new.clone()]).collect()
            };
            (forward, backward) = (longer(&forward, &backward, &last), longer(&backward, &forward, &first));
            v -= product(last.as_ref(), delta.transpose());
            w -= product(first.as_ref(), delta.as_ref());
            found.push(Autoregression::new(&forward, &v, &mean)?);
        }
        Ok(found)
    }

    /// `sum (u_{t+j} - m) (u_t - m)^T`, over the number of all steps.
    fn autocovariance(&self, lag: usize, mean: &Col<f64>) -> Mat<f64> {
        let [later, earlier] = &self.sums[lag];
        let (steps, count) = (self.counts[0].max(1) as f64, self.counts[lag] as f64);
        let k = mean.nrows();
        Mat::from_fn(k, k, |i, j| {
            let about_zero = self.products[lag][(i, j)];
            (about_zero - mean[i] * earlier[j] - later[i] * mean[j] + count * mean[i] * mean[j]) / steps
        })
    }
}

/// The mean of the inputs, and for how many steps it lasts.
#[derive(Debug, Clone)]
struct Mean {
    value: Col<f64>,
    memory: f64,
}

/// A vector autoregression about a mean.
#[derive(Debug, Clone)]
pub struct Autoregression {
    /// `Phi_1, Phi_2, ...`, [k, k] each.
    coefficients: Vec<Mat<f64>>,
    /// S, lower triangular.
    innovation: Mat<f64>,
    mean: Mean,
}

impl Autoregression {
    fn new(coefficients: &[Mat<f64>], covariance: &Mat<f64>, mean: &Mean) -> Result<Self> {
        let symmetric = (covariance + covariance.transpose()) * Scale(0.5);
        let cholesky = symmetric.llt(faer::Side::Lower).map_err(|_| {
            LtiError::Unsupported(
                "the recorded inputs depend on each other to the last digit: record more of them, or take a lower order".into(),
            )
        })?;
        Ok(Self { coefficients: coefficients.to_vec(), innovation: cholesky.L().to_owned(), mean: mean.clone() })
    }

    /// The number p of steps it looks back.
    pub fn order(&self) -> usize {
        self.coefficients.len()
    }

    /// The mean m, `[k]`.
    pub fn mean(&self) -> &Col<f64> {
        &self.mean.value
    }

    /// The system from white noise of unit covariance to the inputs: `p k + 1` states, k + 1 inputs and k outputs; a state and an input
    /// less without a mean.
    ///
    /// # Errors
    /// Rounding has put a pole onto the unit circle.
    pub fn system(&self) -> Result<LinearSystem> {
        let (p, k) = (self.order(), self.innovation.nrows());
        let mut c = Mat::zeros(k, p * k);
        for (j, phi) in self.coefficients.iter().enumerate() {
            c.submatrix_mut(0, j * k, k, k).copy_from(phi);
        }
        // The state is u_{t-1}, ..., u_{t-p}.
        let shift = Mat::from_fn(p.saturating_sub(1) * k, p * k, |i, j| f64::from(u8::from(i == j)));
        let a = if p == 0 { Mat::zeros(0, 0) } else { above(c.as_ref(), shift.as_ref()) };
        let b = Mat::from_fn(p * k, k, |i, j| if i < k { self.innovation[(i, j)] } else { 0.0 });
        if self.mean.value.norm_max() == 0.0 {
            return LinearSystem::new(StateMatrix::Dense(a), b, c, Some(self.innovation.clone()));
        }
        let rho = (-1.0 / self.mean.memory).exp();
        // sqrt(1 - rho^2)
        let drive = (-(-2.0 / self.mean.memory).exp_m1()).sqrt();
        let one = |value: f64| Mat::from_fn(1, 1, |_, _| value);
        let mean = |factor: f64| Mat::from_fn(k, 1, |i, _| factor * self.mean.value[i]);
        LinearSystem::new(
            StateMatrix::Dense(block_diagonal(a.as_ref(), one(rho).as_ref())),
            block_diagonal(b.as_ref(), one(drive).as_ref()),
            beside(c.as_ref(), mean(rho).as_ref()),
            Some(beside(self.innovation.as_ref(), mean(drive).as_ref())),
        )
    }

    /// Gaussian log-likelihood of a sequence [T, k] from step `from` on, and the number of steps it is the sum of. `from` is at least the
    /// order; one `from` for all orders makes them comparable.
    ///
    /// # Errors
    /// `from` below the order, and a sequence of another width.
    pub fn log_likelihood(&self, sequence: MatRef<'_, f64>, from: usize) -> Result<(f64, usize)> {
        let k = self.innovation.nrows();
        check_shape("the sequence", sequence, (sequence.nrows(), k))?;
        if from < self.order() {
            let range = "at least the order of the autoregression";
            return Err(LtiError::OutOfRange { name: "from", value: from as f64, range });
        }
        let steps = sequence.nrows().saturating_sub(from);
        if steps == 0 {
            return Ok((0.0, 0));
        }
        let centred = Mat::from_fn(sequence.nrows(), k, |t, i| sequence[(t, i)] - self.mean.value[i]);
        let mut residual = centred.subrows(from, steps).to_owned();
        for (j, phi) in self.coefficients.iter().enumerate() {
            residual -= product(centred.subrows(from - 1 - j, steps), phi.transpose());
        }
        // S^-1 e, whose squares add up.
        let white = self.innovation.partial_piv_lu().solve(residual.transpose());
        let squares = white.norm_l2().powi(2);
        let log_det: f64 = (0..k).map(|i| self.innovation[(i, i)].ln()).sum();
        let constant = 0.5 * k as f64 * (2.0 * PI).ln() + log_det;
        Ok((-0.5 * squares - steps as f64 * constant, steps))
    }
}

/// Orthonormal rows, [k, m], that span what the input matrix `b` [d, m] reads.
///
/// # Errors
/// A decomposition that does not converge.
pub fn directions_read(b: MatRef<'_, f64>) -> Result<Mat<f64>> {
    if b.norm_max() == 0.0 {
        return Ok(Mat::zeros(0, b.ncols()));
    }
    let svd = b.thin_svd().map_err(|_| LtiError::NoConvergence("the singular value decomposition"))?;
    let s = svd.S().column_vector();
    let rank = (0..s.nrows()).take_while(|&i| s[i] > 1e-12 * s[0]).count();
    Ok(svd.V().subcols(0, rank).transpose().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GramianFactors;

    /// Deterministic noise of about unit variance.
    fn noise(steps: usize, k: usize, seed: u64) -> Mat<f64> {
        let mut state = seed;
        Mat::from_fn(steps, k, |_, _| {
            let sum: f64 = (0..12)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 11) as f64 / (1u64 << 53) as f64
                })
                .sum();
            sum - 6.0
        })
    }

    /// A known autoregression of order 2 along `steps` steps.
    fn sequence(steps: usize, seed: u64) -> Mat<f64> {
        let e = noise(steps, 2, seed);
        let mut u = Mat::<f64>::zeros(steps, 2);
        for t in 0..steps {
            for i in 0..2 {
                let back = |lag: usize, j: usize| if t >= lag { u[(t - lag, j)] } else { 0.0 };
                let value = if i == 0 {
                    0.6 * back(1, 0) + 0.2 * back(1, 1) + e[(t, 0)]
                } else {
                    0.5 * back(2, 1) + 2.0 * e[(t, 1)]
                };
                u[(t, i)] = value;
            }
        }
        u
    }

    #[test]
    fn a_known_autoregression_is_found() {
        let mut moments = Moments::new(2, 4);
        for seed in 0..40 {
            moments.add(sequence(500, seed).as_ref()).unwrap();
        }
        let all = moments.autoregressions().unwrap();
        assert_eq!(all.iter().map(Autoregression::order).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        let second = &all[2];
        let expected = [[[0.6, 0.2], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.5]]];
        for (phi, expected) in second.coefficients.iter().zip(expected) {
            let off = Mat::from_fn(2, 2, |i, j| phi[(i, j)] - expected[i][j]);
            assert!(off.norm_max() < 0.03, "{phi:?}");
        }
        assert!((second.innovation[(0, 0)] - 1.0).abs() < 0.03 && (second.innovation[(1, 1)] - 2.0).abs() < 0.06);
        let held_out = sequence(20_000, 99);
        let likelihoods: Vec<f64> =
            all.iter().map(|model| model.log_likelihood(held_out.as_ref(), 4).unwrap().0).collect();
        let best = (0..5).max_by(|&i, &j| likelihoods[i].total_cmp(&likelihoods[j])).unwrap();
        assert!(best >= 2 && likelihoods[2] > likelihoods[1] + 100.0 && likelihoods[2] > likelihoods[best] - 10.0);
    }

    /// The system has the second moments that it was made from, at every lag up to its order.
    #[test]
    fn the_system_has_the_recorded_moments() {
        let mut moments = Moments::new(2, 3);
        // With a mean, which counts.
        let data = Mat::from_fn(300, 2, |t, j| sequence(300, 7)[(t, j)] + 1.5);
        moments.add(data.as_ref()).unwrap();
        for model in moments.autoregressions().unwrap() {
            let system = model.system().unwrap();
            assert!(system.spectral_radius() < 1.0);
            let off = |i: usize| (model.mean()[i] - data.col(i).iter().sum::<f64>() / 300.0).abs();
            assert!(off(0) < 1e-12 && off(1) < 1e-12);
            let (p, k) = (model.order(), 2);
            let covariance = GramianFactors::analytic(&system).unwrap().controllability();
            // The state is made of inputs: its covariance is a block Toeplitz matrix of the autocovariances, and that of the mean 1.
            assert_eq!(system.states(), p * k + 1);
            assert!((covariance[(p * k, p * k)] - 1.0).abs() < 1e-12);
            for lag in 0..p {
                let expected = moments.autocovariance(lag, model.mean());
                let found = covariance.submatrix(0, 2 * lag, 2, 2);
                assert!((found - &expected).norm_l2() < 1e-6 * expected.norm_l2(), "{lag}: {found:?} {expected:?}");
            }
            // The mean square of the outputs is the recorded one, about zero.
            let squares = crate::norms::h2_norm(&system).unwrap().powi(2);
            let recorded = (moments.products[0][(0, 0)] + moments.products[0][(1, 1)]) / 300.0;
            assert!((squares / recorded - 1.0).abs() < 1e-6, "{squares} {recorded}");
        }
    }

    #[test]
    fn what_is_hard_to_fit_stays_stable_or_is_refused() {
        // A sinusoid, a constant, and inputs that are copies of each other.
        let wave = Mat::from_fn(200, 2, |t, j| if j == 0 { (0.3 * t as f64).sin() } else { 1.0 });
        let copies = Mat::from_fn(50, 3, |t, j| (t as f64).cos() * (1.0 + j as f64));
        for data in [wave, copies] {
            let mut moments = Moments::new(data.ncols(), 5);
            moments.add(data.as_ref()).unwrap();
            for model in moments.autoregressions().unwrap() {
                model.system().unwrap();
            }
        }
        let error = |m: Mat<f64>| {
            let mut moments = Moments::new(2, 1);
            moments.add(m.as_ref()).and_then(|()| moments.autoregressions()).unwrap_err().to_string()
        };
        assert!(error(Mat::zeros(4, 2)).contains("all recorded ones are zero"));
        assert!(error(Mat::zeros(0, 2)).contains("all recorded ones are zero"));
        assert!(error(Mat::zeros(4, 3)).contains("(4, 3)"));
        assert!(error(Mat::from_fn(4, 2, |_, _| f64::NAN)).contains("NaN"));
        let mut moments = Moments::new(1, 2);
        moments.add(Mat::from_fn(9, 1, |t, _| (t as f64).sin()).as_ref()).unwrap();
        let models = moments.autoregressions().unwrap();
        assert!(models[2].log_likelihood(Mat::zeros(5, 1).as_ref(), 1).is_err());
        assert!(models[2].log_likelihood(Mat::zeros(5, 2).as_ref(), 2).is_err());
        assert_eq!(models[2].log_likelihood(Mat::zeros(2, 1).as_ref(), 2).unwrap().1, 0);
    }

    #[test]
    fn directions_are_those_that_b_reads() {
        let b = Mat::from_fn(3, 5, |i, j| ((i + 1) * (j + 2)) as f64 + if i == 2 { (j * j) as f64 } else { 0.0 });
        let q = directions_read(b.as_ref()).unwrap();
        assert_eq!(q.shape(), (2, 5));
        assert!((&q * q.transpose() - Mat::<f64>::identity(2, 2)).norm_l2() < 1e-13);
        assert!((&b * q.transpose() * &q - &b).norm_l2() < 1e-12 * b.norm_l2());
        assert_eq!(directions_read(Mat::zeros(2, 4).as_ref()).unwrap().shape(), (0, 4));
    }
}
