//! Diagonal systems whose coefficients change with the token: what selective adapters are, and what truncation works on.

use super::{Memory, last_states};
use crate::lti::varying::Coefficients;
use faer::{Mat, MatRef};
use hankel_core::{Error, Result, Tensor};
use hankel_ops::{ScanPath, exp, linear, multiply, scale, varying_scan};
use rayon::prelude::*;

/// A system along an input `x` `[batch, T, D]`:
///
/// ```text
/// s_t = a_t * s_{t-1} + b_t * (B x_t)        a_t = exp(-rate_t)
/// y_t = C (c_t * s_t)
/// ```
pub struct VaryingSystem {
    /// `-ln a_t`, `[batch, T, d]`.
    pub rate: Tensor,
    /// `b_t`, `[batch, T, d]`.
    pub input: Tensor,
    /// `c_t`, `[batch, T, d]`.
    pub output: Tensor,
    /// `B`, `[d, D]`.
    pub b: Tensor,
    /// `C`, `[D, d]`.
    pub c: Tensor,
}

impl VaryingSystem {
    pub(crate) fn poles(&self) -> Result<Tensor> {
        exp(&scale(&self.rate, -1.0)?)
    }

    fn inputs(&self, x: &Tensor) -> Result<Tensor> {
        multiply(&linear(x, &self.b, None)?, &self.input)
    }

    /// The states `[batch, T, d]` for the input `x`, from `before` `[batch, d]`; from zero without.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn states(&self, x: &Tensor, before: Option<&Tensor>) -> Result<Tensor> {
        self.states_with(&self.poles()?, x, before)
    }

    fn states_with(&self, poles: &Tensor, x: &Tensor, before: Option<&Tensor>) -> Result<Tensor> {
        let u = self.inputs(x)?;
        varying_scan(poles, &u, before, ScanPath::Chunked)
    }

    /// The output for `x` and the memory, as [`StreamAdapter::forward`](super::StreamAdapter::forward) gives them.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn forward(&self, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        self.forward_with(&self.poles()?, x, memory)
    }

    /// The same with other poles `[batch, T, d]` than `exp(-rate_t)`.
    pub(crate) fn forward_with(&self, poles: &Tensor, x: &Tensor, memory: Option<&Memory>) -> Result<(Tensor, Memory)> {
        let before = memory.and_then(|memory| memory.first());
        let s = self.states_with(poles, x, before)?;
        Ok((linear(&multiply(&s, &self.output)?, &self.c, None)?, vec![last_states(&s, before)?]))
    }

    /// The coefficients along every sequence of the batch.
    pub(super) fn along(&self) -> Vec<[Vec<f64>; 3]> {
        let [batch, steps, d] = [0, 1, 2].map(|i| self.rate.shape()[i]);
        let all = [&self.rate, &self.input, &self.output].map(Tensor::to_f64_vec);
        let one = |b: usize| all.each_ref().map(|values| values[b * steps * d..][..steps * d].to_vec());
        (0..batch).map(one).collect()
    }
}

/// Coefficients as the linear systems take them.
pub(super) fn coefficients([rate, input, output]: &[Vec<f64>; 3]) -> Coefficients<'_> {
    Coefficients { rate, input, output }
}

/// A truncated state: `z` of `order` numbers stands for the states `R z`, and `z = L s`.
///
/// ```text
/// z_t = L (a_t * (R z_{t-1}) + b_t * (B x_t))
/// y_t = C (c_t * (R z_t))
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Reduction {
    /// L, [r, d].
    pub left: Mat<f64>,
    /// R, [d, r].
    pub right: Mat<f64>,
}

impl Reduction {
    /// Number of states kept.
    pub fn order(&self) -> usize {
        self.left.nrows()
    }

    /// As [`VaryingSystem::forward`], with states of the smaller dimension. The recurrence runs in double precision.
    ///
    /// # Errors
    /// When a gradient is asked for: truncated adapters of this kind are for use, not for training.
    pub(super) fn forward(
        &self,
        system: &VaryingSystem,
        x: &Tensor,
        memory: Option<&Memory>,
    ) -> Result<(Tensor, Memory)> {
        let (r, d) = (self.order(), self.right.nrows());
        let &[batch, steps, _] = &x.shape()[..] else {
            return Err(Error::shape("truncated", format!("expected [batch, T, D], found {}", x.shape())));
        };
        let (poles, inputs) = (system.poles()?, system.inputs(x)?);
        let before = memory.and_then(|memory| memory.first()).map(Tensor::to_f64_vec);
        let (a, u) = (poles.to_f64_vec(), inputs.to_f64_vec());
        let (left, right) = (rows(self.left.as_ref()), rows(self.right.as_ref()));
        let sequences: Vec<(Vec<f64>, Vec<f64>)> = (0..batch)
            .into_par_iter()
            .map(|b| {
                let mut z = before.as_ref().map_or_else(|| vec![0.0; r], |z| z[b * r..][..r].to_vec());
                let mut states = vec![0.0; steps * d];
                for (t, s) in states.chunks_mut(d.max(1)).enumerate() {
                    let at = (b * steps + t) * d;
                    times(&right, &z, s);
                    let moved: Vec<f64> = (0..d).map(|i| a[at + i] * s[i] + u[at + i]).collect();
                    times(&left, &moved, &mut z);
                    times(&right, &z, s);
                }
                (states, z)
            })
            .collect();
        let (states, last): (Vec<_>, Vec<_>) = sequences.into_iter().unzip();
        let of_type = |values: Vec<f64>, shape: &[usize]| {
            Tensor::from_vec(values, shape)?.to_dtype(x.dtype())?.to_device(x.device())
        };
        let states = of_type(states.concat(), &[batch, steps, d])?;
        let states = states.from_untracked("truncated recurrence", &[&poles, &inputs])?;
        let y = linear(&multiply(&states, &system.output)?, &system.c, None)?;
        Ok((y, vec![of_type(last.concat(), &[batch, r])?]))
    }
}

fn rows(m: MatRef<'_, f64>) -> Vec<Vec<f64>> {
    (0..m.nrows()).map(|i| m.row(i).iter().copied().collect()).collect()
}

fn times(m: &[Vec<f64>], x: &[f64], out: &mut [f64]) {
    for (out, row) in out.iter_mut().zip(m) {
        *out = row.iter().zip(x).map(|(m, x)| m * x).sum();
    }
}
