//! Configuration: one TOML file and `--set key=value` on top of it.
//!
//! [`Config::load`] reads, checks and resolves: unknown keys, wrong types and impossible values are refused with file,
//! line and key; the result has every default written out ([`Config::to_toml`]), except sizes that only the files of a
//! loaded backbone or adapter can tell.

#![allow(unreachable_pub)]

mod adapter;
mod backbone;
mod method;
mod probe;
#[cfg(test)]
mod proptests;
mod read;
#[cfg(test)]
mod reference;
mod relocate;
mod schema;
mod sweep;
#[cfg(test)]
mod tests;
mod training;
mod truncation;
mod write;

pub use adapter::AdapterConfig;
pub use backbone::{BackboneConfig, DecoderConfig, KeptInputs, Quantize, TinyGptConfig};
pub use method::{AdapterMethod, AdapterSettings};
pub use probe::{ExactnessConfig, ProbeConfig};
pub use relocate::without_places;
pub use schema::schema;
pub use sweep::{Cell, Experiment, PlanText};
pub use training::{Keep, PretrainConfig, Schedule, TrainConfig};
pub use truncation::{ReduceConfig, Timing, TruncateConfig};
pub use write::first_difference;

pub use crate::settings::{ConfigError, Origin};

pub(crate) use backbone::{Sizes, model_directory};

use crate::settings::check::{Checks, Problem};
use crate::settings::tree::{self, Node};
use crate::tasks::{TaskConfig, TokenKind};
use hankel_core::{DType, Device};
use hankel_models::adapters::{Context, Placement};
use hankel_models::gguf::is_gguf;
use hankel_models::{TinyGptConfig as TinyGptSettings, Tokenizer};
use hankel_ops::linear::{default_precision, fastest_precision};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What is computed in. In 16 bits that is products with frozen weights and inside attention, their sums apart. Adapters, their states and the
/// optimizer stay in single precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Double precision, on the CPU.
    F64,
    /// Operands of products rounded to bf16, on the CPU: kernels of GPUs have no such type.
    Bf16,
    /// Operands of products rounded to f16, on GPUs with cooperative matrices.
    F16,
}

impl Precision {
    /// What suits a device when nothing is said: f16 where it has it.
    pub fn suited(device: Device) -> Self {
        default_precision(device).into()
    }

    /// The fastest that a device has: 16 bits where they save time.
    pub fn fastest(device: Device) -> Self {
        fastest_precision(device).into()
    }

    /// That of products with frozen weights.
    pub fn of_products(self) -> hankel_core::Precision {
        match self {
            Precision::F32 | Precision::F64 => hankel_core::Precision::F32,
            Precision::Bf16 => hankel_core::Precision::Bf16,
            Precision::F16 => hankel_core::Precision::F16,
        }
    }

    /// Element type of activations, and of parameters that learn.
    pub fn dtype(self) -> DType {
        if self == Precision::F64 { DType::F64 } else { DType::F32 }
    }
}

impl From<hankel_core::Precision> for Precision {
    fn from(of_products: hankel_core::Precision) -> Self {
        match of_products {
            hankel_core::Precision::F32 => Precision::F32,
            hankel_core::Precision::Bf16 => Precision::Bf16,
            hankel_core::Precision::F16 => Precision::F16,
        }
    }
}

/// Why a run in double precision does not begin on a GPU.
pub(crate) const NO_DOUBLES: &str = "\"f64\" is for the CPU: GPUs compute in \"f32\"";

/// A configuration.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
pub struct Config {
    /// Name of the run and of its directory under `runs/`.
    pub name: String,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// Device that computes: `cpu`, `gpu` (the first one), `gpu:1` (the second), or part of a GPU's name.
    pub device: String,
    /// GiB that tensors may take on a GPU; whatever it has when not given. It has no effect on the CPU.
    pub gpu_memory: Option<f64>,
    /// Precision of the computation. When not given, `f16` on GPUs where it is faster, else `f32`. `auto` takes the fastest of the device.
    #[schemars(schema_with = "schema::precision")]
    pub precision: Precision,
    /// What is learned.
    #[schemars(schema_with = "schema::elsewhere")]
    pub task: TaskConfig,
    /// The transformer.
    #[schemars(schema_with = "schema::elsewhere")]
    pub backbone: BackboneConfig,
    /// Training of the backbone before it is frozen.
    #[schemars(schema_with = "schema::elsewhere")]
    pub pretrain: Option<PretrainConfig>,
    /// A task that is not trained: its loss with every trained adapter, less that without, is what was forgotten.
    #[schemars(schema_with = "schema::elsewhere")]
    pub forgetting: Option<TaskConfig>,
    /// Training of the adapters.
    pub train: TrainConfig,
    /// The adapters, trained in turn.
    #[schemars(schema_with = "schema::elsewhere")]
    pub adapter: Vec<AdapterConfig>,
}

/// The document of a configuration, with what is set on top.
fn overridden(text: &str, file: &str, overrides: &[String]) -> Result<Node, ConfigError> {
    let mut root = tree::parse(text, file)?;
    overrides.iter().try_for_each(|assignment| tree::set(&mut root, assignment))?;
    Ok(root)
}

/// Whether a precision is named, which `"auto"` does not.
fn names_precision(root: &Node) -> Result<bool, ConfigError> {
    let table = root.as_table("")?;
    Ok(table.get("precision").is_some() && !read::precision_is_auto(table))
}

/// Why a directory is not called `name`, if it should not be.
fn problem_of_name(name: &str) -> Option<String> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = name.chars().all(plain) && name.chars().any(char::is_alphanumeric);
    (!is_name).then(|| {
        format!(
            "must be made of letters, digits, `-`, `_` and `.`, found {name:?} (the name of the file, where `name` is not in it)"
        )
    })
}

impl Config {
    /// Reads a configuration from the text of a file, called `file` in messages, with the `key=value` in `overrides` on
    /// top; checks it and writes out its defaults. Files that it names are looked for in the working directory, then beside it.
    /// Also returns notes to print: how budgets were solved.
    ///
    /// # Errors
    /// The first problem, with its place and key.
    pub fn load(text: &str, file: &str, overrides: &[String]) -> Result<(Self, Vec<String>), ConfigError> {
        let (mut root, file) = (overridden(text, file, overrides)?, Path::new(file));
        relocate::relocate(&mut root, &|path| relocate::find(path, file));
        Self::resolved(&root, file)
    }

    /// Looks for the data files that a configuration as that of [`Config::load`] names.
    ///
    /// # Errors
    /// The first one that is nowhere, with its place and key.
    pub fn check_data(text: &str, file: &str, overrides: &[String]) -> Result<(), ConfigError> {
        relocate::missing(&overridden(text, file, overrides)?, Path::new(file)).map_or(Ok(()), Err)
    }

    /// As [`Config::load`], for the resolved configuration of a run, whose files are where `find` says. A run of an earlier version goes on
    /// as it began: without `train.keep` it keeps the last parameters, and settings without an effect are not refused.
    ///
    /// # Errors
    /// As there.
    pub fn load_of_run(
        text: &str,
        file: &str,
        find: &dyn Fn(&Path) -> PathBuf,
        overrides: &[String],
    ) -> Result<Self, ConfigError> {
        let mut root = tree::parse(text, file)?;
        relocate::relocate(&mut root, find);
        tree::set_default(&mut root, "train.keep", "last")?;
        for assignment in overrides {
            tree::set(&mut root, assignment)?;
        }
        Ok(Self::resolved_with(&root, Path::new(file), false)?.0)
    }

    /// Whether `text` or an assignment names a precision, which `"auto"` does not: what is not named is chosen when a run begins.
    ///
    /// # Errors
    /// When the text, or an assignment, cannot be read.
    pub fn names_precision(text: &str, file: &str, overrides: &[String]) -> Result<bool, ConfigError> {
        names_precision(&overridden(text, file, overrides)?)
    }

    fn resolved(root: &Node, file: &Path) -> Result<(Self, Vec<String>), ConfigError> {
        Self::resolved_with(root, file, true)
    }

    /// With `is_new`, every setting of an adapter must have an effect.
    fn resolved_with(root: &Node, file: &Path, is_new: bool) -> Result<(Self, Vec<String>), ConfigError> {
        let mut config = read::config(root, file)?;
        let model = config.backbone.path().map(|path| model_directory(path));
        if let Some(model) = &model {
            let pretrain = config.pretrain.as_mut().and_then(|pretrain| pretrain.task.as_mut());
            [Some(&mut config.task), pretrain, config.forgetting.as_mut()]
                .into_iter()
                .flatten()
                .for_each(|task| task.set_default_tokenizer(model));
        }
        let backbone = config.check(root).map_err(|error| error.in_file(file))?;
        if is_new {
            config.check_effects(root, &backbone.placement())?;
        }
        let mut notes = config.resolve(&backbone).map_err(|(key, message)| {
            ConfigError::new(root.origin_of(&key), format!("`{key}` {message}")).in_file(file)
        })?;
        if read::precision_is_auto(root.as_table("")?) {
            let name = config.precision.of_products();
            notes.push(format!("precision = \"auto\" takes {name}, the fastest that {} has", config.device));
        }
        Ok((config, notes))
    }

    /// The configuration as a file that [`Config::load`] reads back to an equal value.
    pub fn to_toml(&self) -> String {
        write::config(self)
    }

    /// Task of the pretraining stage.
    pub fn pretrain_task(&self) -> &TaskConfig {
        self.pretrain.as_ref().and_then(|pretrain| pretrain.task.as_ref()).unwrap_or(&self.task)
    }

    /// Training settings of an adapter.
    pub fn training_of<'a>(&'a self, adapter: &'a AdapterConfig) -> &'a TrainConfig {
        adapter.train.as_ref().unwrap_or(&self.train)
    }

    /// Takes the warm-up and the intervals of evaluations, checkpoints and the log from `run` where its own are those that follow from its
    /// steps.
    pub fn take_intervals(&mut self, run: &Config) {
        self.train.take_intervals(&run.train);
        for (own, other) in self.adapter.iter_mut().zip(&run.adapter) {
            if let (Some(own), Some(other)) = (&mut own.train, &other.train) {
                own.take_intervals(other);
            }
        }
    }

    /// The longest sequence of any stage, in tokens.
    pub fn longest(&self) -> usize {
        let others = [Some(self.pretrain_task()), self.forgetting.as_ref()];
        others.into_iter().flatten().map(TaskConfig::longest_sequence).fold(self.task.longest_sequence(), usize::max)
    }

    fn check(&self, root: &Node) -> Result<Sizes, ConfigError> {
        let mut problems = Vec::new();
        let mut checks = Checks::new("", &mut problems);
        let problem = problem_of_name(&self.name);
        checks.require("name", problem.is_none(), || problem.unwrap_or_default());
        checks.at_most("seed", self.seed, i64::MAX as u64);
        checks.require("device", !self.device.trim().is_empty(), || "must name a device, or `cpu`".to_owned());
        checks.positive("gpu_memory", self.gpu_memory.unwrap_or(1.0));
        checks.require("precision", self.device == "cpu" || self.precision != Precision::F64, || NO_DOUBLES.to_owned());
        self.check_tokenizer_of_model(&mut checks);
        self.check_bytes(&mut checks);
        self.task.check(&mut checks.inside("task"));
        let backbone = self.backbone.check(self.task.vocabulary(), self.longest(), &mut checks.inside("backbone"));
        if let Some(Sizes::Decoder(model)) = &backbone {
            self.task.check_model(model.vocabulary, &mut checks.inside("task"));
            if let Some(original) = model.turning_length().filter(|original| *original < self.longest()) {
                // The parts of a sequence would be turned by the angles of a short one.
                let angles = format!(
                    "is not for this model, whose rotary angles are others in sequences of more than {original} tokens \
                     (longrope): leave it out, or shorten `task.length`"
                );
                self.refuse_chunks(&angles, &mut checks);
            }
        }
        if self.task.has_pairs() {
            self.refuse_chunks("is not for `task.kind = \"dpo\"`, whose answers are scored whole", &mut checks);
        }
        if self.task.has_turns() {
            self.refuse_chunks(
                "and `task.turn_start` are both given: gradients would end where memory is to be learned",
                &mut checks,
            );
        }
        let placement = backbone.as_ref().map_or_else(|| TinyGptSettings::default().placement(), Sizes::placement);
        let sequences = self.task.train_sequences();
        self.train.check(sequences, &mut checks.inside("train"));
        if let Some(pretrain) = &self.pretrain {
            let mut checks = checks.inside("pretrain");
            checks.require("", self.backbone.can_be_pretrained(), || {
                format!("is not for `backbone.kind = {:?}`, which is held fixed: leave it out", self.backbone.kind())
            });
            pretrain.train.check(self.pretrain_task().train_sequences(), &mut checks);
            checks.at_least("steps", pretrain.train.steps.unwrap_or(1), 1);
            checks.require("chunk", pretrain.train.chunk.is_none() || !self.pretrain_task().has_turns(), || {
                "and `turn_start` of the task are both given: keep one".to_owned()
            });
            checks.require("steps", pretrain.train.steps.is_some() || pretrain.train.epochs.is_some(), || {
                "or `epochs` must be given".to_owned()
            });
            if let Some(task) = &pretrain.task {
                task.check(&mut checks.inside("task"));
                let (own, main) = (task.vocabulary(), self.task.vocabulary());
                checks.require("task", own == main, || {
                    format!("has a vocabulary of {own}, but the adapters' task has one of {main}")
                });
            }
        }
        if let Some(task) = &self.forgetting {
            let mut checks = checks.inside("forgetting");
            task.check(&mut checks);
            let (own, main) = (task.vocabulary(), self.task.vocabulary());
            checks.require("", own == main, || {
                format!("has a vocabulary of {own}, but the adapters' task has one of {main}")
            });
            checks.require("kind", !task.has_pairs(), || "\"dpo\" has no loss of the model alone".to_owned());
        }
        checks.require("adapter", !self.adapter.is_empty(), || {
            "is missing: write at least one [[adapter]] table (kind = \"none\" for the backbone alone)".to_owned()
        });
        self.check_pairs(&mut checks);
        for (index, adapter) in self.adapter.iter().enumerate() {
            let own = adapter.names();
            let others = |earlier: &AdapterConfig| earlier.names().into_iter().find(|name| own.contains(name));
            let taken = self.adapter[..index].iter().find_map(others);
            let mut checks = checks.inside(&format!("adapter.{index}"));
            checks.require("name", taken.is_none(), || {
                let name = taken.unwrap_or_default();
                format!(
                    "makes {name:?} the name of two rows (truncated and probed ones have names of their own); give each \
                     [[adapter]] its own `name`"
                )
            });
            let full = adapter.method == AdapterMethod::Full;
            checks.require("kind", !full || self.backbone.can_be_pretrained(), || {
                format!(
                    "\"full\" trains every weight of the backbone, but those of `backbone.kind = {:?}` are held fixed, \
                     read from their files or quantised: train an adapter",
                    self.backbone.kind()
                )
            });
            adapter.check((self.task.sequence_length(), sequences), &placement, &mut checks);
        }
        let Problem { key: path, message, of_files } = match (problems.into_iter().next(), backbone) {
            (Some(problem), _) => problem,
            (None, Some(backbone)) => return Ok(backbone),
            (None, None) => Problem { key: "backbone".into(), message: "cannot be used".into(), of_files: false },
        };
        let origin = root.origin_of(&path);
        // Adapters are addressed by number inside and by name outside.
        let mut shown = path.clone();
        for (index, adapter) in self.adapter.iter().enumerate() {
            if let Some(rest) = path.strip_prefix(&format!("adapter.{index}.")) {
                shown = format!("adapter.{}.{rest}", adapter.name);
            }
        }
        Err(ConfigError { of_files, ..ConfigError::new(origin, format!("`{shown}` {message}")) })
    }

    /// Refuses settings of adapters that were given and change nothing.
    fn check_effects(&self, root: &Node, placement: &Placement) -> Result<(), ConfigError> {
        let (length, pretrained) = (self.task.sequence_length(), self.is_pretrained());
        let context = Context { placement, length, steps: None, pretrained };
        for (index, adapter) in self.adapter.iter().enumerate() {
            let Some(method) = adapter.method.adapter().filter(|_| adapter.path.is_none()) else { continue };
            if let Err(error) = method.kind.check_effects(&method.settings, &context) {
                let origin = root.origin_of(&format!("adapter.{index}.{}", error.key));
                let message = format!("`adapter.{}.{}` {}", adapter.name, error.key, error.problem);
                return Err(ConfigError::new(origin, message));
            }
        }
        Ok(())
    }

    /// Sequences must be run whole.
    fn refuse_chunks(&self, reason: &str, checks: &mut Checks<'_>) {
        let own = self.adapter.iter().enumerate().filter_map(|(index, adapter)| {
            Some((format!("adapter.{index}.train.chunk"), adapter.train.as_ref()?.chunk))
        });
        for (key, chunk) in own.chain([("train.chunk".to_owned(), self.train.chunk)]) {
            checks.require(&key, chunk.is_none(), || reason.to_owned());
        }
    }

    /// Reports a missing tokenizer under the key of the model when `task.tokenizer` was not given.
    fn check_tokenizer_of_model(&self, checks: &mut Checks<'_>) {
        let key = if matches!(self.backbone, BackboneConfig::Decoder(_)) { "backbone.model" } else { "backbone.path" };
        let (Some(tokenizer), Some(model)) = (self.task.tokenizer(), self.backbone.path()) else { return };
        if !model.exists() {
            checks.unusable_files(
                key,
                format!(
                    "names {}, which does not exist. Nothing is downloaded: `hf download NAME --local-dir DIR` gets a model of Hugging Face",
                    model.display()
                ),
            );
        } else if tokenizer == model_directory(model)
            && let Err(error) = Tokenizer::load(tokenizer)
        {
            let problem = if model.is_file() && !is_gguf(model) {
                "names a file that is not GGUF: name the directory of the model".to_owned()
            } else {
                format!(
                    "has no tokenizer that can be used: {error}; docs/data.md says where to get models and tokenizers"
                )
            };
            checks.unusable_files(key, problem);
        }
    }

    /// Pairs of answers are scored beside the model without its adapter, which must not change, and whole.
    fn check_pairs(&self, checks: &mut Checks<'_>) {
        let pretraining = self.pretrain.as_ref().map(|pretrain| pretrain.task.as_ref().unwrap_or(&self.task));
        checks.require("pretrain.task", !pretraining.is_some_and(TaskConfig::has_pairs), || {
            "`kind = \"dpo\"` compares with the model before the training: pretrain on another task".to_owned()
        });
        if !self.task.has_pairs() {
            return;
        }
        checks.require("backbone", self.backbone.is_fixed(), || {
            "is trained together with the adapters: `task.kind = \"dpo\"` compares with the model without its adapter, \
             which must stay as it is"
                .to_owned()
        });
        for (index, adapter) in self.adapter.iter().enumerate() {
            let mut checks = checks.inside(&format!("adapter.{index}"));
            checks.require("kind", adapter.method != AdapterMethod::Full, || {
                "\"full\" changes the model that `task.kind = \"dpo\"` compares with: train an adapter".to_owned()
            });
        }
    }

    /// Refuses bytes as the token ids of a model that has a tokenizer: they would be its first 256 tokens, whatever those are.
    fn check_bytes(&self, checks: &mut Checks<'_>) {
        let Some(model) =
            self.backbone.path().map(|path| model_directory(path)).filter(|path| Tokenizer::is_beside(path))
        else {
            return;
        };
        let tasks = [
            ("task", Some(&self.task)),
            ("pretrain.task", self.pretrain.as_ref().and_then(|p| p.task.as_ref())),
            ("forgetting", self.forgetting.as_ref()),
        ];
        for (section, task) in tasks {
            let is_bytes = task.is_some_and(|task| task.token_kind() == TokenKind::Bytes);
            let mut checks = checks.inside(section);
            checks.require("kind", !is_bytes, || {
                format!(
                    "\"bytes\" would feed bytes as token ids to a model that has a tokenizer ({}): plain text files are \
                     `kind = \"text\"`",
                    model.display()
                )
            });
        }
    }

    /// Whether adapters meet a backbone that has learnt something: one that is loaded, or trained by this run.
    pub fn is_pretrained(&self) -> bool {
        self.pretrain.is_some() || self.backbone.path().is_some()
    }

    /// Writes out defaults. Returns notes to print, or the key that cannot be resolved and why.
    fn resolve(&mut self, backbone: &Sizes) -> Result<Vec<String>, (String, String)> {
        let seed = self.seed;
        let (length, sequences) = (self.task.sequence_length(), self.task.train_sequences());
        let mut notes = Vec::new();
        notes.extend(self.task.resolve(seed).map_err(|(key, message)| (format!("task.{key}"), message))?);
        self.backbone.resolve(backbone);
        if let Some(task) = &mut self.forgetting {
            let resolved = task.resolve(seed).map_err(|(key, message)| (format!("forgetting.{key}"), message));
            notes.extend(resolved?.map(|note| format!("forgetting: {note}")));
        }
        if let Some(pretrain) = &mut self.pretrain {
            let sequences = pretrain.task.as_ref().map_or(sequences, TaskConfig::train_sequences);
            if let Some(task) = &mut pretrain.task {
                let resolved = task.resolve(seed).map_err(|(key, message)| (format!("pretrain.task.{key}"), message));
                notes.extend(resolved?.map(|note| format!("pretrain.{note}")));
            }
            pretrain.train.resolve(sequences);
        }
        self.train.resolve(sequences);
        let placement = backbone.placement();
        let pretrained = self.is_pretrained();
        for adapter in &mut self.adapter {
            if let Some(train) = &mut adapter.train {
                train.resolve(sequences);
            }
            let steps = adapter.train.as_ref().unwrap_or(&self.train).steps;
            if adapter.path.is_none() {
                let context = Context { placement: &placement, length, steps, pretrained };
                let solved = adapter.method.resolve(&adapter.name, &context);
                notes.extend(solved.map_err(|message| (format!("adapter.{}.budget", adapter.name), message))?);
            }
        }
        Ok(notes)
    }
}
