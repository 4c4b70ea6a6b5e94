//! A training step of `TinyGPT` with a frozen backbone: forward, backward, `AdamW`.

use crate::optimizer::Optimizer;
use crate::protocol::{Program, Report, Tensors, named};
use anyhow::{Result, anyhow, ensure};
use hankel_core::{Gradients, Precision, Random, Tensor, with_precision};
use hankel_models::adapters::{Hrm, HrmConfig, HrmPreset, Lora, LoraConfig};
use hankel_models::{AdapterConfig, AdapterSet, Backbone, Parameter, Pass, StepKey, TinyGpt, TinyGptConfig};
use hankel_ops::{ScanPath, Targets};
use serde::Deserialize;

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
    adapter: Adapter,
    /// How the recurrence is evaluated; by the library's own rule when not given.
    scan: Option<ScanPath>,
    precision: String,
    batch: usize,
    /// Sequences that go forwards and backwards at once; all of them when not given.
    slice: Option<usize>,
    steps: usize,
    layers: usize,
    d_model: usize,
    heads: usize,
}

/// Rank of LoRA.
pub const RANK: usize = 16;
/// States of HRM.
const STATES: usize = 32;

/// A model with an adapter, a batch and an optimizer.
pub struct Step {
    model: TinyGpt,
    adapters: AdapterSet,
    optimizer: Optimizer,
    precision: Precision,
    tokens: Tensor,
    targets: Tensor,
    /// Tokens, targets and weights of each slice of the batch.
    slices: Vec<[Tensor; 3]>,
}

impl Step {
    /// Everything is drawn from fixed seeds.
    pub fn new(settings: &Settings) -> Result<Self> {
        let &Settings { batch, steps, layers, d_model, heads, .. } = settings;
        let config =
            TinyGptConfig { layers, d_model, heads, d_ff: 4 * d_model, context: steps, ..TinyGptConfig::default() };
        let model = TinyGpt::new(&config, 0)?;
        // Biases and gains that would show if one side left them out.
        for parameter in model.parameters().iter().filter(|parameter| parameter.tensor().shape().len() == 1) {
            disturb(parameter, 0.02)?;
        }
        let adapter = match settings.adapter {
            Adapter::Lora => AdapterConfig::linear::<Lora>(&LoraConfig::new(RANK)),
            Adapter::Hrm => {
                let config = HrmConfig::new(HrmPreset::Paper, STATES, d_model, steps);
                AdapterConfig::stream::<Hrm>(&HrmConfig { scan: settings.scan.unwrap_or(config.scan), ..config })
            }
        };
        let adapters = AdapterSet::new(&adapter, &model.placement(), 0)?;
        // LoRA begins at zero, where half of its gradients are.
        for parameter in adapters.parameters().iter().filter(|parameter| parameter.name().contains("lora_B")) {
            disturb(parameter, 0.02)?;
        }
        ensure!(batch > 0 && steps > 0 && settings.slice != Some(0), "a batch needs sequences and tokens");
        let ids = |name: &str| -> Vec<u32> {
            let random = Random::new(0, name, 0);
            (0..(batch * steps) as u64).map(|i| random.below(i, config.vocabulary) as u32).collect()
        };
        let (tokens, targets) = (ids("tokens"), ids("targets"));
        let size = settings.slice.unwrap_or(batch) * steps;
        let slices = tokens.chunks(size).zip(targets.chunks(size)).map(|(tokens, targets)| {
            let shape = [tokens.len() / steps, steps];
            let ids = |ids: &[u32]| Tensor::from_vec(ids.to_vec(), shape);
            anyhow::Ok([ids(tokens)?, ids(targets)?, Tensor::full(shape, 1.0_f32)])
        });
        Ok(Step {
            optimizer: Optimizer::new(adapters.parameters())?,
            precision: settings.precision.parse().map_err(|problem: String| anyhow!(problem))?,
            slices: slices.collect::<Result<_>>()?,
            tokens: Tensor::from_vec(tokens, [batch, steps])?,
            targets: Tensor::from_vec(targets, [batch, steps])?,
            model,
            adapters,
        })
    }

    fn differentiate(&self) -> Result<(f64, Gradients)> {
        let normalizer = self.tokens.elements() as f64;
        let (mut sum, mut gradients) = (0.0, Gradients::default());
        for [tokens, targets, weights] in &self.slices {
            let targets = Targets { tokens: targets, weights, smoothing: 0.0, normalizer };
            let (loss, of_slice) = with_precision(self.precision, || {
                let mut pass = Pass::training(StepKey { seed: 0, step: 0 });
                let loss = self.model.loss(tokens, targets, &self.adapters, &mut pass)?;
                anyhow::Ok((loss.item()?, loss.backward()?))
            })?;
            sum += loss;
            gradients.accumulate(of_slice)?;
        }
        Ok((sum, gradients))
    }
}

/// Adds normal values to a parameter.
pub fn disturb(parameter: &Parameter, std: f64) -> Result<()> {
    let (values, shape) = (parameter.tensor().to_f64_vec(), parameter.tensor().shape().to_vec());
    let random = Random::new(0, parameter.name(), 1);
    let values = values.iter().enumerate().map(|(i, value)| value + std * random.normal(i as u64)).collect();
    Ok(parameter.set(&Tensor::from_vec::<f64>(values, shape)?)?)
}

impl Program for Step {
    fn inputs(&self) -> Result<Tensors> {
        let parameters = self.model.parameters().into_iter().chain(self.adapters.parameters());
        let mut all: Tensors = parameters.map(|p| (p.name().to_owned(), p.tensor().detach())).collect();
        all.extend(named([("tokens", &self.tokens), ("targets", &self.targets)]));
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
