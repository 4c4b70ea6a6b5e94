//! One optimizer step, and what is needed to repeat it exactly.

mod state;
#[cfg(test)]
mod tests;

use super::batches::{Batches, StepBatches};
use super::memory;
use super::model::Model;
use super::slices::in_slices;
use super::step_metrics::{PendingMetrics, StepMetrics};
use crate::config::TrainConfig;
use crate::optim::factor;
use crate::parallel::{Group, Node, Traffic, cover, sum, sum_gradients};
use crate::results::Split;
use crate::run::interrupt;
use crate::tasks::{Batch, Task};
use anyhow::{Context, Result, anyhow, bail};
use hankel_core::autograd::find_non_finite;
use hankel_core::{Device, Error, Gradients, Tensor, trace};
use hankel_models::adapters::Truncated;
use hankel_models::{Parameter, Role, StepKey};
use hankel_ops::optimizer::{AdamW, Moments, Rate, Scale, clip_factor, gradient_norm};
use hankel_ops::scale;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A trained parameter with its moments and its share of the settings.
pub(super) struct Trained {
    parameter: Parameter,
    moments: Moments,
    peak_lr: f64,
    weight_decay: f64,
}

/// The state of a stage's optimization.
pub(super) struct Training<'a> {
    model: Model,
    task: &'a dyn Task,
    settings: &'a TrainConfig,
    seed: u64,
    trained: Vec<Trained>,
    batches: Batches<'a>,
    group: &'a Group,
    /// Sequences that go forwards and backwards at once.
    at_once: usize,
    /// What memory decided about computing layers again.
    recompute: Option<String>,
    step: u64,
    unread: PendingMetrics,
    regularization: f64,
    /// What the best evaluation so far was made with, in main memory: values, and what adapters remember besides them.
    best: Option<BTreeMap<String, Tensor>>,
    /// The step after which the adapters were truncated, and the length of the warm-up after it.
    reduced: Option<(u64, u64)>,
}

/// What a step reports at once; its [`StepMetrics`] are read later.
#[derive(Debug, Clone)]
pub(super) struct StepReport {
    /// Learning rate of the main group.
    pub learning_rate: f64,
    /// Sequence positions processed, by all processes.
    pub tokens: u64,
    /// What was moved between processes.
    pub traffic: Traffic,
    /// Whether a process was asked to end.
    pub interrupted: bool,
    /// The ranks of all projections, when they were shared out anew (AdaLoRA).
    pub ranks: Option<Vec<(String, usize)>>,
}

/// What a process says about its micro-batches before their gradients are added up.
#[derive(Serialize, Deserialize)]
struct Differentiated {
    /// Parts of the loss of each.
    losses: Vec<Vec<f64>>,
    interrupted: bool,
}

impl<'a> Training<'a> {
    /// Training of whatever is trainable in `model`, from the beginning, by the processes of `group`.
    ///
    /// # Errors
    /// When a parameter is of a type that cannot be trained.
    pub(super) fn new(
        model: &Model,
        task: &'a dyn Task,
        settings: &'a TrainConfig,
        seed: u64,
        group: &'a Group,
    ) -> Result<Self> {
        let share = group.share(settings.accumulation as u64);
        let mut model = model.clone();
        let tokens = task.tokens_per_example();
        let recompute = memory::decide(&mut model, settings, tokens, group.local_size());
        Ok(Training {
            trained: trained(&model, settings)?,
            batches: Batches::new(task, settings, seed).of_share(share),
            group,
            at_once: memory::at_once(&model, settings, tokens),
            model,
            recompute,
            task,
            settings,
            seed,
            step: 0,
            unread: PendingMetrics::default(),
            regularization: 0.0,
            best: None,
            reduced: None,
        })
    }

    /// What was decided about computing layers again in the backward pass, where the configuration leaves it to memory.
    pub(super) fn recompute(&self) -> Option<&str> {
        self.recompute.as_deref()
    }

    /// Adds `weight` times the sum of all layers' Hankel singular values to the loss of every step.
    pub(super) fn regularized(self, weight: f64) -> Self {
        Training { regularization: weight, ..self }
    }

    /// The model as it is trained: its adapters change when they are truncated.
    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Goes on with truncated adapters and a warm-up of `warmup` steps. Both moments of the adapters begin anew: if only the second did, a
    /// small gradient in the next step would make that step very large.
    ///
    /// # Errors
    /// When a parameter is of a type that cannot be trained.
    pub(super) fn reduce(&mut self, truncated: &Truncated, warmup: u64) -> Result<()> {
        let mut before: BTreeMap<String, Moments> =
            self.trained.drain(..).map(|t| (t.parameter.name().to_owned(), t.moments)).collect();
        self.model.adapters = truncated.adapters.clone();
        self.trained = trained(&self.model, self.settings)?;
        self.at_once = memory::at_once(&self.model, self.settings, self.task.tokens_per_example());
        self.reduced = Some((self.step, warmup));
        self.best = None;
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
            trained.moments.second_since = self.step;
        }
        Ok(())
    }

    /// For a training that [`Training::restore`] takes back behind a truncation after step `step`: `self` has the truncated
    /// adapters already.
    pub(super) fn reduced_at(mut self, step: u64, warmup: u64) -> Self {
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
    pub(super) fn step_number(&self) -> u64 {
        self.step
    }

    /// Whether there is anything to train.
    pub(super) fn is_empty(&self) -> bool {
        self.trained.is_empty()
    }

    /// Steps of the whole stage: none when there is nothing to train.
    pub(super) fn steps(&self) -> u64 {
        if self.is_empty() { 0 } else { self.settings.steps(self.task.sequences(Split::Train)) }
    }

    /// What makes the batches of the steps.
    pub(super) fn batches(&self) -> &Batches<'a> {
        &self.batches
    }

    /// Whether the figures of a step decide what it does, so that each is read at once: on the CPU, where it costs nothing, and
    /// for adapters that look at the gradients themselves.
    fn reads_gradients(&self) -> bool {
        self.model.backbone.device() == Device::Cpu || self.model.adapters.allocates()
    }

    /// One optimizer step over `train.accumulation` batches, whose gradients are weighted by their target tokens.
    ///
    /// # Errors
    /// Those of [`Training::step_on`].
    pub(super) fn step(&mut self) -> Result<StepReport> {
        let batches = self.batches.of_step(self.step);
        self.step_on(batches)
    }

    /// One optimizer step over the batches that [`Training::batches`] makes for it, and those of the other processes. On a GPU
    /// it returns before the step has run, except for adapters that look at the gradients (AdaLoRA). A loss or gradient that is not
    /// finite then shows when the figures are read, and neither that step nor those after it change anything.
    ///
    /// # Errors
    /// That of `batches`, if they could not be made, here or in another process. On the CPU, and for adapters that look at the
    /// gradients, [`Error::NonFinite`] when loss or gradient are not finite: the parameters are then those of the step before.
    pub(super) fn step_on(&mut self, batches: Result<StepBatches>) -> Result<StepReport> {
        let _event = trace::phase("step");
        self.group.take_traffic();
        let (weight, tokens, batches) = self.weigh(batches)?;
        let (losses, gradients, interrupted) = self.differentiate_all(&batches, weight)?;
        let leaves: Vec<Option<Tensor>> =
            self.trained.iter().map(|trained| gradients.get(&trained.parameter.tensor()).cloned()).collect();
        let norm = gradient_norm(leaves.iter().flatten())?;
        let step = self.step + 1;
        let mut known = None;
        if self.reads_gradients() {
            let mut alone = PendingMetrics::default();
            alone.push(step, losses.clone(), norm.clone())?;
            for figures in alone.read()? {
                if !figures.is_finite() {
                    drop(leaves);
                    return Err(self.explain(&figures));
                }
                known = Some(clip_factor(figures.gradient_norm, self.settings.clip));
            }
        }
        let guard = self.unread.push(step, losses, norm)?;
        let scaling = known.map_or(Scale::Clip { norm: &guard, limit: self.settings.clip }, Scale::By);
        let share = self.share();
        let optimizer = AdamW { betas: self.settings.betas, eps: self.settings.eps };
        self.step = step;
        for (trained, gradient) in self.trained.iter_mut().zip(&leaves) {
            let Some(gradient) = gradient else { continue };
            let rate = Rate { lr: share * trained.peak_lr, weight_decay: trained.weight_decay };
            let moments = &mut trained.moments;
            trained
                .parameter
                .update(|value| optimizer.update(value, gradient, moments, step, scaling, rate))
                .with_context(|| trained.parameter.name().to_owned())?;
        }
        let mut ranks = None;
        if let Some(factor) = known {
            let allocation = self.model.adapters.allocate(step as usize - 1, &gradients, factor)?;
            ranks = allocation.and_then(|allocation| allocation.ranks);
        }
        let traffic = self.group.take_traffic();
        Ok(StepReport { learning_rate: share * self.settings.lr, tokens, traffic, interrupted, ranks })
    }

    /// The sum of the weights of all targets of a step, and its positions, over the batches of all processes.
    fn weigh(&self, batches: Result<StepBatches>) -> Result<(f64, u64, StepBatches)> {
        let (batches, own) = match batches {
            Ok(batches) => {
                let facts = |(_, batch): &(u64, Batch)| (batch.weight(), batch.tokens.len() as u64);
                let own: Vec<(f64, u64)> = batches.iter().map(facts).collect();
                (batches, Ok(own))
            }
            Err(error) => (StepBatches::new(), Err(error)),
        };
        // Those of process 0 come first: the order is that of the batches.
        let all = self.group.exchange(own)?.concat();
        Ok((all.iter().map(|(weight, _)| weight).sum(), all.iter().map(|(_, tokens)| tokens).sum(), batches))
    }

    /// The parts of the loss of every batch of a step, its gradient, and whether a process was asked to end meanwhile. Whoever
    /// computes which of the batches, gradients are added in the order of [`sum`].
    fn differentiate_all(&self, own: &StepBatches, weight: f64) -> Result<(Vec<Vec<Tensor>>, Gradients, bool)> {
        let leaves = self.settings.accumulation as u64;
        let share = self.group.share(leaves);
        let mut losses = Vec::with_capacity(own.len());
        let mut of_node = |node: Node| {
            let mut leaf = |node: Node| {
                let place = node.leaf()? - share.start;
                let (number, batch) = own.get(place as usize)?;
                let differentiated = self.differentiate(*number, batch, weight);
                Some(differentiated.map(|(parts, gradients)| {
                    losses.push(parts);
                    gradients
                }))
            };
            let mut add = |mut left: Gradients, right| left.accumulate(right).map(|()| left);
            sum(node, leaves, &mut leaf, &mut add).map_err(anyhow::Error::from)
        };
        let partial: Result<Vec<Gradients>> = cover(share.clone(), leaves).into_iter().map(&mut of_node).collect();
        if !self.group.is_shared() {
            let gradients = partial?.pop().unwrap_or_default();
            return Ok((losses, gradients, interrupt::requested()));
        }
        let told = partial.and_then(|partial| {
            let values = |parts: &Vec<Tensor>| parts.iter().map(Tensor::item).collect::<Result<Vec<f64>, Error>>();
            let losses = losses.iter().map(values).collect::<Result<_, _>>()?;
            Ok((partial, Differentiated { losses, interrupted: interrupt::requested() }))
        });
        let (partial, told) = match told {
            Ok((partial, told)) => (partial, Ok(told)),
            Err(error) => (Vec::new(), Err(error)),
        };
        let all = self.group.exchange(told)?;
        let interrupted = all.iter().any(|one| one.interrupted);
        let scalars = |parts: &Vec<f64>| parts.iter().map(|&loss| Tensor::scalar(loss)).collect();
        let losses = all.iter().flat_map(|one| one.losses.iter().map(scalars)).collect();
        let parameters: Vec<Tensor> = self.trained.iter().map(|trained| trained.parameter.tensor()).collect();
        Ok((losses, sum_gradients(self.group, leaves, &partial, &parameters)?, interrupted))
    }

    /// The figures of every step since the last call, in their order. Waits for a GPU.
    ///
    /// # Errors
    /// When the device has failed.
    pub(super) fn read(&mut self) -> Result<Vec<StepMetrics>> {
        Ok(self.unread.read()?)
    }

    /// Why the metrics of a step are not finite: the operator that made the first such value, found by running the step's
    /// batches once more. Parameters must be those that the step had.
    pub(super) fn explain(&mut self, figures: &StepMetrics) -> anyhow::Error {
        let StepMetrics { loss, gradient_norm, .. } = figures;
        let own = self.find_non_finite(figures.step).err();
        let found = if self.group.is_shared() { self.first_found(own) } else { own };
        found.unwrap_or_else(|| {
            anyhow!("loss {loss} and gradient norm {gradient_norm} are not finite, though every operator's output is")
        })
    }

    /// What the first process that found something found: that in the first of the batches.
    fn first_found(&self, own: Option<anyhow::Error>) -> Option<anyhow::Error> {
        let told = match own.as_ref().map(|error| error.downcast_ref()) {
            Some(Some(Error::NonFinite { scope, operator, phase })) => {
                Some((scope.clone(), (*operator).to_owned(), (*phase).to_owned()))
            }
            _ => None,
        };
        let found = match self.group.exchange(Ok(told)) {
            Ok(found) => found.into_iter().flatten().next(),
            Err(error) => return Some(error),
        };
        self.group.end_together();
        // Names in errors live as long as the program, which an adapter diverges in once.
        let name = |name: String| -> &'static str { name.leak() };
        let found = found.map(|(scope, operator, phase)| Error::NonFinite {
            scope,
            operator: name(operator),
            phase: name(phase),
        });
        found.map(Into::into).or(own)
    }

    fn find_non_finite(&mut self, step: u64) -> Result<()> {
        let batches = self.batches.of_step(step - 1);
        let (weight, _, batches) = self.weigh(batches)?;
        for (number, batch) in &batches {
            find_non_finite(|| self.differentiate(*number, batch, weight))?;
        }
        Ok(())
    }

    /// The parts of the loss of a batch, to be added up, and its gradient.
    fn differentiate(&self, number: u64, batch: &Batch, weight: f64) -> Result<(Vec<Tensor>, Gradients), Error> {
        let (smoothing, chunk) = (self.settings.label_smoothing, self.settings.chunk);
        // At most so many: every document of a packed batch ends a part.
        let parts = chunk.map_or(1, |chunk| batch.length.div_ceil(chunk) + batch.documents.len()) as u64;
        // What is asked for is a number of sequences; else as many tokens as the estimate has counted.
        let counted = || self.at_once * self.task.tokens_per_example();
        let tokens = self.settings.micro_batch_size.is_none().then(counted);
        let (mut losses, mut gradients) = in_slices(batch, self.at_once, tokens, |slice, batch| {
            // Every slice draws its own dropout, and so does every part of it (see [`Model::differentiate`]).
            let key = StepKey { seed: self.seed, step: number + ((slice * parts) << 40) };
            self.model.differentiate(batch, (smoothing, weight), key, chunk)
        })?;
        // What is added to the loss of a step is added once, not with every batch.
        if number.is_multiple_of(self.settings.accumulation as u64) {
            let adapters = &self.model.adapters;
            let sum = if self.regularization > 0.0 { adapters.hankel_sum()? } else { None };
            let sum = sum.map(|sum| scale(&sum, self.regularization)).transpose()?;
            for term in [sum, adapters.penalty()?].into_iter().flatten() {
                losses.push(term.detach());
                gradients.accumulate(term.backward()?)?;
            }
        }
        Ok((losses, gradients))
    }

    /// Fails where a step has left a value that is not finite: figures of the next one, if there is any, would show it.
    ///
    /// # Errors
    /// [`Error::NonFinite`], with the parameter; those of the device.
    pub(super) fn check_finite(&self) -> Result<()> {
        for trained in &self.trained {
            // A device that cannot be read has failed, and nothing has diverged.
            if !trained.parameter.tensor().to_device(Device::Cpu)?.is_finite() {
                let scope = trained.parameter.name().to_owned();
                return Err(Error::NonFinite { scope, operator: "the optimizer", phase: "update" }.into());
            }
        }
        Ok(())
    }

    /// Fails on all processes when what one of them has learnt differs from that of process 0, which would be a fault of a
    /// processor, or of different ones.
    ///
    /// # Errors
    /// Names the process.
    pub(super) fn check_same(&self) -> Result<()> {
        if !self.group.is_shared() {
            return Ok(());
        }
        let hash = |sum: u32, trained: &Trained| -> Result<u32> {
            let value = trained.parameter.tensor().to_device(Device::Cpu)?;
            let bytes = match value.data::<f32>() {
                Ok(values) => bytemuck::cast_slice(values),
                Err(_) => bytemuck::cast_slice(value.data::<f64>()?),
            };
            Ok(crc32c::crc32c_append(sum, bytes))
        };
        let all = self.group.exchange(self.trained.iter().try_fold(0, hash))?;
        if let Some(rank) = all.iter().position(|sum| *sum != all[0]) {
            self.group.end_together();
            bail!(
                "after step {} process {rank} has other parameters than process 0: processors of different kinds, or a fault \
                 of one; continue with --resume from the last checkpoint, on equal ones",
                self.step
            );
        }
        Ok(())
    }

    /// The values of the adapters that are trained, by name.
    pub(super) fn adapter_values(&self) -> Vec<(String, Tensor)> {
        let own = self.adapter_names();
        let parameters = self.trained.iter().map(|trained| &trained.parameter);
        let adapters = parameters.filter(|parameter| own.contains(parameter.name()));
        adapters.map(|parameter| (parameter.name().to_owned(), parameter.tensor().detach())).collect()
    }

    /// Whether any step so far had a gradient of a parameter that was not 0: its second moment tells.
    ///
    /// # Errors
    /// When the device has failed.
    pub(super) fn has_gradient(&self, parameter: &str) -> Result<bool> {
        let own = self.trained.iter().find(|trained| trained.parameter.name() == parameter);
        let second = own.map(|trained| trained.moments.second.to_device(Device::Cpu)).transpose()?;
        Ok(second.is_some_and(|second| second.to_f64_vec().iter().any(|moment| *moment != 0.0)))
    }
}

/// Whatever is trainable in `model`, with zero moments.
fn trained(model: &Model, settings: &TrainConfig) -> Result<Vec<Trained>> {
    let trained = |parameter: Parameter| -> Result<Trained> {
        let role = parameter.role();
        let of_role = match role {
            Role::Matrix | Role::Vector | Role::Start => settings.lr,
            Role::Gate => settings.gate_lr.unwrap_or(settings.lr),
            Role::Rate => settings.rate_lr.unwrap_or(settings.lr),
        };
        Ok(Trained {
            moments: Moments::new(&parameter.tensor())?,
            peak_lr: of_role * parameter.rate(),
            weight_decay: if role == Role::Matrix { settings.weight_decay } else { 0.0 },
            parameter,
        })
    };
    model.parameters().into_iter().filter(Parameter::is_trainable).map(trained).collect()
}
