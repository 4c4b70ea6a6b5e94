//! The loop of a stage: steps, log lines, evaluations, checkpoints, Ctrl-C.

use super::backbone_snapshot::stored_in;
use super::batches::Prefetcher;
use super::evaluate::evaluate;
use super::guard::Guard;
use super::model::Model;
use super::rows::{count_parameters, layer_states};
use super::session::Session;
use super::stage::Stage;
use super::training::{StepReport, Training};
use super::truncate::{save_truncated, truncate_adapters};
use super::{Failure, SMALLER_STEPS, Stop};
use crate::config::Keep;
use crate::format::counted;
use crate::parallel::Traffic;
use crate::results::{Communication, Event, LayerState, Split, TrainingResult, metric};
use crate::run::{Progress, checkpoint, interrupt};
use anyhow::{Context, Result};
use hankel_core::{Device, Error, Tensor};
use hankel_models::AdapterSet;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

impl Stage<'_> {
    /// Trains from the session's state to the end of the stage, and gives what it cost (the scores are left empty) and the
    /// model, whose adapters differ from before if they were truncated.
    ///
    /// # Errors
    /// [`Stop`] after an interrupt, a value that is not finite or a failure of the device; failures to write.
    pub(super) fn run(
        &self,
        session: &mut Session<'_>,
        saved: Option<BTreeMap<String, Tensor>>,
    ) -> Result<(TrainingResult, Model)> {
        let mut training = self.begin(session, saved)?;
        let reduced_after = self.reduced_after()?;
        let steps = training.steps();
        let trainable = count_parameters(training.model()).trainable;
        let step = training.step_number();
        session.log.write(&Event::Stage { stage: self.name.to_owned(), step, steps, trainable })?;
        let mut settings = self.settings.clone();
        settings.resolve(Some(self.task.sequences(Split::Train)));
        let every = |interval: Option<u64>| interval.unwrap_or(steps).max(1);
        let log_every = every(settings.log_every);
        let eval_every = every(settings.eval_every);
        let checkpoint_every = every(settings.checkpoint_every);
        let device = training.model().backbone.device();
        let read_every = if device == Device::Cpu { 1 } else { settings.read_every as usize };
        let group = session.group;
        let primary = self.task.describe().primary_metric;
        let mut progress = Progress::new(self.name, step, steps, group.size());
        if let Some(decided) = training.recompute().filter(|_| steps > 0) {
            progress.note(decided);
        }
        if session.state.progress.evaluation_due {
            self.evaluate(session, &mut training, &progress, &primary)?;
            if session.state.progress.evaluation_due {
                return Err(session.interrupted(self.name));
            }
        }
        let mut guard = Guard::new(&training);
        let mut window = Window { log_every, last: steps, ..Window::default() };
        thread::scope(|scope| -> Result<()> {
            // On the CPU the kernels have every core already.
            let prefetcher = match device {
                Device::Cpu => None,
                Device::Gpu(_) => Some(Prefetcher::spawn(scope, training.batches().clone(), step..steps)?),
            };
            while training.step_number() < steps && !session.state.progress.stopped_early {
                let begun = Instant::now();
                let report = match &prefetcher {
                    Some(prefetcher) => training.step_on(prefetcher.next()),
                    None => training.step(),
                };
                if report.is_err() {
                    // What ran before is written down first, and may be where the trouble began.
                    self.account(session, &mut training, &mut window, &mut progress)?;
                }
                let report = report?;
                let mut interrupted = report.interrupted;
                window.steps.push(report);
                window.begun.get_or_insert(begun);
                let step = training.step_number();
                let reduces = Some(step) == reduced_after;
                // The last parameters are evaluated at the end, and here where they are to be compared.
                let compares = settings.keep == Keep::Best && session.state.progress.best.is_some();
                let evaluates = if step < steps { step.is_multiple_of(eval_every) } else { compares };
                let mut saves = step.is_multiple_of(checkpoint_every) || step == steps;
                if window.steps.len() >= read_every || reduces || evaluates || saves || interrupted {
                    self.account(session, &mut training, &mut window, &mut progress)?;
                }
                if reduces {
                    self.reduce(session, &mut training, &progress)?;
                }
                if guard.as_ref().is_some_and(|guard| guard.is_due(step)) {
                    let warning =
                        guard.take().map(|guard| guard.warning(self.name, &training, &settings)).transpose()?;
                    if let Some(warning) = warning.flatten() {
                        progress.note(&warning);
                    }
                }
                if evaluates {
                    session.state.progress.evaluation_due = true;
                    self.evaluate(session, &mut training, &progress, &primary)?;
                    saves |= session.state.progress.stopped_early;
                    interrupted = group.any(interrupted || interrupt::requested())?;
                }
                if saves || interrupted {
                    self.account(session, &mut training, &mut window, &mut progress)?;
                    session.group.agree(training.check_finite())?;
                    training.check_same()?;
                    session.save(self.name, || training.tensors(), self.settings.keep_checkpoints)?;
                }
                if interrupted {
                    return Err(session.interrupted(self.name));
                }
            }
            Ok(())
        })
        .map_err(|error| self.explain(session, error))?;
        if settings.keep == Keep::Best {
            training.return_to_best()?;
        }
        // What is evaluated from here on is what is saved.
        let ranks = training.model().adapters.end_training()?.and_then(|allocation| allocation.ranks);
        // After a last allocation it is no longer what was evaluated.
        let is_as_it_was = ranks.is_none();
        if let Some(ranks) = ranks {
            let layers = rank_states(&ranks);
            let (stage, step) = (self.name.to_owned(), training.step_number());
            session.log.write(&Event::Layers { stage, step, layers })?;
        }
        let done = &session.state.progress;
        let best = done.best.as_ref().filter(|_| settings.keep == Keep::Best && is_as_it_was);
        let result = TrainingResult {
            steps: training.step_number(),
            kept: best.map(|best| best.kept.clone()),
            planned_steps: done.stopped_early.then_some(steps),
            tokens: done.tokens,
            seconds: done.seconds,
            final_loss: done.last_loss,
            curve: done.curve.clone(),
            ..TrainingResult::default()
        };
        Ok((result, training.model().clone()))
    }

    /// Reads the metrics of the steps in `window` from the device and logs them.
    fn account(
        &self,
        session: &mut Session<'_>,
        training: &mut Training<'_>,
        window: &mut Window,
        progress: &mut Progress,
    ) -> Result<()> {
        let all = training.read()?;
        let seconds = window.begun.take().map_or(0.0, |begun| begun.elapsed().as_secs_f64()) / all.len().max(1) as f64;
        for (figures, report) in all.iter().zip(std::mem::take(&mut window.steps)) {
            if !figures.is_finite() {
                return Err(training.explain(figures));
            }
            let step = figures.step;
            let so_far = &mut session.state.progress;
            session.state.step = step;
            so_far.seconds += seconds;
            // Of a state that was damaged the numbers may be any.
            so_far.tokens = so_far.tokens.saturating_add(report.tokens);
            if let Some(ranks) = &report.ranks {
                let layers = rank_states(ranks);
                session.log.write(&Event::Layers { stage: self.name.to_owned(), step, layers })?;
                // An adapter of larger ranks is no match for what the stage is to end with.
                so_far.best = None;
                training.forget_best();
            }
            so_far.window_loss += figures.loss;
            so_far.window_steps = so_far.window_steps.saturating_add(1);
            window.count += 1;
            window.seconds += seconds;
            window.tokens += report.tokens;
            window.traffic.add(report.traffic);
            if step.is_multiple_of(window.log_every) || step == window.last {
                let loss = so_far.window_loss / so_far.window_steps as f64;
                (so_far.window_loss, so_far.window_steps) = (0.0, 0);
                so_far.last_loss = Some(loss);
                let tokens_per_second = window.tokens as f64 / window.seconds;
                let communication = window.communication(session.group.size());
                (window.seconds, window.tokens, window.traffic) = (0.0, 0, Traffic::default());
                window.count = 0;
                let event = Event::Step {
                    stage: self.name.to_owned(),
                    step,
                    loss,
                    learning_rate: report.learning_rate,
                    gradient_norm: figures.gradient_norm,
                    tokens: so_far.tokens,
                    tokens_per_second,
                    seconds: so_far.seconds,
                    device_bytes: training.model().backbone.device().gpu().map(|gpu| {
                        let memory = gpu.memory();
                        memory.used + memory.held
                    }),
                    communication,
                };
                progress.step(step, loss, tokens_per_second);
                session.log.write(&event)?;
            }
        }
        Ok(())
    }

    /// The training as it was when the session's state was saved, or from the beginning.
    fn begin<'a>(&'a self, session: &Session<'a>, saved: Option<BTreeMap<String, Tensor>>) -> Result<Training<'a>> {
        let new = |model: &Model| {
            let training = Training::new(model, self.task, self.settings, session.config.seed, session.group)?;
            anyhow::Ok(training.regularized(self.regularization))
        };
        let Some(tensors) = saved else { return new(self.model) };
        let step = session.state.step;
        let mut training = match (self.reduction, self.reduced_after()?) {
            (Some(reduction), Some(at)) if step >= at => {
                let length = self.task.sequence_length();
                let adapters = AdapterSet::load(&reduction.directory, &self.model.backbone.placement(), length)
                    .context("the adapter as it was truncated in this training cannot be read")?;
                adapters.to_dtype(self.model.dtype())?;
                adapters.to_device(self.model.backbone.device())?;
                let model = Model { adapters, ..self.model.clone() };
                new(&model)?.reduced_at(at, reduction.config.timing.warmup_steps)
            }
            _ => new(self.model)?,
        };
        training.restore(step, tensors).map_err(|error| {
            // A device without memory says nothing of the checkpoint.
            if error.is::<Error>() {
                return error;
            }
            let mut all = checkpoint::list(&session.directory.checkpoints());
            let newest = all.pop().unwrap_or_default();
            let then = if all.is_empty() { "it begins anew" } else { "it goes on from the checkpoint before" };
            error.context(format!("{} does not fit this run; without this folder {then}", newest.display()))
        })?;
        training.model().adapters.complete(&stored_in(session.config.backbone.path().map(PathBuf::as_path)))?;
        Ok(training)
    }

    /// The step after which the adapters are truncated.
    fn reduced_after(&self) -> Result<Option<u64>> {
        let Some(reduction) = self.reduction else { return Ok(None) };
        reduction.config.step_within(self.settings, self.task.sequences(Split::Train))
    }

    fn reduce(&self, session: &mut Session<'_>, training: &mut Training<'_>, progress: &Progress) -> Result<()> {
        let Some(reduction) = self.reduction else { return Ok(()) };
        let rule = reduction.config.rule;
        let length = self.task.sequence_length();
        let truncated = truncate_adapters(training.model(), self.name, rule, length, reduction.base_model);
        let truncated = session.group.agree(truncated)?;
        if session.group.is_root() {
            save_truncated(&truncated, &reduction.directory, &[])?;
        }
        training.reduce(&truncated, reduction.config.timing.warmup_steps)?;
        session.state.progress.best = None;
        let (from, to) = truncated.orders();
        let shown = |orders: &[usize]| orders.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        progress.note(&format!("truncated by {}: {} states to {}", rule.describe(), shown(&from), shown(&to)));
        let stage = self.name.to_owned();
        Ok(session.log.write(&Event::Truncation { stage, rule: rule.describe(), from, to })?)
    }

    /// Evaluates on the validation split during training, and keeps what was best by the metric `primary`.
    fn evaluate(
        &self,
        session: &mut Session<'_>,
        training: &mut Training<'_>,
        progress: &Progress,
        primary: &str,
    ) -> Result<()> {
        let (step, model) = (training.step_number(), training.model());
        let begun = Instant::now();
        let batch_size = self.settings.eval_batch_size.unwrap_or(self.settings.batch_size);
        let (sequences, smoothing) = (self.settings.eval_sequences, self.settings.label_smoothing);
        let scores =
            evaluate(session.group, model, self.task, Split::Validation, sequences, batch_size, smoothing, None)?;
        // None: an interrupt, which the loop is about to see. The evaluation stays due.
        let Some(scores) = scores else { return Ok(()) };
        session.state.progress.evaluation_due = false;
        session.state.progress.curve.extend(scores.get(metric::LOSS).map(|loss| (step, loss)));
        let shown = |(name, value): (&String, &f64)| format!("{name} {value:.4}");
        let main = [
            metric::LOSS,
            metric::ACCURACY,
            metric::REWARD_ACCURACY,
            metric::REWARD_MARGIN,
            metric::BITS_PER_CHARACTER,
            metric::BITS_PER_EVENT,
            metric::PERPLEXITY,
            metric::BITS_PER_BYTE,
        ];
        let figures: Vec<String> =
            scores.metrics.iter().filter(|(name, _)| main.contains(&name.as_str())).map(shown).collect();
        progress.note(&format!("step {step}: validation {}", figures.join("  ")));
        // Metrics of generated answers are measured at the end only.
        let compared = if scores.get(primary).is_some() { primary } else { metric::LOSS };
        let so_far = &mut session.state.progress;
        let is_best =
            so_far.compare(step, compared, scores.get(compared).unwrap_or(f64::NAN), scores.get(metric::LOSS));
        let waited = so_far.best.as_ref().map_or(0, |best| best.waited);
        // What is still to be truncated is not what the stage is to end with.
        let is_whole = self.reduced_after()?.is_none_or(|at| step >= at);
        if is_whole && step < training.steps() && self.settings.patience.is_some_and(|patience| waited >= patience) {
            so_far.stopped_early = true;
            let steps = training.steps();
            progress.note(&format!(
                "{} without a better {compared}: stopped after {step} of {steps} steps",
                counted(waited as usize, "evaluation")
            ));
        }
        let stage = self.name.to_owned();
        let seconds = begun.elapsed().as_secs_f64();
        session.log.write(&Event::Eval { stage: stage.clone(), step, split: Split::Validation, scores, seconds })?;
        let layers = layer_states(&model.adapters);
        if !layers.is_empty() {
            session.log.write(&Event::Layers { stage, step, layers })?;
        }
        if is_best && self.settings.keep == Keep::Best { training.keep_best() } else { Ok(()) }
    }

    /// Adds the step, the last checkpoint and advice to an error of training.
    fn explain(&self, session: &mut Session<'_>, error: anyhow::Error) -> anyhow::Error {
        let Some(cause) = error.downcast_ref::<Error>() else { return error };
        let is_of_values = matches!(cause, Error::NonFinite { .. });
        let is_of_update = matches!(cause, Error::NonFinite { phase: "update", .. });
        let advice = match cause {
            Error::NonFinite { .. } => SMALLER_STEPS,
            Error::GpuMemory { .. } => {
                "a smaller `train.batch_size` (with more `train.accumulation`), shorter sequences, a `train.chunk` or \
                 `backbone.recompute` need less"
            }
            Error::Gpu { .. } => "continue with --resume, on another device with --set device=cpu",
            _ => return error,
        };
        let (stage, done) = (self.name.to_owned(), session.state.step);
        let event = Event::Stopped { stage: stage.clone(), step: done, reason: cause.to_string() };
        // The cause matters more than a log that cannot be written.
        let _ = session.log.write(&event);
        let checkpoint = if is_of_values { session.last_good_checkpoint() } else { session.last_checkpoint() };
        let step = if is_of_update { done } else { done + 1 };
        let failure = Failure { stage, step, cause: format!("{error:#}"), checkpoint, advice };
        if is_of_values { Stop::NonFinite(failure).into() } else { Stop::Device(failure).into() }
    }
}

/// Steps that have run but are not accounted for, and what was added up since the last log line.
#[derive(Default)]
struct Window {
    log_every: u64,
    /// The last step of the stage, which is logged too.
    last: u64,
    steps: Vec<StepReport>,
    /// When the first of them began.
    begun: Option<Instant>,
    seconds: f64,
    tokens: u64,
    /// Steps since then, and what was moved in them.
    count: u64,
    traffic: Traffic,
}

impl Window {
    /// What was moved in a step, if there are several processes.
    fn communication(&self, processes: usize) -> Option<Communication> {
        let steps = self.count.max(1) as f64;
        (processes > 1).then(|| Communication {
            processes,
            bytes: self.traffic.bytes as f64 / steps,
            seconds: self.traffic.seconds / steps,
            waiting_seconds: self.traffic.waiting_seconds / steps,
        })
    }
}

/// The ranks of projections, for the log: `model.layers.3.self_attn.q_proj` is `q_proj` of layer 3.
fn rank_states(ranks: &[(String, usize)]) -> Vec<LayerState> {
    let state = |(path, rank): &(String, usize)| {
        let mut parts = path.split('.');
        let layer = parts.by_ref().find_map(|part| part.parse().ok()).unwrap_or(0);
        let site = parts.next_back().unwrap_or(path).to_owned();
        LayerState { layer, site, rank: Some(*rank), ..LayerState::default() }
    };
    ranks.iter().map(state).collect()
}
