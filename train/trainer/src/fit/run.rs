//! A run from its first stage to its result.

use super::backbone_snapshot::{BackboneSnapshot, stored_in};
use super::contribution::Contributions;
use super::empirical_start::started;
use super::forgetting::Forgetting;
use super::memory;
use super::model::Model;
use super::positions::warnings;
use super::pretrained::Pretrained;
use super::resumed::{go_on_with, result_of, state_of};
use super::session::Session;
use super::stage::{Reduction, Stage};
use crate::config::{AdapterConfig, Config, TrainConfig, TruncateConfig};
use crate::format::{counted, thousands, wrapped};
use crate::parallel::Group;
use crate::results::{DataFile, PRETRAIN, RunResult, Split};
use crate::run::RunDirectory;
use crate::run::checkpoint::{self, RunState};
use crate::run::model_files::{MODEL, model_files, sampled};
use crate::tasks::{Task, TaskConfig};
use anyhow::{Context, Result, bail, ensure};
use hankel_core::{Device, Tensor, with_precision};
use hankel_io::memory::kilobytes;
use hankel_models::lti::OrderRule;
use hankel_models::{AdapterSet, Parameter, adapters};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

/// Characters of a line of a terminal.
const LINE: usize = 80;

/// A finished run, in which adapters may have diverged.
pub struct Outcome {
    /// Where it is.
    pub directory: RunDirectory,
    /// Its figures.
    pub result: RunResult,
}

/// Everything that training needs, set up: what is wrong with the input shows before anything is written.
pub struct Prepared {
    task: Box<dyn Task>,
    pretrain_task: Option<Box<dyn Task>>,
    forgetting: Option<Box<dyn Task>>,
    snapshot: BackboneSnapshot,
    pretrained: Option<Pretrained>,
    /// Files of the model, its tokenizers and the adapters that are gone on with.
    model_files: Vec<DataFile>,
    /// Seconds that the backbone took.
    seconds: f64,
    /// Bytes of main memory that the largest stage takes, by estimate.
    memory: u64,
}

impl Prepared {
    /// The data files that the tasks have read.
    pub fn data_files(&self) -> Vec<DataFile> {
        let others = self.pretrain_task.iter().chain(&self.forgetting).flat_map(|task| task.data_files());
        self.task.data_files().into_iter().chain(others).collect()
    }

    /// The files that the backbone was loaded from, each with the SHA-256 of samples.
    pub fn backbone_files(&self) -> Vec<DataFile> {
        self.model_files.iter().filter(|file| file.path.starts_with(MODEL)).cloned().collect()
    }

    /// Reads data and weights and tries every adapter on, for `processes` of the run on this machine.
    ///
    /// # Errors
    /// Files that are missing, damaged or do not fit.
    fn new(config: &Config, processes: usize) -> Result<Self> {
        let task = config.task.build()?;
        let pretrain_task = config.pretrain.as_ref().and_then(|pretrain| pretrain.task.as_ref());
        let pretrain_task = build_of("pretrain.task", pretrain_task)?;
        let forgetting = build_of("forgetting", config.forgetting.as_ref())?;
        let begun = Instant::now();
        let snapshot = BackboneSnapshot::new(config)?;
        let seconds = begun.elapsed().as_secs_f64();
        for warning in warnings(&**snapshot.backbone(), config) {
            tell!("{warning}");
        }
        let (sequences, device) = (task.sequences(Split::Train), snapshot.device());
        // Where only the files tell how many sequences there are, this is not known before.
        let can_be = |settings: &TrainConfig, sequences: usize, what: &str| match settings.problem_on(sequences) {
            Some((key, problem)) => bail!("`{key}` of the training of `{what}` {problem}"),
            None => Ok(()),
        };
        if let Some(pretrain) = &config.pretrain {
            let sequences = pretrain_task.as_ref().map_or(sequences, |task| task.sequences(Split::Train));
            can_be(&pretrain.train, sequences, PRETRAIN)?;
        }
        let (mut memory, mut unread, mut repeated) = (0, BTreeSet::new(), BTreeSet::new());
        for adapter in &config.adapter {
            let mut model = model_of(config, adapter, &snapshot, attach(config, adapter, &snapshot, &*task)?)?;
            if device == Device::Cpu {
                let tokens = task.tokens_per_example();
                let settings = config.training_of(adapter);
                memory::decide(&mut model, settings, tokens, processes);
                memory = memory.max(memory::own(&memory::estimate(&model, settings, tokens, false)));
            }
            can_be(config.training_of(adapter), sequences, &adapter.name)?;
            // What is trained not at all leaves nothing out.
            let is_trained = adapter.method.kind() != "none";
            let settings = config.training_of(adapter);
            let told = settings.unread(sequences).into_iter().chain(settings.idle_patience(sequences));
            unread.extend(told.filter(|_| is_trained));
            let at_once = settings.batch_size.saturating_mul(settings.accumulation);
            repeated.extend((is_trained && sequences > 0 && at_once > sequences).then_some(at_once));
            if is_trained && settings.steps(sequences) > 0 && model.adapters.is_truncated() {
                tell!(
                    "note: `{}` was truncated along data, after which it is not trained: it is evaluated as it is",
                    adapter.name
                );
            }
            can_be_truncated(adapter, &model.adapters, config.training_of(adapter), sequences)?;
        }
        unread.iter().for_each(|what| tell!("note: {what}"));
        for at_once in repeated {
            tell!(
                "warning: a step takes {}, and there are {}: each is in it several times; lower `batch_size` or `accumulation`",
                counted(at_once, "sequence"),
                thousands(sequences as u64)
            );
        }
        snapshot.reset()?;
        let files = model_files(config)?;
        let model_files = files.iter().map(|(what, path)| sampled(what, path)).collect::<Result<_>>()?;
        Ok(Prepared { task, pretrain_task, forgetting, snapshot, pretrained: None, model_files, seconds, memory })
    }

    /// This, with the backbone that another run has pretrained in the same way ([`Config::pretrains_as`]) in place of a pretraining that
    /// has not begun; one of other files of the same names is not taken.
    pub fn with_pretrained(self, pretrained: Option<Pretrained>) -> Self {
        let own = self.data_files();
        let is_same = |was: &DataFile| own.iter().all(|is| is.path != was.path || is.sha256 == was.sha256);
        Prepared { pretrained: pretrained.filter(|given| given.data.iter().all(is_same)), ..self }
    }

    /// Reads data and weights and tries every adapter on, if there is memory for `processes` of the run on this machine; with `force`
    /// in any case.
    ///
    /// # Errors
    /// Files that are missing, damaged or do not fit, and when the run is estimated to take more memory than there is.
    pub fn within_memory(config: &Config, processes: usize, force: bool) -> Result<Self> {
        if force {
            return Self::new(config, processes);
        }
        memory::check_parameters(config)?;
        let prepared = Self::new(config, processes)?;
        let held = kilobytes("/proc/self/status", "RssAnon:").unwrap_or(0);
        let processes = processes as u64;
        memory::check(
            "the run takes about",
            prepared.memory.saturating_mul(processes),
            held.saturating_mul(processes),
        )?;
        Ok(prepared)
    }
}

/// Fails before the training where a truncation is not possible for these adapters, is to leave more states than there are, or is to come
/// after the last step: otherwise this would show only when the training is over.
pub(super) fn can_be_truncated(
    adapter: &AdapterConfig,
    adapters: &AdapterSet,
    settings: &TrainConfig,
    sequences: usize,
) -> Result<()> {
    let order = |rule: TruncateConfig| match rule.rule() {
        Some(OrderRule::Order(order)) => Some(order),
        _ => None,
    };
    let Some(mut states) = adapters.streams().map(|(_, stream)| stream.state_dim()).min() else { return Ok(()) };
    let is_asked_for = !adapter.truncate.is_empty() || adapter.reduce.is_some();
    if is_asked_for && !adapters.is_reducible() {
        can_be_truncated_along_data(adapter, adapters)?;
    }
    let check = |key: &str, asked: Option<usize>, states: usize| match asked.filter(|order| *order > states) {
        Some(order) => {
            bail!("`adapter.{}.{key}`: order {order} is larger than the {states} states that there are", adapter.name)
        }
        None => Ok(()),
    };
    if let Some(reduce) = adapter.reduce {
        let at = reduce.step_within(settings, sequences).with_context(|| format!("`adapter.{}`", adapter.name))?;
        check("reduce", order(reduce.rule), states)?;
        states = order(reduce.rule).filter(|_| at.is_some()).unwrap_or(states);
    }
    adapter.truncate.iter().try_for_each(|rule| check("truncate", order(*rule), states))
}

/// The same of adapters that are no linear recurrences. A saved one may be another than its kind is by default, by which the configuration
/// was judged.
fn can_be_truncated_along_data(adapter: &AdapterConfig, adapters: &AdapterSet) -> Result<()> {
    let name = &adapter.name;
    ensure!(adapter.reduce.is_none(), "`adapter.{name}.reduce` is for linear recurrences, which this adapter is not");
    ensure!(
        !adapters.is_truncated(),
        "`adapter.{name}.truncate` is not for this adapter, which was truncated along data before: leave it out"
    );
    ensure!(
        adapters.is_varying()?,
        "`adapter.{name}.truncate` is not for this adapter, which is no linear recurrence and has no Gramians along data \
         (`selective` with `mode = \"signed\"` has none): leave it out"
    );
    if let Some(rule) = adapter.truncate.iter().find(|rule| !rule.is_for_varying()) {
        bail!(
            "`adapter.{name}.truncate` has no bound, no total and no other method than `bt` for this adapter, which varies \
             in time; found {}",
            rule.describe()
        );
    }
    Ok(())
}

/// The task of another table than `[task]`, whose keys its own messages name.
pub(super) fn build_of(table: &str, task: Option<&TaskConfig>) -> Result<Option<Box<dyn Task>>> {
    task.map(TaskConfig::build).transpose().with_context(|| format!("in `[{table}]`"))
}

/// Trains everything in a resolved configuration, or resumes an unfinished run, by the processes of `group`. Process 0 writes.
///
/// # Errors
/// Bad input, files that cannot be read or written, and `Stop`.
pub fn fit(
    config: &Config,
    prepared: Prepared,
    directory: RunDirectory,
    resume: bool,
    group: &Group,
) -> Result<Outcome> {
    with_precision(config.precision.of_products(), || stages(config, prepared, directory, resume, group))
}

fn stages(
    config: &Config,
    prepared: Prepared,
    directory: RunDirectory,
    resume: bool,
    group: &Group,
) -> Result<Outcome> {
    let begun = Instant::now();
    let data = prepared.data_files();
    let Prepared { task, pretrain_task, forgetting, mut snapshot, pretrained, model_files, seconds, .. } = prepared;
    // Nothing of a run is changed before it is known that it goes on.
    let mut state = RunState::default();
    if resume {
        let finished = result_of(&directory);
        if let Some(result) = finished.clone().filter(|_| checkpoint::list(&directory.checkpoints()).is_empty()) {
            return Ok(Outcome { directory, result });
        }
        state = state_of(&directory)?;
        go_on_with(&mut state, data, model_files)?;
        let stages = usize::from(config.pretrain.is_some()) + config.adapter.len();
        if let Some(result) = finished.filter(|_| state.stage >= stages) {
            return Ok(Outcome { directory, result });
        }
    } else {
        (state.data, state.model_files) = (data, model_files);
    }
    let mut session = Session::open(config, group, directory, (state, resume), snapshot.device(), begun)?;
    let mut saved = session.tensors_of_checkpoint()?;
    announce(&*task);
    let parameters: usize = snapshot.backbone().parameters().iter().map(Parameter::elements).sum();
    let kind = config.backbone.kind();
    let device = snapshot.device();
    tell!("backbone: {kind}, {} parameters, on {device}, ready in {seconds:.2} s", thousands(parameters as u64));
    announce_processes(config, group);

    let mut number = 0;
    if let Some(pretrain) = &config.pretrain {
        if let Some(pretrained) = pretrained.filter(|_| (session.state.stage, session.state.step) == (number, 0)) {
            snapshot = BackboneSnapshot::from_directory(config, &pretrained.backbone)?;
            session.take_pretrained(pretrained, &snapshot)?;
        } else if session.state.stage == number {
            let task = pretrain_task.as_deref().unwrap_or(&*task);
            let model = snapshot.with_adapters(AdapterSet::none(&snapshot.backbone().placement()))?;
            model.backbone.parameters().iter().try_for_each(|parameter| parameter.set_trainable(true))?;
            let settings = &pretrain.train;
            let stage = Stage { name: PRETRAIN, model: &model, task, settings, reduction: None, regularization: 0.0 };
            let (mut result, _) = stage.run(&mut session, saved.take())?;
            let nothing = &mut Contributions::default();
            let evaluated = session.evaluate(&stage, PRETRAIN, result.steps, &[Split::Validation], nothing);
            let mut scores = evaluated.map_err(|error| session.explain(error))?;
            result.validation = scores.pop().unwrap_or_default();
            snapshot.update();
            session.save_backbone(&model.backbone)?;
            session.state.pretrain = Some(result);
            session.finish_stage(pretrain.train.keep_checkpoints)?;
        } else {
            let (noted, found) = (session.state.backbone_crc32c, session.directory.backbone_crc32c()?);
            ensure!(
                found.is_some() || noted.is_none(),
                "{} is missing: what this run has pretrained is there. Put it back, or begin a new run",
                session.directory.backbone().display()
            );
            ensure!(
                noted.is_none() || noted == found,
                "{} is damaged: it is not what this run has pretrained. Put it back, or begin a new run",
                session.directory.backbone().display()
            );
            snapshot = BackboneSnapshot::from_directory(config, &session.directory.backbone())?;
        }
        number += 1;
    } else if group.is_root() && config.backbone.path().is_none() && !session.directory.backbone().exists() {
        // A random backbone is kept as well: its adapters mean nothing without it.
        snapshot.backbone().save(&session.directory.backbone())?;
    }
    if let Some(task) = forgetting {
        let model = snapshot.with_adapters(AdapterSet::none(&snapshot.backbone().placement()))?;
        let settings = &config.train;
        let batch_size = settings.eval_batch_size.unwrap_or(settings.batch_size);
        session.forgetting = Forgetting::new(group, &model, task, None, batch_size)?;
        if session.forgetting.is_none() {
            return Err(session.interrupted(&config.adapter[0].name));
        }
    }
    // What was loaded and then pretrained further is the run's own.
    let loaded = config.backbone.path().filter(|_| config.pretrain.is_none());
    let base_model = loaded.cloned().unwrap_or_else(|| session.directory.backbone()).display().to_string();
    for adapter in &config.adapter {
        if session.state.stage == number {
            let trained = train(&mut session, adapter, &snapshot, &*task, &base_model, saved.take());
            trained.or_else(|error| session.go_on_without(&adapter.name, error))?;
            session.finish_stage(config.training_of(adapter).keep_checkpoints)?;
        }
        number += 1;
    }
    let result = session.finish(&*task, &snapshot)?;
    Ok(Outcome { directory: session.directory, result })
}

/// Trains an adapter, from the tensors of the newest checkpoint if it was begun, and evaluates it.
fn train(
    session: &mut Session<'_>,
    adapter: &AdapterConfig,
    snapshot: &BackboneSnapshot,
    task: &dyn Task,
    base_model: &str,
    saved: Option<BTreeMap<String, Tensor>>,
) -> Result<()> {
    let config = session.config;
    let adapters = attach(config, adapter, snapshot, task)?;
    let adapters = started(adapters, &adapter.name, config.seed, snapshot, task)?;
    let model = model_of(config, adapter, snapshot, adapters)?;
    let directory = session.directory.adapter(&adapter.name_in_training());
    let reduction = adapter.reduce.map(|config| Reduction { config, directory, base_model });
    let stage = Stage {
        name: &adapter.name,
        model: &model,
        task,
        settings: config.training_of(adapter),
        reduction: reduction.as_ref(),
        regularization: adapter.hsv_regularization,
    };
    session.evaluate_start(&stage, adapter).map_err(|error| session.explain(error))?;
    let (training, model) = stage.run(session, saved)?;
    let stage = Stage { model: &model, ..stage };
    session.finish_adapter(adapter, &stage, &training, base_model).map_err(|error| session.explain(error))
}

/// The model of a stage as its training begins: with `adapters`, and what of the backbone was trained with them before.
pub(super) fn model_of(
    config: &Config,
    adapter: &AdapterConfig,
    snapshot: &BackboneSnapshot,
    adapters: AdapterSet,
) -> Result<Model> {
    let model = snapshot.with_adapters(adapters)?;
    model.free_backbone(&config.backbone, &adapter.method)?;
    if let Some(path) = &adapter.path {
        model.go_on_from(path).with_context(|| format!("`adapter.{}.path` cannot be used", adapter.name))?;
    }
    Ok(model)
}

/// The adapter of a stage: fresh, or loaded from `path`.
pub(super) fn attach(
    config: &Config,
    adapter: &AdapterConfig,
    snapshot: &BackboneSnapshot,
    task: &dyn Task,
) -> Result<AdapterSet> {
    let placement = snapshot.backbone().placement();
    let length = config.task.sequence_length();
    let Some(path) = &adapter.path else {
        // DoRA starts from the weights, which the stage before may have trained.
        snapshot.reset()?;
        let backbone = snapshot.backbone().parameters();
        let steps = Some(config.training_of(adapter).steps(task.sequences(Split::Train)));
        let attached = || format!("`adapter.{}` cannot be attached", adapter.name);
        let settings = adapter
            .method
            .settings(&adapters::Context { placement: &placement, length, steps, pretrained: config.is_pretrained() })
            .with_context(attached)?;
        let Some(settings) = settings else { return Ok(AdapterSet::none(&placement)) };
        let stored = stored_in(config.backbone.path().map(PathBuf::as_path));
        let weights = (&*backbone, &stored as &(dyn Fn(&str) -> _ + Sync));
        return AdapterSet::on_stored(&settings, &placement, weights, config.seed).with_context(attached);
    };
    let unusable = || format!("`adapter.{}.path` cannot be used", adapter.name);
    let loaded = AdapterSet::load(path, &placement, length).with_context(unusable)?;
    snapshot.complete(&loaded).with_context(unusable)?;
    let kind = loaded.config().map_or("none", |config| config.kind().name());
    if kind != adapter.method.kind() {
        bail!(
            "`adapter.{}.path`: {} holds an adapter of kind {kind:?}, not {:?}",
            adapter.name,
            path.display(),
            adapter.method.kind()
        );
    }
    if adapter.hsv_regularization > 0.0 && loaded.hankel_sum()?.is_none() {
        bail!(
            "`adapter.{}.hsv_regularization`: {} holds a truncated adapter, of whose Hankel singular values no gradient is known here: leave it out",
            adapter.name,
            path.display()
        );
    }
    Ok(loaded)
}

/// Prints how the micro-batches of a step are shared out.
fn announce_processes(config: &Config, group: &Group) {
    if group.size() < 2 {
        return;
    }
    let pretrain = config.pretrain.iter().map(|pretrain| (PRETRAIN, &pretrain.train));
    let adapters = config.adapter.iter().map(|adapter| (&*adapter.name, config.training_of(adapter)));
    for (name, settings) in pretrain.chain(adapters) {
        let (size, count) = (group.size(), settings.accumulation);
        tell!("{name}: {count} micro-batches of a step on {size} processes");
        if count < size {
            tell!(
                "warning: {} of the processes have nothing to do in the steps of `{name}`: give it a larger `accumulation`, and \
                 a smaller `batch_size` for the same step",
                size - count
            );
        }
    }
}

/// Prints what is known about the task before training.
fn announce(task: &dyn Task) {
    let facts = task.describe();
    let in_lines = |words: Vec<&str>| wrapped(words, LINE).iter().for_each(|line| tell!("{}", line.trim_end()));
    in_lines(format!("task: {}", facts.description).split(' ').collect());
    if let Some(table) = &facts.transition_table {
        in_lines(format!("transition table [state][symbol]: {table:?}").split(' ').collect());
    }
    if !facts.baselines.is_empty() {
        let what = format!("{} without learning:", facts.primary_metric.replace('_', " "));
        let figures = facts.baselines.iter().map(|(name, value)| format!("{name} {value:.3} "));
        let all: Vec<String> = [what].into_iter().chain(figures).collect();
        in_lines(all.iter().map(String::as_str).collect());
    }
}
