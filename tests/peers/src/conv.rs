//! The diagonal recurrence by each evaluation, and the causal convolution with kernels of any form.

use crate::protocol::{Program, Report, Tensors, named};
use anyhow::{Context, Result};
use hankel_core::{Random, Tensor, no_grad};
use hankel_ops::{Poles, ScanPath, causal_conv, scan};
use serde::Deserialize;

/// What is run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// How the recurrence is evaluated; the convolution when not given.
    scan: Option<ScanPath>,
    batch: usize,
    steps: usize,
    states: usize,
    /// Calls in a run, whose mean time is reported: some are short.
    calls: usize,
}

/// An input, the gradient of the output, and what the input is filtered by.
pub struct Conv {
    scan: Option<ScanPath>,
    calls: usize,
    u: Tensor,
    g: Tensor,
    /// Poles `[d]` or kernels `[d, T]`.
    filter: Tensor,
}

impl Conv {
    /// Everything is drawn from fixed seeds.
    pub fn new(settings: &Settings) -> Result<Self> {
        let &Settings { scan, batch, steps, states, calls } = settings;
        let shape = [batch, steps, states];
        let normal = |name, count| Random::new(0, name, 0).normal_vec::<f32>(count, 1.0);
        let filter = if scan.is_some() {
            // Time constants from two steps to the whole length.
            let rate = |i: usize| 0.5 * (2.0 / steps as f64).powf(i as f64 / (states - 1).max(1) as f64);
            Tensor::from_vec((0..states).map(|i| (-rate(i)).exp() as f32).collect(), [states])?
        } else {
            Tensor::from_vec(normal("kernel", states * steps), [states, steps])?
        };
        Ok(Conv {
            scan,
            calls,
            u: Tensor::from_vec(normal("u", batch * steps * states), shape)?.parameter()?,
            g: Tensor::from_vec(normal("g", batch * steps * states), shape)?,
            filter: filter.parameter()?,
        })
    }

    fn forward(&self) -> Result<Tensor> {
        Ok(match self.scan {
            Some(path) => scan(&self.u, &Poles::Diagonal(self.filter.clone()), None, path)?,
            None => causal_conv(&self.u, &self.filter)?,
        })
    }

    fn differentiate(&self) -> Result<[Tensor; 3]> {
        let y = self.forward()?;
        let mut gradients = y.backward_with(self.g.clone())?;
        let mut take = |leaf| gradients.take(leaf).context("no gradient");
        Ok([take(&self.u)?, take(&self.filter)?, y.detach()])
    }
}

impl Program for Conv {
    fn inputs(&self) -> Result<Tensors> {
        Ok(named([("u", &self.u), ("g", &self.g), ("filter", &self.filter)]))
    }

    fn outputs(&mut self) -> Result<Tensors> {
        let [d_u, d_filter, y] = self.differentiate()?;
        Ok(named([("y", &y), ("gradient/u", &d_u), ("gradient/filter", &d_filter)]))
    }

    fn run(&mut self, report: &mut Report) -> Result<()> {
        report.mean("forward", self.calls, || no_grad(|| self.forward()))?;
        report.mean("forward and backward", self.calls, || self.differentiate())?;
        Ok(())
    }
}
