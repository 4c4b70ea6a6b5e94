//! A training step of a decoder of some hundred million values from its GGUF file, weights in their blocks: `LoRA` on queries and values,
//! or HRM. The batch goes forwards and backwards in slices of one sequence, as `train fit` cuts it.

use crate::optimizer::Optimizer;
use crate::protocol::{Program, Report, Tensors, named};
use crate::step::{RANK, disturb};
use anyhow::{Result, anyhow, ensure};
use hankel_core::{DType, Device, Gradients, Precision, Random, Tensor, with_precision};
use hankel_models::adapters::{Hrm, HrmConfig, HrmPreset, Lora, LoraConfig};
use hankel_models::decoder::LoadOptions;
use hankel_models::{AdapterConfig, AdapterSet, Backbone, Decoder, Pass, StepKey};
use hankel_ops::Targets;
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Adapter {
    Lora,
    Hrm,
}

/// What is run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// A GGUF file, or a directory.
    model: PathBuf,
    adapter: Adapter,
    /// `f32` or `bf16`.
    precision: String,
    batch: usize,
    steps: usize,
}

/// States of HRM.
const STATES: usize = 32;

/// A model with an adapter, a batch and an optimizer.
pub struct Training {
    model: Decoder,
    precision: Precision,
    adapters: AdapterSet,
    optimizer: Optimizer,
    tokens: Tensor,
    targets: Tensor,
    /// Tokens and targets of each sequence, `[1, T]`.
    sequences: Vec<[Tensor; 2]>,
    weights: Tensor,
}

impl Training {
    /// Tokens and adapters are drawn from fixed seeds.
    pub fn new(settings: &Settings) -> Result<Self> {
        let &Settings { batch, steps, .. } = settings;
        ensure!(batch > 0 && steps > 0, "a batch needs sequences and tokens");
        let model = Decoder::load(&settings.model, LoadOptions { quantize: false, device: Device::Cpu })?;
        let adapter = match settings.adapter {
            Adapter::Lora => AdapterConfig::linear::<Lora>(&LoraConfig::new(RANK)),
            Adapter::Hrm => AdapterConfig::stream::<Hrm>(&HrmConfig::new(
                HrmPreset::Identity,
                STATES,
                model.config().d_model,
                steps,
            )),
        };
        let adapters = AdapterSet::new(&adapter, &model.placement(), 0)?;
        for parameter in adapters.parameters().iter().filter(|parameter| parameter.name().contains("lora_B")) {
            disturb(parameter, 0.02)?;
        }
        let vocabulary = model.config().vocabulary;
        let ids = |name: &str| -> Vec<u32> {
            let random = Random::new(0, name, 0);
            (0..(batch * steps) as u64).map(|i| random.below(i, vocabulary) as u32).collect()
        };
        let (tokens, targets) = (ids("tokens"), ids("targets"));
        let rows = |ids: &[u32]| ids.chunks(steps).map(|row| Tensor::from_vec(row.to_vec(), [1, steps])).collect();
        let rows: [hankel_core::Result<Vec<Tensor>>; 2] = [rows(&tokens), rows(&targets)];
        let [token_rows, target_rows] = rows;
        Ok(Training {
            precision: settings.precision.parse().map_err(|problem: String| anyhow!(problem))?,
            optimizer: Optimizer::new(adapters.parameters())?,
            tokens: Tensor::from_vec(tokens, [batch, steps])?,
            targets: Tensor::from_vec(targets, [batch, steps])?,
            sequences: token_rows?.into_iter().zip(target_rows?).map(|(x, y)| [x, y]).collect(),
            weights: Tensor::full([1, steps], 1.0_f32),
            model,
            adapters,
        })
    }

    fn differentiate(&self) -> Result<(f64, Gradients)> {
        let normalizer = self.tokens.elements() as f64;
        let (mut sum, mut gradients) = (0.0, Gradients::default());
        for [tokens, targets] in &self.sequences {
            let targets = Targets { tokens: targets, weights: &self.weights, smoothing: 0.0, normalizer };
            let mut pass = Pass::training(StepKey { seed: 0, step: 0 });
            let (loss, of_sequence) = with_precision(self.precision, || {
                let loss = self.model.loss(tokens, targets, &self.adapters, &mut pass)?;
                anyhow::Ok((loss.item()?, loss.backward()?))
            })?;
            sum += loss;
            gradients.accumulate(of_sequence)?;
        }
        Ok((sum, gradients))
    }
}

impl Program for Training {
    fn inputs(&self) -> Result<Tensors> {
        let mut all = named([("tokens", &self.tokens), ("targets", &self.targets)]);
        for parameter in self.model.parameters() {
            all.insert(parameter.name().to_owned(), parameter.tensor().to_dtype(DType::F32)?);
        }
        all.extend(self.adapters.parameters().iter().map(|p| (p.name().to_owned(), p.tensor().detach())));
        Ok(all)
    }

    fn outputs(&mut self) -> Result<Tensors> {
        let (loss, gradients) = self.differentiate()?;
        let mut all: Tensors = self.optimizer.gradients(&gradients)?.into_iter().collect();
        all.insert("loss".to_owned(), Tensor::full([1], loss));
        Ok(all)
    }

    fn run(&mut self, report: &mut Report) -> Result<()> {
        let (loss, norm) = report.time("step", || {
            let (loss, gradients) = self.differentiate()?;
            anyhow::Ok((loss, self.optimizer.step(&gradients)?))
        })?;
        report.value("loss", loss);
        report.value("gradient norm", norm);
        Ok(())
    }
}
