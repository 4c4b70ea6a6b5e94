//! Hankel singular values and the projections onto the states they belong to.

use super::gramians::GramianFactors;
use super::jacobi::{jacobi_svd, plain_svd};
use super::linalg::{gain_exponents, ldexp, product, times_power_of_two};
use super::{LtiError, Result};
use faer::Mat;
use faer::linalg::solvers::Solve;

/// The singular value decomposition `Lo^T Lc = U diag(sigma) V^T` that everything here rests on (R4).
///
/// Neither the product `Wc Wo` nor its eigenvalues are ever formed: squaring would lose half of the digits.
#[derive(Debug, Clone)]
pub struct HankelSpectrum {
    values: Vec<f64>,
    rank: usize,
    /// What twice the sum of the discarded values is multiplied by to bound the error: 1 for the values of the system itself, `None` where
    /// nothing is known.
    bound_factor: Option<f64>,
    /// Whether the values are those of the analytic Gramians of the system itself.
    is_own: bool,
    /// The factors `Lo` and `Lc` with U and V: `Lo U` and `Lc V` are the unscaled left and right directions.
    factors: [Mat<f64>; 2],
    vectors: [Mat<f64>; 2],
}

/// Decompositions of more states are worth their time only where they keep digits.
const MANY_STATES: usize = 96;

impl HankelSpectrum {
    /// Decomposes the factors of the two Gramians.
    ///
    /// # Errors
    /// Values above rounding that are below the range of doubles; a decomposition that does not converge.
    pub fn new(factors: &GramianFactors) -> Result<Self> {
        let d = factors.lc.nrows();
        let (size_c, size_o) = gain_exponents(factors.lc.as_ref(), factors.lo.transpose());
        let lo = times_power_of_two(factors.lo.as_ref(), -size_o);
        let lc = times_power_of_two(factors.lc.as_ref(), -size_c);
        let core = product(lo.transpose(), lc.as_ref());
        // Factors from rounded matrix powers have no digits of small values to keep: there the fast decomposition does.
        let many = d > MANY_STATES && factors.sensitivity > 1.0;
        let svd = if many { plain_svd(core.as_ref()) } else { jacobi_svd(core.as_ref()) }?;
        let mut values = svd.values;
        values.resize(d, 0.0);
        // Entries of Lo^T Lc are sums that may cancel: what they are sums of sets the size of their rounding errors. Taking
        // absolute values entry by entry keeps the threshold independent of the scaling of the states.
        let absolute = |m: &Mat<f64>| Mat::from_fn(m.nrows(), m.ncols(), |i, j| m[(i, j)].abs());
        let summed = if many {
            // An upper bound of the norm of the product, which is not formed.
            (0..d).map(|i| lo.row(i).norm_l2() * lc.row(i).norm_l2()).sum()
        } else {
            product(absolute(&lo).transpose(), absolute(&lc).as_ref()).norm_l2()
        };
        let threshold = d as f64 * f64::EPSILON * factors.sensitivity * summed;
        let rank = values.iter().take_while(|&&s| s > threshold).count();
        values.iter_mut().for_each(|s| *s = ldexp(*s, size_o + size_c));
        // Directions are divided by the roots of these.
        if values[..rank].contains(&0.0) {
            return Err(LtiError::Underflow);
        }
        Ok(Self {
            rank,
            is_own: factors.residual_c.is_some(),
            bound_factor: (factors.residual_c.is_some() && factors.clamped_poles == 0).then_some(1.0),
            factors: [factors.lo.clone(), factors.lc.clone()],
            vectors: [svd.u, svd.v],
            values,
        })
    }

    /// The same values, used to bound the error of another system: at most `factor` times that of the system the values belong to. Values
    /// without a guarantee still have none.
    pub(crate) fn with_bound_factor(self, factor: f64) -> Self {
        Self { is_own: false, bound_factor: self.bound_factor.map(|own| own * factor), ..self }
    }

    /// Whether the values are those of the analytic Gramians of the system itself.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// All d Hankel singular values, descending.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Number of values above rounding: `sigma_i > d eps` times the `sensitivity` of the factors and the size of what the values were
    /// computed from. No reduction by them keeps more states.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// `2 (sigma_{order+1} + ... + sigma_d)`, the Glover bound of a truncation to `order` states.
    pub fn bound(&self, order: usize) -> f64 {
        glover_bound(&self.values, order)
    }

    /// The bound as a guarantee, of the error without weights. Values from time-limited, empirical or Enns' Gramians, or with poles
    /// taken for faster than they are, give none, unless all states are kept; those of modified weighted Gramians do.
    pub fn guarantee(&self, order: usize) -> Option<f64> {
        if order == self.values.len() { Some(0.0) } else { self.bound_factor.map(|factor| factor * self.bound(order)) }
    }

    /// The balancing projections `(T_l, T_r)`, [r, d] and [d, r], `T_l T_r = I`: `A_r = T_l A T_r`, `B_r = T_l B`,
    /// `C_r = C T_r` is the square-root balanced truncation.
    ///
    /// # Errors
    /// `order` above the numerical rank.
    pub fn projections(&self, order: usize) -> Result<(Mat<f64>, Mat<f64>)> {
        if order > self.rank {
            return Err(LtiError::OrderTooLarge { order, states: self.rank });
        }
        let (left, right) = self.directions(order);
        let d = left.nrows();
        let root: Vec<f64> = self.values[..order].iter().map(|s| s.sqrt()).collect();
        let left = Mat::from_fn(order, d, |i, j| left[(j, i)] / root[i]);
        let right = Mat::from_fn(d, order, |i, j| right[(i, j)] / root[j]);
        // T_l T_r is the identity up to the rounding of small values. Making it one exactly keeps a slow pole's distance from
        // the circle, which an error of 1e-10 in the product would change by a factor.
        let left = product(left.as_ref(), right.as_ref()).partial_piv_lu().solve(&left);
        Ok((left, right))
    }

    /// The unscaled directions `(Lo U, Lc V)` of the first `order` values, each [d, r], for methods that choose their own
    /// bases of the same two subspaces.
    ///
    /// # Panics
    /// When `order` is above the number of columns of a factor.
    pub fn directions(&self, order: usize) -> (Mat<f64>, Mat<f64>) {
        let take = |side: usize| product(self.factors[side].as_ref(), self.vectors[side].subcols(0, order));
        (take(0), take(1))
    }
}

/// `2 * sum of values[order..]`, added from the small end.
pub fn glover_bound(values: &[f64], order: usize) -> f64 {
    // From 0: `sum` of nothing is -0.
    2.0 * values.iter().skip(order).rev().fold(0.0_f64, |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinearSystem, StateMatrix};

    /// Both values below the range, and the second one of both.
    #[test]
    fn values_below_the_range_of_doubles_are_refused() {
        for (poles, gain) in [(vec![0.5, 0.3], 1e-165), (vec![0.9, 0.1], 1.6e-162)] {
            let d = poles.len();
            let (b, c) = (Mat::from_fn(d, 1, |_, _| gain), Mat::from_fn(1, d, |_, _| gain));
            let system = LinearSystem::new(StateMatrix::Diagonal(poles), b, c, None).unwrap();
            let refused = HankelSpectrum::new(&GramianFactors::analytic(&system).unwrap());
            assert_eq!(refused.unwrap_err(), LtiError::Underflow);
        }
        // What has no input, or no output, has nothing to lose.
        let none = GramianFactors::without_equation(Mat::zeros(2, 2), Mat::identity(2, 2), 1.0);
        assert_eq!(HankelSpectrum::new(&none).unwrap().rank(), 0);
    }

    #[test]
    fn a_bound_is_never_minus_zero() {
        for (values, order) in [(&[2.0, 1.0][..], 2), (&[][..], 0)] {
            assert!(glover_bound(values, order).is_sign_positive());
        }
        assert_eq!(glover_bound(&[2.0, 1.0, 0.5], 1), 3.0);
    }
}
