//! One optimizer step, and what is needed to repeat it exactly.

use super::model::Model;
use crate::config::TrainConfig;
use crate::optim::factor;
use crate::results::Split;
use crate::tasks::{Batch, Order, Task};
use anyhow::{Context, Result, bail};
use hankel_core::autograd::find_non_finite;
use hankel_core::{Device, Error, Gradients, Tensor};
use hankel_models::adapters::Truncated;
use hankel_models::{Parameter, Role, StepKey};
use hankel_ops::optimizer::{AdamW, Moments, Rate, Scale, clip_factor, gradient_norm};
use hankel_ops::scale;
use std::collections::{BTreeMap, BTreeSet};

/// Prefix of what adapters remember between steps besides their parameters. It sorts behind all others.
const ADAPTERS: &str = "zz-adapters/";

/// A trained parameter with its moments and its share of the settings.
pub struct Trained {
    parameter: Parameter,
    moments: Moments,
    peak_lr: f64,
    weight_decay: f64,
}

/// The state of a stage's optimization.
pub struct Training<'a> {
    model: Model,
    task: &'a dyn Task,
    settings: &'a TrainConfig,
    seed: u64,
    trained: Vec<Trained>,
    order: Order,
    step: u64,
    regularization: f64,
    /// The step after which the adapters were truncated, and the length of the warm-up after it.
    reduced: Option<(u64, u64)>,
}

/// What a step reports.
#[derive(Debug, Clone)]
pub struct StepReport {
    /// The minimised loss, mean over the targets of the step.
    pub loss: f64,
    /// Global gradient norm before clipping.
    pub gradient_norm: f64,
    /// Learning rate of the main group.
    pub learning_rate: f64,
    /// Sequence positions processed.
    pub tokens: u64,
    /// The ranks of all projections, when they were shared out anew (AdaLoRA).
    pub ranks: Option<Vec<(String, usize)>>,
}

impl<'a> Training<'a> {
    /// Training of whatever is trainable in `model`, from the beginning.
    ///
    /// # Errors
    /// When a parameter is of a type that cannot be trained.
    pub fn new(model: &Model, task: &'a dyn Task, settings: &'a TrainConfig, seed: u64) -> Result<Self> {
        Ok(Training {
            trained: trained(model, settings)?,
            order: Order::new(seed, task.sequences(Split::Train)),
            model: model.clone(),
            task,
            settings,
            seed,
            step: 0,
            regularization: 0.0,
            reduced: None,
        })
    }

    /// Adds `weight` times the sum of all layers' Hankel singular values to the loss of every step.
    pub fn regularized(self, weight: f64) -> Self {
        Training { regularization: weight, ..self }
    }

    /// The model as it is trained: its adapters change when they are truncated.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Goes on with truncated adapters: first moments carried across where there is something to carry, second moments from
    /// zero, a warm-up of `warmup` steps.
    ///
    /// # Errors
    /// When a parameter is of a type that cannot be trained.
    pub fn reduce(&mut self, truncated: &Truncated, warmup: u64) -> Result<()> {
        let mut before: BTreeMap<String, Moments> =
            self.trained.drain(..).map(|t| (t.parameter.name().to_owned(), t.moments)).collect();
        let mut carried = truncated.carry(|name| before.get(name).map(|moments| moments.first.clone()))?;
        self.model.adapters = truncated.adapters.clone();
        self.trained = trained(&self.model, self.settings)?;
        self.reduced = Some((self.step, warmup));
        let adapters: BTreeSet<String> = self.adapter_names();
        for trained in &mut self.trained {
            let name = trained.parameter.name();
            if !adapters.contains(name) {
                // Nothing about the backbone's own parameters has changed.
                if let Some(moments) = before.remove(name) {
                    trained.moments = moments;
                }
                continue;
            }
            if let Some(first) = carried.remove(name) {
                trained.moments.first = first;
            }
            trained.moments.second_since = self.step;
        }
        Ok(())
    }

    /// For a training that [`Training::restore`] takes back behind a truncation after step `step`: `self` has the truncated
    /// adapters already.
    pub fn reduced_at(mut self, step: u64, warmup: u64) -> Self {
        self.reduced = Some((step, warmup));
        let adapters = self.adapter_names();
        for trained in self.trained.iter_mut().filter(|trained| adapters.contains(trained.parameter.name())) {
            trained.moments.second_since = step;
        }
        self
    }

    fn adapter_names(&self) -> BTreeSet<String> {
        self.model.adapters.parameters().iter().map(|parameter| parameter.name().to_owned()).collect()
    }

    /// Share of the peak learning rate in the present step.
    fn share(&self) -> f64 {
        let steps = self.steps();
        let share = factor(self.settings.schedule, self.step, steps, self.settings.warmup(steps));
        match self.reduced {
            Some((at, warmup)) if self.step - at < warmup => share * (self.step - at + 1) as f64 / warmup as f64,
            _ => share,
        }
    }

    /// Steps done.
    pub fn step_number(&self) -> u64 {
        self.step
    }

    /// Whether there is anything to train.
    pub fn is_empty(&self) -> bool {
        self.trained.is_empty()
    }

    /// Steps of the whole stage: none when there is nothing to train.
    pub fn steps(&self) -> u64 {
        if self.is_empty() { 0 } else { self.settings.steps(self.task.sequences(Split::Train)) }
    }

    /// The batches of a step, with their numbers since the beginning.
    ///
    /// # Errors
    /// When an example cannot be made.
    pub fn batches(&mut self, step: u64) -> Result<Vec<(u64, Batch)>> {
        let accumulation = self.settings.accumulation as u64;
        let numbers = step * accumulation..(step + 1) * accumulation;
        let batch = |number| {
            let indices = self.order.batch(number, self.settings.batch_size);
            Ok((number, self.task.batch(Split::Train, &indices)?))
        };
        numbers.map(batch).collect()
    }

    /// One optimizer step over `train.accumulation` batches, whose gradients are weighted by their target tokens.
    ///
    /// # Errors
    /// [`Error::NonFinite`] when loss or gradient are not finite: the parameters are then those of the step before.
    pub fn step(&mut self) -> Result<StepReport> {
        let batches = self.batches(self.step)?;
        let weight: f64 = batches.iter().map(|(_, batch)| batch.weight()).sum();
        let mut gradients = Gradients::default();
        let mut loss = 0.0;
        for (number, batch) in &batches {
            let (part, gradient) = self.differentiate(*number, batch, weight)?;
            loss += part;
            gradients.accumulate(gradient)?;
        }
        let leaves: Vec<Option<Tensor>> =
            self.trained.iter().map(|trained| gradients.get(&trained.parameter.tensor()).cloned()).collect();
        let norm = gradient_norm(leaves.iter().flatten())?.item()?;
        if !(loss.is_finite() && norm.is_finite()) {
            drop(leaves);
            for (number, batch) in &batches {
                find_non_finite(|| self.differentiate(*number, batch, weight))?;
            }
            bail!("loss {loss} and gradient norm {norm} are not finite, though every operator's output is");
        }
        let share = self.share();
        let scale = clip_factor(norm, self.settings.clip);
        let optimizer = AdamW { betas: self.settings.betas, eps: self.settings.eps };
        self.step += 1;
        for (trained, gradient) in self.trained.iter_mut().zip(&leaves) {
            let Some(gradient) = gradient else { continue };
            let rate = Rate { lr: share * trained.peak_lr, weight_decay: trained.weight_decay };
            let moments = &mut trained.moments;
            trained
                .parameter
                .update(|value| optimizer.update(value, gradient, moments, self.step, Scale::By(scale), rate))
                .with_context(|| trained.parameter.name().to_owned())?;
        }
        let ranks = self.model.adapters.allocate(self.step as usize - 1, &gradients, scale)?;
        let ranks = ranks.filter(|allocation| allocation.changed).map(|allocation| allocation.ranks);
        let tokens = batches.iter().map(|(_, batch)| batch.tokens.len() as u64).sum();
        Ok(StepReport { loss, gradient_norm: norm, learning_rate: share * self.settings.lr, tokens, ranks })
    }

    fn differentiate(&self, number: u64, batch: &Batch, weight: f64) -> Result<(f64, Gradients), Error> {
        let key = StepKey { seed: self.seed, step: number };
        let smoothing = self.settings.label_smoothing;
        let (mut loss, mut gradients) =
            self.model.differentiate(batch, (smoothing, weight), key, self.settings.chunk)?;
        // What is added to the loss of a step is added once, not with every batch.
        if number.is_multiple_of(self.settings.accumulation as u64) {
            let adapters = &self.model.adapters;
            let sum = if self.regularization > 0.0 { adapters.hankel_sum()? } else { None };
            let sum = sum.map(|sum| scale(&sum, self.regularization)).transpose()?;
            for term in [sum, adapters.penalty()?].into_iter().flatten() {
                loss += term.item()?;
                gradients.accumulate(term.backward()?)?;
            }
        }
        Ok((loss, gradients))
    }

    /// Everything that changes during training, by name, in main memory.
    ///
    /// # Errors
    /// When the device has failed.
    pub fn tensors(&self) -> Result<BTreeMap<String, Tensor>> {
        let adapters = self.model.adapters.training_state()?.into_iter();
        let adapters = adapters.map(|(name, tensor)| (format!("{ADAPTERS}{name}"), tensor));
        let entries = self.trained.iter().flat_map(|trained| {
            let name = trained.parameter.name();
            [
                (format!("parameter/{name}"), trained.parameter.tensor().detach()),
                (format!("first/{name}"), trained.moments.first.clone()),
                (format!("second/{name}"), trained.moments.second.clone()),
            ]
        });
        let here = |(name, tensor): (String, Tensor)| Ok((name, tensor.to_device(Device::Cpu)?));
        entries.chain(adapters).map(here).collect()
    }

    /// Goes back to a saved state after step `step`.
    ///
    /// # Errors
    /// When a tensor is missing, superfluous or misshapen: the state is then of another configuration.
    pub fn restore(&mut self, step: u64, mut tensors: BTreeMap<String, Tensor>) -> Result<()> {
        for trained in &mut self.trained {
            let name = trained.parameter.name().to_owned();
            let expected = trained.parameter.tensor();
            let mut take = |kind: &str| -> Result<Tensor> {
                let key = format!("{kind}/{name}");
                let tensor = tensors.remove(&key).with_context(|| format!("the checkpoint has no {key}"))?;
                if tensor.shape() != expected.shape() || tensor.dtype() != expected.dtype() {
                    bail!(
                        "the checkpoint has {key} as {} {}, the model as {} {}",
                        tensor.dtype(),
                        tensor.shape(),
                        expected.dtype(),
                        expected.shape()
                    );
                }
                // Checkpoints are the same whatever device wrote them.
                Ok(tensor.to_device(expected.device())?)
            };
            trained.parameter.set(&take("parameter")?)?;
            trained.moments = Moments { first: take("first")?, second: take("second")?, ..trained.moments };
        }
        let own = tensors.split_off(ADAPTERS);
        let own = own.into_iter().map(|(name, tensor)| (name[ADAPTERS.len()..].to_owned(), tensor)).collect();
        self.model.adapters.restore_training_state(&own)?;
        if let Some(extra) = tensors.keys().next() {
            bail!("the checkpoint has {extra}, which is not trained here");
        }
        self.step = step;
        Ok(())
    }
}

/// Whatever is trainable in `model`, with zero moments.
fn trained(model: &Model, settings: &TrainConfig) -> Result<Vec<Trained>> {
    let trained = |parameter: Parameter| -> Result<Trained> {
        let role = parameter.role();
        Ok(Trained {
            moments: Moments::new(&parameter.tensor())?,
            peak_lr: match role {
                Role::Matrix | Role::Vector => settings.lr,
                Role::Gate => settings.gate_lr.unwrap_or(settings.lr),
                Role::Rate => settings.rate_lr.unwrap_or(settings.lr),
            },
            weight_decay: if role == Role::Matrix { settings.weight_decay } else { 0.0 },
            parameter,
        })
    };
    model.parameters().into_iter().filter(Parameter::is_trainable).map(trained).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::fit::Foundation;
    use crate::optim::golden::{Golden, close};
    use crate::tasks;
    use hankel_core::Float;
    use hankel_models::AdapterSet;
    use hankel_ops::{Head, Targets, cross_entropy};

    const TEXT: &str = "precision = \"f64\"\n[task]\nkind = \"parity\"\nlength = 7\n[backbone]\nlayers = 1\nd_model = 8\n\
        heads = 2\n[train]\nsteps = 5\nbatch_size = 6\nlr = 0.01\n[[adapter]]\nkind = \"hrm\"\nstate_dim = 3\n";

    fn losses(overrides: &[&str], steps: usize) -> (Vec<f64>, Vec<f64>) {
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        let (config, _) = Config::load(TEXT, "t.toml", &overrides).unwrap();
        let foundation = Foundation::new(&config).unwrap();
        let placement = foundation.backbone().placement();
        let settings = config.adapter[0].settings(7, &placement, 5);
        let model = foundation.with(AdapterSet::new(&settings, &placement, 0).unwrap()).unwrap();
        let task = tasks::build(&config.task).unwrap();
        let mut training = Training::new(&model, &*task, &config.train, config.seed).unwrap();
        let losses = (0..steps).map(|_| training.step().unwrap().loss).collect();
        let end = model.adapters.parameters().iter().flat_map(|parameter| parameter.tensor().to_f64_vec()).collect();
        (losses, end)
    }

    #[test]
    fn accumulated_batches_are_one_batch() {
        let (whole, whole_end) = losses(&[], 5);
        let (parts, parts_end) = losses(&["train.batch_size=2", "train.accumulation=3"], 5);
        assert!(whole.windows(2).any(|pair| pair[0] != pair[1]));
        for (a, b) in whole.iter().chain(&whole_end).zip(parts.iter().chain(&parts_end)) {
            assert!((a - b).abs() < 1e-11, "{a} {b}");
        }
    }

    #[test]
    fn rates_and_gates_have_their_own_learning_rate_and_no_decay() {
        let at_rest = |overrides: &[&str]| losses(overrides, 3).1;
        let start = losses(&[], 0).1;
        let frozen = at_rest(&["train.lr=0", "train.rate_lr=0", "train.gate_lr=0", "train.weight_decay=0.5"]);
        assert_eq!(frozen, start);
        // In a layer: b 3x8, c 8x3, log_a 3, log_dt 3, gate.
        let moved = |end: &[f64]| -> Vec<usize> { (0..start.len()).filter(|&i| end[i] != start[i]).collect() };
        let gate = at_rest(&["train.lr=0", "train.rate_lr=0", "train.gate_lr=0.01", "train.warmup_steps=0"]);
        assert_eq!(moved(&gate), [54]);
        let rates = at_rest(&["train.lr=0", "train.rate_lr=0.01", "train.gate_lr=0", "train.warmup_steps=0"]);
        assert_eq!(moved(&rates), [48, 49, 50, 51, 52, 53]);
    }

    /// Micro-batches of 5, 11, 2 and 8 targets: every target counts the same (`grad_token_mean`), not every batch.
    fn accumulates<T: Float>() {
        let golden = Golden::open("accumulation");
        let weight = golden.tensor::<T>("weight").parameter().unwrap();
        let mut gradients = Gradients::default();
        for part in 0..4 {
            let x = golden.tensor::<T>(&format!("x{part}"));
            let y = golden.integers(&format!("y{part}"));
            let n = y.len();
            let tokens = Tensor::from_vec(y, [n]).unwrap();
            let weights = Tensor::full([n], T::of(1.0));
            let targets = Targets { tokens: &tokens, weights: &weights, smoothing: 0.0, normalizer: 26.0 };
            let loss = cross_entropy(&x, Head { weight: &weight, bias: None }, targets).unwrap();
            gradients.accumulate(loss.backward().unwrap()).unwrap();
        }
        close::<T>(&golden, "grad_token_mean", gradients.get(&weight).unwrap());
    }

    #[test]
    fn accumulation_weighs_tokens() {
        accumulates::<f64>();
        accumulates::<f32>();
    }
}
