//! A linear layer with a frozen weight: packed in 4 bits, or dense.

use crate::protocol::{Program, Report, Tensors, named};
use anyhow::{Context, Result, anyhow};
use hankel_core::{DType, Precision, Random, Tensor, no_grad, with_precision};
use hankel_ops::{linear, linear::nf4};
use serde::Deserialize;

/// What is run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    inputs: usize,
    outputs: usize,
    rows: usize,
    precision: String,
    /// Whether the weight is decoded beforehand, to f32.
    dense: bool,
}

/// A weight, an input and the gradient of the output.
pub struct Nf4 {
    precision: Precision,
    weight: Tensor,
    x: Tensor,
    g: Tensor,
}

impl Nf4 {
    /// Everything is drawn from fixed seeds.
    pub fn new(settings: &Settings) -> Result<Self> {
        let &Settings { inputs, outputs, rows, dense, .. } = settings;
        let normal = |name, [rows, cols]: [usize; 2], std| {
            Tensor::from_vec(Random::new(0, name, 0).normal_vec::<f32>(rows * cols, std), [rows, cols])
        };
        let packed = quantize(&normal("weight", [outputs, inputs], 0.02)?)?;
        Ok(Nf4 {
            precision: settings.precision.parse().map_err(|problem: String| anyhow!(problem))?,
            weight: if dense { packed.to_dtype(DType::F32)? } else { packed },
            x: normal("x", [rows, inputs], 1.0)?.parameter()?,
            g: normal("g", [rows, outputs], 1.0)?,
        })
    }

    fn forward(&self) -> Result<Tensor> {
        Ok(with_precision(self.precision, || linear(&self.x, &self.weight, None))?)
    }

    fn input_gradient(&self, y: &Tensor) -> Result<Tensor> {
        y.backward_with(self.g.clone())?.take(&self.x).context("no gradient")
    }
}

/// The weight in 4 bits. It is rounded to `bf16` first, so that its decoded values are numbers of that type.
pub fn quantize(weight: &Tensor) -> Result<Tensor> {
    Ok(nf4::quantize(&weight.to_dtype(DType::BF16)?, true)?)
}

impl Program for Nf4 {
    fn inputs(&self) -> Result<Tensors> {
        Ok(named([("weight", &self.weight.to_dtype(DType::BF16)?), ("x", &self.x), ("g", &self.g)]))
    }

    fn outputs(&mut self) -> Result<Tensors> {
        let y = self.forward()?;
        Ok(named([("gradient/x", &self.input_gradient(&y)?), ("y", &y)]))
    }

    fn run(&mut self, report: &mut Report) -> Result<()> {
        report.time("forward", || no_grad(|| self.forward()))?;
        let y = self.forward()?;
        report.time("input gradient", || self.input_gradient(&y))?;
        Ok(())
    }
}
