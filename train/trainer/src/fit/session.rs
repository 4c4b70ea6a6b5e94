//! The state of a run between and within its stages: log, checkpoints, rows, result.

use super::backbone_snapshot::BackboneSnapshot;
use super::contribution::Contributions;
use super::evaluate::{evaluate_and_generate, to_lines};
use super::forgetting::Forgetting;
use super::pretrained::Pretrained;
use super::probe::{hold_gates, measure_exactness};
use super::rows::{count_parameters, describe, layer_results, layer_states, scan_of};
use super::stage::Stage;
use super::start::Start;
use super::transformer::Transformer;
use super::truncate::{refusal, truncate, truncate_along_data};
use super::{Failure, SMALLER_STEPS, Stop};
use crate::config::{AdapterConfig, Config, Precision, TrainConfig};
use crate::format::thousands;
use crate::parallel::Group;
use crate::results::{
    AdapterResult, BackboneResult, Diverged, Environment, Event, PRETRAIN, RunResult, SCHEMA, Scores, Split,
    TrainingResult, metric,
};
use crate::run::checkpoint::{self, RunState, StageProgress};
use crate::run::interrupt::{self, AtOnce};
use crate::run::{EventLog, Finder, Progress, RunDirectory, begun_in, environment, memory};
use crate::tasks::Task;
use anyhow::{Context, Result, anyhow, ensure};
use hankel_core::{Device, Error, Tensor};
use hankel_io::Existing;
use std::collections::BTreeMap;
use std::env::current_dir;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A run in progress. On several processes each has one, in step with the others; that of process 0 writes.
pub(super) struct Session<'a> {
    pub(super) config: &'a Config,
    pub(super) group: &'a Group,
    pub(super) directory: RunDirectory,
    pub(super) log: EventLog,
    pub(super) state: RunState,
    /// The task on which rows are evaluated besides, once the backbone is as adapters find it.
    pub(super) forgetting: Option<Forgetting>,
    device: Device,
    begun: Instant,
    earlier_seconds: f64,
}

/// The stored configuration, if the run goes on with a different one. Relative paths that name the same files are not a difference.
fn others_before(directory: &RunDirectory, resolved: &str) -> Option<Config> {
    let stored = hankel_io::input::read_to_string(&directory.config()).ok().filter(|stored| stored != resolved)?;
    let (file, finder) = (directory.config().display().to_string(), Finder::new(directory.path()));
    let stored = Config::load_of_run(&stored, &file, &|path| finder.find(path), &[]).ok()?;
    Some(stored).filter(|stored| stored.to_toml() != resolved)
}

impl<'a> Session<'a> {
    /// Begins a run, or goes on with one from its `state`.
    pub(super) fn open(
        config: &'a Config,
        group: &'a Group,
        directory: RunDirectory,
        (mut state, resume): (RunState, bool),
        device: Device,
        begun: Instant,
    ) -> Result<Self> {
        let writes = group.is_root();
        if resume && writes {
            directory.clean();
        }
        let resolved = config.to_toml();
        if resume
            && writes
            && let Some(before) = others_before(&directory, &resolved)
        {
            // It goes on with another device.
            let [was, is] = [before.precision, config.precision].map(Precision::of_products);
            if was != is {
                tell!("resuming with products in {is}; they were in {was} before");
            }
            directory.write(&directory.config(), &resolved)?;
        }
        // The first line of the log says it, which goes where the run begins again.
        let begun_at = if resume { begun_in(directory.path()) } else { None };
        let log = if !writes {
            EventLog::silent()
        } else if resume {
            // All of it where the run was stopped before its first checkpoint: it begins again.
            let (log, missing) = EventLog::reopen(&directory.metrics(), state.metrics_bytes)?;
            if missing > 0 {
                tell!(
                    "warning: the last {missing} of the {} bytes that {} had when the newest checkpoint was saved are missing: the run goes on \
                     to the same result, but its curves and report have a gap before step {} of `{}`",
                    state.metrics_bytes,
                    directory.metrics().display(),
                    state.step,
                    state.name
                );
            }
            log
        } else {
            hankel_io::write_file(&directory.config(), resolved.as_bytes(), Existing::Refuse)?;
            EventLog::create(&directory.metrics())?
        };
        if writes {
            state.config = Some(hankel_io::input::read_to_string(&directory.config())?);
        }
        let earlier_seconds = state.wall_time_seconds;
        let mut session =
            Session { config, group, directory, log, state, forgetting: None, device, begun, earlier_seconds };
        session.log.write(&Event::Start {
            name: config.name.clone(),
            seed: config.seed,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            resumed: resume,
            directory: begun_at.or_else(|| current_dir().ok()).map(|path| path.display().to_string()),
            device: Some(device.to_string()),
            processes: session.processes(),
        })?;
        // Its event was written after its state, which says how much of the log is kept.
        if let Some(last) = session.last_checkpoint().filter(|_| resume) {
            session.note_checkpoint(&last)?;
        }
        Ok(session)
    }

    /// The tensors of the newest checkpoint, if it is one within a stage.
    pub(super) fn tensors_of_checkpoint(&self) -> Result<Option<BTreeMap<String, Tensor>>> {
        if self.state.step == 0 {
            return Ok(None);
        }
        let Some(newest) = checkpoint::list(&self.directory.checkpoints()).pop() else { return Ok(None) };
        tell!("resuming `{}` after step {} from {}", self.state.name, self.state.step, newest.display());
        Ok(Some(checkpoint::load(&newest)?.1))
    }

    /// Number of processes, where they are several.
    fn processes(&self) -> Option<usize> {
        Some(self.group.size()).filter(|size| *size > 1)
    }

    fn note_memory(&mut self) {
        self.state.peak_memory_bytes = self.state.peak_memory_bytes.max(memory::peak_memory());
        self.state.peak_anonymous_bytes = self.state.peak_anonymous_bytes.max(memory::peak_anonymous());
        let of_device = self.device.gpu().map(|gpu| gpu.memory().peak);
        self.state.peak_device_bytes = self.state.peak_device_bytes.max(of_device);
    }

    fn seconds(&self) -> f64 {
        self.earlier_seconds + self.begun.elapsed().as_secs_f64()
    }

    /// The directory of the newest checkpoint.
    pub(super) fn last_checkpoint(&self) -> Option<PathBuf> {
        checkpoint::list(&self.directory.checkpoints()).pop()
    }

    /// Removes what has been written of a row that has turned out to be none.
    fn remove_row(&self, row: &str) -> Result<()> {
        if !self.group.is_root() {
            return Ok(());
        }
        let adapter = self.directory.adapter(row);
        let unremoved = |path: &Path| format!("cannot remove {}", path.display());
        if adapter.is_dir() {
            hankel_io::remove_whole(&adapter)?;
        }
        for split in [Split::Validation, Split::Test] {
            let answers = self.directory.predictions(row, split.name());
            if answers.is_file() {
                std::fs::remove_file(&answers).with_context(|| unremoved(&answers))?;
            }
        }
        Ok(())
    }

    /// Notes an adapter that has diverged, if the run has anything else to give: it goes on without it.
    ///
    /// # Errors
    /// `error` itself, if it is another one, or there is nothing else.
    pub(super) fn go_on_without(&mut self, adapter: &str, error: anyhow::Error) -> Result<()> {
        let Some(Stop::NonFinite(failure)) = error.downcast_ref() else { return Err(error) };
        let is_last = self.config.adapter.last().is_some_and(|last| last.name == adapter);
        if is_last && self.state.rows.is_empty() {
            return Err(error);
        }
        let (name, step, error) = (adapter.to_owned(), failure.step, failure.event());
        tell!("warning: {error}; {}. It has no row, the others have theirs", failure.advice);
        self.state.diverged.push(Diverged { name, step, error });
        self.group.go_on_together();
        Ok(())
    }

    /// The directory of the newest checkpoint that was saved before any evaluation of this stage was not finite.
    pub(super) fn last_good_checkpoint(&self) -> Option<PathBuf> {
        let is_good = |path: &PathBuf| {
            let Ok(state) = checkpoint::state(path) else { return false };
            state.name != self.state.name || state.progress.curve.iter().all(|(_, loss)| loss.is_finite())
        };
        checkpoint::list(&self.directory.checkpoints()).into_iter().rev().find(is_good)
    }

    /// Adds the last checkpoint to an error of the device that comes outside the steps of a stage: before or after them.
    pub(super) fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        match (error.downcast_ref(), self.last_checkpoint()) {
            (Some(Error::Gpu { .. } | Error::GpuMemory { .. }), Some(path)) => anyhow!(
                "{error:#}; the last good checkpoint is {}: continue with --resume, on another device with --set device=cpu",
                path.display()
            ),
            _ => error,
        }
    }

    /// Saves the full state within or after a stage: what `tensors` gives where it is written.
    pub(super) fn save(
        &mut self,
        stage: &str,
        tensors: impl FnOnce() -> Result<BTreeMap<String, Tensor>>,
        keep: usize,
    ) -> Result<()> {
        stage.clone_into(&mut self.state.name);
        if !self.group.is_root() {
            return Ok(());
        }
        ensure!(
            self.directory.config().is_file(),
            "{} was removed: the state after step {} of `{stage}` is not saved, since nobody could go on from it",
            self.directory.config().display(),
            self.state.step
        );
        let tensors = tensors()?;
        self.state.wall_time_seconds = self.seconds();
        self.note_memory();
        self.state.metrics_bytes = self.log.sync()?;
        let path =
            checkpoint::save(&self.directory.checkpoints(), &self.state, &tensors, keep).with_context(|| match self
                .last_checkpoint()
            {
                Some(last) => format!(
                    "the state after step {} of `{stage}` was not saved; the last complete checkpoint is {}: make room \
                     and continue with --resume",
                    self.state.step,
                    last.display()
                ),
                None => format!("the state after step {} of `{stage}` was not saved", self.state.step),
            })?;
        self.note_checkpoint(&path)
    }

    fn note_checkpoint(&mut self, path: &Path) -> Result<()> {
        let path = path.strip_prefix(self.directory.path()).unwrap_or(path).display().to_string();
        Ok(self.log.write(&Event::Checkpoint { stage: self.state.name.clone(), step: self.state.step, path })?)
    }

    /// Whether a process was asked to end.
    fn is_interrupted(&self) -> Result<bool> {
        self.group.any(interrupt::requested())
    }

    /// Notes that the run stops here by request, on all processes; the state has been saved.
    pub(super) fn interrupted(&mut self, stage: &str) -> anyhow::Error {
        self.group.end_together();
        let (stage, step) = (stage.to_owned(), self.state.step);
        let event = Event::Stopped { stage: stage.clone(), step, reason: "interrupted".to_owned() };
        match self.log.write(&event) {
            Ok(()) => Stop::Interrupted { run: self.directory.path().to_owned(), stage, step }.into(),
            Err(error) => error.into(),
        }
    }

    /// From here Ctrl-C ends the process at once, until the value is dropped: the state after `step` is saved.
    fn end_at_once(&mut self, stage: &str, step: u64) -> Result<AtOnce> {
        let at_once = interrupt::at_once(
            Stop::Interrupted { run: self.directory.path().to_owned(), stage: stage.to_owned(), step }.to_string(),
        );
        if self.is_interrupted()? { Err(self.interrupted(stage)) } else { Ok(at_once) }
    }

    /// Marks the stage as finished.
    pub(super) fn finish_stage(&mut self, keep: usize) -> Result<()> {
        let finished = self.state.name.clone();
        self.state.stage += 1;
        self.state.step = 0;
        self.state.progress = StageProgress::default();
        self.save("next", || Ok(BTreeMap::new()), keep)?;
        if self.is_interrupted()? && self.state.stage < self.stages() {
            return Err(self.interrupted(&finished));
        }
        Ok(())
    }

    /// Ends the pretraining with what another run has trained.
    pub(super) fn take_pretrained(&mut self, pretrained: Pretrained, snapshot: &BackboneSnapshot) -> Result<()> {
        let Pretrained { result, events, .. } = pretrained;
        let run = result.shared_by.as_deref().unwrap_or_default();
        tell!("backbone: the {} steps of its pretraining are those of {run}", thousands(result.steps));
        self.save_backbone(snapshot.backbone())?;
        events.iter().try_for_each(|event| self.log.write(event))?;
        self.state.pretrain = Some(result);
        PRETRAIN.clone_into(&mut self.state.name);
        self.finish_stage(1)
    }

    /// Writes the backbone that the run has trained, and notes what it is.
    pub(super) fn save_backbone(&mut self, backbone: &Transformer) -> Result<()> {
        if self.group.is_root() {
            backbone.save(&self.directory.backbone())?;
            self.state.backbone_crc32c = self.directory.backbone_crc32c()?;
        }
        Ok(())
    }

    fn stages(&self) -> usize {
        usize::from(self.config.pretrain.is_some()) + self.config.adapter.len()
    }

    /// Evaluates an adapter before its first step on a pretrained backbone, and warns when it harms the model.
    pub(super) fn evaluate_start(&mut self, stage: &Stage<'_>, adapter: &AdapterConfig) -> Result<()> {
        let fresh = self.state.step == 0 && !stage.model.adapters.parameters().is_empty();
        if !fresh || !self.config.is_pretrained() || stage.task.sequences(Split::Validation) == 0 {
            return Ok(());
        }
        // None: an interrupt, which the loop is about to see.
        let Some(start) = Start::measure(self.group, stage)? else { return Ok(()) };
        let remedy = match &adapter.path {
            Some(path) => format!("was {} trained on another model, or for another task?", path.display()),
            None if stage.model.adapters.streams().next().is_some() => {
                "`gate_init = 0`, or `c_std = 0` and `input = \"norm\"` (HRM: `preset = \"identity\"`), leaves the model as it is at \
                 the start"
                    .to_owned()
            }
            None => "its update should be 0 at the start, or lower the loss (LoftQ)".to_owned(),
        };
        if let Some(warning) = start.warning(stage.name, &remedy) {
            tell!("{warning}");
        }
        let stage = stage.name.to_owned();
        let Start { sequences, loss, backbone_loss, largest_contribution } = start;
        let contribution = largest_contribution.map(|(_, _, size)| size);
        Ok(self.log.write(&Event::Initial { stage, sequences, loss, backbone_loss, contribution })?)
    }

    /// The final evaluation of a row on all sequences of `splits`; a split without any is left out. What the adapters add to
    /// the stream is measured on the validation split.
    pub(super) fn evaluate(
        &mut self,
        stage: &Stage<'_>,
        row: &str,
        step: u64,
        splits: &[Split],
        contributions: &mut Contributions,
    ) -> Result<Vec<Scores>> {
        let settings: &TrainConfig = stage.settings;
        let batch_size = settings.eval_batch_size.unwrap_or(settings.batch_size);
        let progress = Progress::new(row, 0, 0, 1);
        let mut all = Vec::new();
        for &split in splits {
            let sequences = stage.task.sequences(split);
            if sequences == 0 {
                continue;
            }
            let begun = Instant::now();
            let smoothing = settings.label_smoothing;
            let measured = (split == Split::Validation).then_some(&mut *contributions);
            let evaluated = evaluate_and_generate(
                self.group,
                stage.model,
                stage.task,
                split,
                sequences,
                batch_size,
                smoothing,
                measured,
            )?;
            let Some((scores, predictions)) = evaluated else { return Err(self.interrupted(row)) };
            if !predictions.is_empty() && self.group.is_root() {
                let path = self.directory.predictions(row, split.name());
                let folder = path.parent().unwrap_or(&path);
                hankel_io::create_folder(folder)?;
                self.directory.write(&path, &to_lines(&predictions)?)?;
            }
            let primary = stage.task.describe().primary_metric;
            let value = scores.get(&primary).unwrap_or(f64::NAN);
            progress.note(&format!("{} of {} sequences: {primary} {value:.4}", split.name(), scores.sequences));
            let seconds = begun.elapsed().as_secs_f64();
            self.log.write(&Event::Eval { stage: row.to_owned(), step, split, scores: scores.clone(), seconds })?;
            all.push(scores);
        }
        Ok(all)
    }

    /// `row` with its scores on validation and, if there is one, test split, and the contributions of its layers.
    fn evaluate_row(&mut self, stage: &Stage<'_>, step: u64, mut row: AdapterResult) -> Result<AdapterResult> {
        let (name, splits) = (stage.name, [Split::Validation, Split::Test]);
        let mut contributions = Contributions::default();
        let mut scores = self.evaluate(stage, name, step, &splits, &mut contributions)?.into_iter();
        contributions.put_into(&mut row.layers);
        let mut validation = scores.next().unwrap_or_default();
        let measured = self.forgetting.as_ref();
        let measured = measured.map(|forgetting| forgetting.measure(self.group, stage.model, &mut validation));
        if !measured.transpose()?.unwrap_or(true) {
            return Err(self.interrupted(name));
        }
        Ok(AdapterResult { validation, test: scores.next(), ..row })
    }

    /// Saves a trained adapter, evaluates it, its truncated versions and its probes.
    pub(super) fn finish_adapter(
        &mut self,
        adapter: &AdapterConfig,
        stage: &Stage<'_>,
        training: &TrainingResult,
        base_model: &str,
    ) -> Result<()> {
        let directory = self.directory.adapter(&adapter.name);
        let steps = training.kept_step();
        // The state is saved, and what follows may take long in one piece.
        let at_once = self.end_at_once(&adapter.name, steps)?;
        if self.group.is_root() {
            stage.model.save(&directory, base_model)?;
        }
        let layers = layer_states(&stage.model.adapters);
        if !layers.is_empty() {
            self.log.write(&Event::Layers { stage: adapter.name.clone(), step: steps, layers })?;
        }
        let relative = |path: &Path| path.strip_prefix(self.directory.path()).unwrap_or(path).display().to_string();
        let mut layers = layer_results(&stage.model.adapters)?;
        if let Some(exactness) = adapter.exactness {
            let size = (exactness.sequences, stage.task.sequence_length());
            measure_exactness(&stage.model.adapters, &mut layers, size, self.config.seed)?;
        }
        let full = AdapterResult {
            name: adapter.name.clone(),
            kind: adapter.method.kind().to_owned(),
            path: directory.is_dir().then(|| relative(&directory)),
            parameters: count_parameters(stage.model),
            scan: scan_of(&stage.model.adapters),
            layers,
            settings: describe(adapter, &stage.model.adapters),
            ..AdapterResult::default()
        };
        drop(at_once);
        let mut full = self.evaluate_row(stage, steps, full)?;
        if let Some(loss) = full.validation.get(metric::LOSS).filter(|loss| training.steps > 0 && !loss.is_finite()) {
            let cause = format!("the loss on the validation split is {loss}");
            let (stage, checkpoint) = (adapter.name.clone(), self.last_good_checkpoint());
            self.remove_row(&stage)?;
            self.log.write(&Event::Stopped { stage: stage.clone(), step: steps, reason: cause.clone() })?;
            return Err(
                Stop::NonFinite(Failure { stage, step: steps, cause, checkpoint, advice: SMALLER_STEPS }).into()
            );
        }
        full.training =
            (training.steps > 0).then(|| TrainingResult { validation: full.validation.clone(), ..training.clone() });
        let mut rows = vec![full.clone()];
        for rule in &adapter.truncate {
            let name = rule.row_name(&adapter.name);
            let at_once = self.end_at_once(&adapter.name, steps)?;
            let directory = self.directory.adapter(&name);
            let written = self.group.is_root().then_some(&*directory);
            let length = stage.task.sequence_length();
            let truncated = if stage.model.adapters.is_reducible() {
                truncate(stage.model, &full, *rule, length, written, base_model)
            } else {
                truncate_along_data(stage.model, stage.task, &full, *rule, written, base_model)
            };
            drop(at_once);
            let truncated = match truncated.map_err(refusal) {
                Ok(truncated) => truncated,
                Err(refusal) => {
                    let (reason, rule) = (refusal?, rule.describe());
                    tell!("warning: `{}` cannot be truncated by {rule}, and there is no such row: {reason}", full.name);
                    rows[0].settings = format!("{}, not truncated by {rule}: {reason}", rows[0].settings);
                    continue;
                }
            };
            let (from, to) = truncated.orders;
            self.log.write(&Event::Truncation { stage: name.clone(), rule: rule.describe(), from, to })?;
            let evaluated = Stage { model: &truncated.model, name: &name, ..*stage };
            let path = directory.strip_prefix(self.directory.path()).unwrap_or(&directory).display().to_string();
            let row = AdapterResult { path: Some(path), ..truncated.row };
            rows.push(self.evaluate_row(&evaluated, steps, row)?);
        }
        for probe in &adapter.probe {
            let (model, row) = hold_gates(stage.model, &full, *probe)?;
            let name = row.name.clone();
            let evaluated = Stage { model: &model, name: &name, ..*stage };
            rows.push(self.evaluate_row(&evaluated, steps, row)?);
        }
        self.state.rows.extend(rows);
        Ok(())
    }

    /// Writes the result.
    pub(super) fn finish(&mut self, task: &dyn Task, snapshot: &BackboneSnapshot) -> Result<RunResult> {
        self.note_memory();
        let backbone = snapshot.backbone();
        let placement = backbone.placement();
        let source = match (self.config.backbone.path(), &self.config.pretrain) {
            (_, Some(_)) => "pretrained here".to_owned(),
            (Some(path), None) => path.display().to_string(),
            (None, None) => "random".to_owned(),
        };
        let precision = format!("{:?}", self.config.precision).to_lowercase();
        let result = RunResult {
            schema: SCHEMA,
            name: self.config.name.clone(),
            seed: self.config.seed,
            task: task.describe(),
            backbone: BackboneResult {
                kind: self.config.backbone.kind().to_owned(),
                source,
                parameters: backbone.parameters().iter().map(|parameter| parameter.elements() as u64).sum(),
                layers: placement.layers,
                d_model: placement.d_model,
                pretrain: self.state.pretrain.clone(),
            },
            rows: self.state.rows.clone(),
            diverged: self.state.diverged.clone(),
            environment: Environment {
                processes: self.processes(),
                ..environment(&self.device.to_string(), &precision)
            },
            data: self.state.data.clone(),
            model_files: self.state.model_files.clone(),
            wall_time_seconds: self.seconds(),
            peak_memory_bytes: self.state.peak_memory_bytes,
            peak_anonymous_bytes: self.state.peak_anonymous_bytes,
            peak_device_bytes: self.state.peak_device_bytes,
        };
        if self.group.is_root() {
            let json = serde_json::to_string_pretty(&result)? + "\n";
            self.directory.write(&self.directory.result(), &json)?;
        }
        self.log.write(&Event::Finished { seconds: self.begun.elapsed().as_secs_f64() })?;
        Ok(result)
    }
}
