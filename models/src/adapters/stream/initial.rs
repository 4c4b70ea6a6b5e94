//! Poles: initial ones, and what is trained of them.

use crate::parameter::Parameter;
use hankel_core::{Result, Tensor};
use hankel_ops::{add, exp, scale, scale_columns};

/// Logarithms of `d` rates `-ln a`, log-spaced from those of `a_min` to those of `a_max`.
pub(crate) fn log_spaced(d: usize, a_min: f64, a_max: f64) -> Vec<f32> {
    let (fast, slow) = ((-a_min.ln()).ln(), (-a_max.ln()).ln());
    (0..d).map(|i| (fast + (slow - fast) * i as f64 / (d - 1).max(1) as f64) as f32).collect()
}

/// `exp(-exp(log_a + log_dt))`.
pub(crate) fn radius(log_a: &Parameter, log_dt: &Parameter) -> Result<Tensor> {
    exp(&scale(&exp(&add(&log_a.tensor(), &log_dt.tensor())?)?, -1.0)?)
}

/// Signs `[d]`: 1, -1, 1, -1 ...
pub(crate) fn alternating(d: usize) -> Result<Tensor> {
    Tensor::from_vec((0..d).map(|i| if i % 2 == 0 { 1.0_f32 } else { -1.0 }).collect(), [d])
}

/// The states `start` `[d]` for every sequence of a batch, `[batch, d]`.
pub(crate) fn repeated(start: &Tensor, batch: usize) -> Result<Tensor> {
    let d = start.elements();
    scale_columns(&start.full_like([batch, d], 0.0)?, &start.full_like([d], 0.0)?, Some(start))
}
