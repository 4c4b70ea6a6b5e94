//! A training step of one Mistral block with its real sizes: weights in 4 bits, `LoRA` on queries and values. The block's input
//! has a gradient, as in all layers of a model but the lowest.

use crate::nf4::quantize;
use crate::optimizer::Optimizer;
use crate::protocol::{Program, Report, Tensors, named};
use crate::step::{RANK, disturb};
use anyhow::{Context, Result, anyhow};
use hankel_core::{DType, Gradients, Precision, Random, Tensor, with_precision};
use hankel_models::adapters::{Lora, LoraConfig};
use hankel_models::{AdapterConfig, AdapterSet, Backbone, Decoder, DecoderConfig, Pass, StepKey};
use serde::Deserialize;

/// What is run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    steps: usize,
    precision: String,
    d_model: usize,
    d_ff: usize,
    heads: usize,
    kv_heads: usize,
}

/// A block with an adapter, its input and the gradient of its normalised output.
pub struct Block {
    model: Decoder,
    adapters: AdapterSet,
    optimizer: Optimizer,
    precision: Precision,
    x: Tensor,
    g: Tensor,
}

impl Block {
    /// Everything is drawn from fixed seeds.
    pub fn new(settings: &Settings) -> Result<Self> {
        let &Settings { steps, d_model, d_ff, heads, kv_heads, .. } = settings;
        let config = DecoderConfig {
            vocabulary: 2,
            layers: 1,
            d_model,
            d_ff,
            heads,
            kv_heads,
            head_dim: d_model / heads,
            ..DecoderConfig::mistral_7b()
        };
        let model = Decoder::new(&config, 0)?;
        for parameter in model.parameters().iter().filter(|parameter| parameter.name().ends_with("_proj.weight")) {
            parameter.update(|weight| quantize(weight).map(|packed| *weight = packed))?;
        }
        let adapters = AdapterSet::new(&AdapterConfig::linear::<Lora>(&LoraConfig::new(RANK)), &model.placement(), 0)?;
        for parameter in adapters.parameters().iter().filter(|parameter| parameter.name().contains("lora_B")) {
            disturb(parameter, 0.02)?;
        }
        let normal = |name, std| {
            let values = Random::new(0, name, 0).normal_vec::<f32>(steps * d_model, std);
            Tensor::from_vec(values, [1, steps, d_model])
        };
        Ok(Block {
            optimizer: Optimizer::new(adapters.parameters())?,
            precision: settings.precision.parse().map_err(|problem: String| anyhow!(problem))?,
            x: normal("x", 1.0)?.parameter()?,
            g: normal("g", 1e-3)?,
            model,
            adapters,
        })
    }

    fn differentiate(&self) -> Result<(Tensor, Gradients)> {
        with_precision(self.precision, || {
            let mut pass = Pass::training(StepKey { seed: 0, step: 0 });
            let y = self.model.hidden_of(&self.x, &self.adapters, &mut pass)?;
            Ok((y.detach(), y.backward_with(self.g.clone())?))
        })
    }
}

impl Program for Block {
    fn inputs(&self) -> Result<Tensors> {
        let mut all = named([("x", &self.x), ("g", &self.g)]);
        for parameter in self.model.parameters() {
            let dtype = if parameter.tensor().dtype() == DType::Nf4 { DType::BF16 } else { DType::F32 };
            all.insert(parameter.name().to_owned(), parameter.tensor().to_dtype(dtype)?);
        }
        all.extend(self.adapters.parameters().iter().map(|p| (p.name().to_owned(), p.tensor().detach())));
        Ok(all)
    }

    fn outputs(&mut self) -> Result<Tensors> {
        let (y, gradients) = self.differentiate()?;
        let mut all: Tensors = self.optimizer.gradients(&gradients)?.into_iter().collect();
        all.extend(named([("y", &y), ("gradient/x", gradients.get(&self.x).context("no gradient of the input")?)]));
        Ok(all)
    }

    fn run(&mut self, report: &mut Report) -> Result<()> {
        let norm = report.time("step", || {
            let (_, gradients) = self.differentiate()?;
            self.optimizer.step(&gradients)
        })?;
        report.value("gradient norm", norm);
        Ok(())
    }
}
