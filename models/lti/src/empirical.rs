//! Gramians from data (R7), for systems that vary in time or depend on their input, and as a choice for fixed ones.
//!
//! S. Lall, J. E. Marsden, S. Glavaški, A subspace approach to balanced truncation for model reduction of nonlinear control
//! systems, Int. J. Robust Nonlinear Control 12 (2002).

use super::linalg::{above, compress_columns};
use super::{LtiError, Result};
use faer::{Mat, MatRef};

/// Accumulates a Gramian `1/count sum x x^T` as a factor, in d x d memory however many rows are added.
#[derive(Debug, Clone)]
pub struct EmpiricalFactor {
    dimension: usize,
    /// L, [d, k], of the sum so far.
    factor: Mat<f64>,
}

impl EmpiricalFactor {
    /// An empty sum for vectors of length `dimension`.
    pub fn new(dimension: usize) -> Self {
        Self { dimension, factor: Mat::zeros(dimension, 0) }
    }

    /// Adds `sum over the rows x of rows: x x^T`; `rows` is [n, d].
    ///
    /// # Errors
    /// Rows of another length, values that are not finite.
    pub fn add(&mut self, rows: MatRef<'_, f64>) -> Result<()> {
        if rows.ncols() != self.dimension {
            return Err(LtiError::Shape {
                what: "recorded vectors".into(),
                expected: (rows.nrows(), self.dimension),
                got: (rows.nrows(), rows.ncols()),
            });
        }
        for row in 0..rows.nrows() {
            for column in 0..rows.ncols() {
                let value = rows[(row, column)];
                if !value.is_finite() {
                    return Err(LtiError::NotFinite { what: "recorded vectors".into(), row, column, value });
                }
            }
        }
        let stacked = above(self.factor.transpose(), rows);
        self.factor = compress_columns(stacked.transpose());
        Ok(())
    }

    /// Factor L, [d, k], of the sum divided by `count`.
    ///
    /// # Errors
    /// A count of zero.
    pub fn finish(self, count: usize) -> Result<Mat<f64>> {
        if count == 0 {
            return Err(LtiError::Unsupported("there are no recorded states to form a Gramian from".into()));
        }
        Ok(self.factor * faer::Scale(1.0 / (count as f64).sqrt()))
    }
}

/// Factor of `Wc = 1/(N T) sum s s^T` from recorded states, [N T, d], of any system.
///
/// # Errors
/// No rows, rows of another width, and states that are not finite.
pub fn controllability_factor(states: usize, recorded: MatRef<'_, f64>) -> Result<Mat<f64>> {
    let mut sum = EmpiricalFactor::new(states);
    sum.add(recorded)?;
    sum.finish(recorded.nrows())
}
