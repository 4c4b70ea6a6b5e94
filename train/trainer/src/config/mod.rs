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
mod training;
mod truncation;
mod write;

pub use adapter::AdapterConfig;
pub use backbone::{BackboneConfig, DecoderConfig, KeptInputs, Quantize, TinyGptConfig};
pub use method::{AdapterMethod, AdapterSettings};
pub use probe::{ExactnessConfig, ProbeConfig};
pub use schema::schema;
pub use sweep::{Cell, Experiment, PlanText};
pub use training::{Keep, PretrainConfig, Schedule, TrainConfig};
pub use truncation::{ReduceConfig, Timing, TruncateConfig};
pub use write::first_difference;

pub use crate::settings::{ConfigError, Origin};

pub(crate) use schema::of as schema_of;

pub(crate) use backbone::{Sizes, model_directory};

use crate::settings::check::{Checks, Problem};
use crate::settings::tree::{self, Node};
use crate::tasks::{TaskConfig, TokenKind};
use hankel_core::{DType, Device};
use hankel_models::adapters::Context;
use hankel_models::{TinyGptConfig as TinyGptSettings, Tokenizer};
use hankel_ops::linear::{default_precision, fastest_precision};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What is computed in. In 16 bits that is products with frozen weights, their sums apart. Adapters, their states and the
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
    /// What is computed in; what suits the device when not given, its fastest for `auto`.
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
    /// Training of the adapters.
    pub train: TrainConfig,
    /// The adapters, trained in turn.
    #[schemars(schema_with = "schema::elsewhere")]
    pub adapter: Vec<AdapterConfig>,
}

/// Why a directory is not called `name`, if it should not be.
fn problem_of_name(name: &str) -> Option<String> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = name.chars().all(plain) && name.chars().any(char::is_alphanumeric);
    (!is_name).then(|| format!("must be made of letters, digits, `-`, `_` and `.`, found {name:?}"))
}

impl Config {
    /// Reads a configuration from the text of a file, called `file` in messages, with the `key=value` in `overrides` on
    /// top; checks it and writes out its defaults. Also returns notes to print: how budgets were solved.
    ///
    /// # Errors
    /// The first problem, with its place and key.
    pub fn load(text: &str, file: &str, overrides: &[String]) -> Result<(Self, Vec<String>), ConfigError> {
        let mut root = tree::parse(text, file)?;
        for assignment in overrides {
            tree::set(&mut root, assignment)?;
        }
        Self::resolved(&root, Path::new(file))
    }

    /// As [`Config::load`], for the resolved configuration of a run, whose files are where `find` says. One that was written before `train.keep` was there goes on
    /// as it began: with the last parameters.
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
        Ok(Self::resolved(&root, Path::new(file))?.0)
    }

    fn resolved(root: &Node, file: &Path) -> Result<(Self, Vec<String>), ConfigError> {
        let mut config = read::config(root, file)?;
        let model = config.backbone.path().map(|path| model_directory(path));
        if let Some(model) = &model {
            let pretrain = config.pretrain.as_mut().and_then(|pretrain| pretrain.task.as_mut());
            [Some(&mut config.task), pretrain].into_iter().flatten().for_each(|task| task.set_default_tokenizer(model));
        }
        let backbone = config.check(root)?;
        let mut notes = config
            .resolve(&backbone)
            .map_err(|(key, message)| ConfigError::new(root.origin_of(&key), format!("`{key}` {message}")))?;
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

    /// The longest sequence of any stage, in tokens.
    pub fn longest(&self) -> usize {
        self.task.longest_sequence().max(self.pretrain_task().longest_sequence())
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

    /// Reports a missing tokenizer under the key of the model when `task.tokenizer` was not given.
    fn check_tokenizer_of_model(&self, checks: &mut Checks<'_>) {
        let key = if matches!(self.backbone, BackboneConfig::Decoder(_)) { "backbone.model" } else { "backbone.path" };
        let (Some(tokenizer), Some(model)) = (self.task.tokenizer(), self.backbone.path()) else { return };
        if tokenizer == model_directory(model)
            && let Err(error) = Tokenizer::load(tokenizer)
        {
            checks.unusable_files(
                key,
                format!(
                    "has no tokenizer that can be used: {error}; docs/data.md says where to get models and tokenizers"
                ),
            );
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
        checks.require("train.chunk", self.train.chunk.is_none(), || {
            "is not for `task.kind = \"dpo\"`, whose answers are scored whole".to_owned()
        });
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
            let chunk = adapter.train.as_ref().and_then(|train| train.chunk);
            checks.require("train.chunk", chunk.is_none(), || {
                "is not for `task.kind = \"dpo\"`, whose answers are scored whole".to_owned()
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
        let tasks =
            [("task", Some(&self.task)), ("pretrain.task", self.pretrain.as_ref().and_then(|p| p.task.as_ref()))];
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
                notes.extend(adapter.method.resolve(&adapter.name, &context));
            }
        }
        Ok(notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hankel_models::settings::Table;

    const SMALL: &str = "\
[task]
kind = \"dfa\"
length = 32

[pretrain]
epochs = 2
lr = 1e-3
[pretrain.task]
table_seed = 7

[train]
steps = 100
batch_size = 16

[[adapter]]
kind = \"hrm\"
state_dim = 8
truncate = { epsilon = 0.01 }

[[adapter]]
kind = \"lora\"
rank = 4
[adapter.train]
lr = 2e-4
";

    fn settings(config: &Config, index: usize) -> &Table {
        &config.adapter[index].method.adapter().unwrap().settings
    }

    fn load(text: &str, overrides: &[&str]) -> Result<Config, String> {
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        Config::load(text, "dir/small.toml", &overrides).map(|(config, _)| config).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_written_out() {
        let config = load(SMALL, &["seed=3"]).unwrap();
        assert_eq!(config.name, "small");
        let TaskConfig::Dfa(task) = &config.task else { panic!() };
        assert_eq!((task.table_seed, task.sequences.data_seed), (Some(3), Some(3)));
        let pretrain = config.pretrain.as_ref().unwrap();
        let Some(TaskConfig::Dfa(other)) = &pretrain.task else { panic!() };
        assert_eq!((other.table_seed, other.length), (Some(7), 32), "keys left out come from [task]");
        assert_eq!((pretrain.train.lr, pretrain.train.batch_size), (1e-3, 16), "keys left out come from [train]");
        assert_eq!(pretrain.train.steps, Some(1250));
        let hrm = settings(&config, 0);
        assert_eq!((&hrm["input"], &hrm["a_max"]), (&"norm".into(), &(1.0 - 1.0 / 32.0).into()));
        assert_eq!(config.training_of(&config.adapter[0]).lr, 3e-3);
        let lora = config.training_of(&config.adapter[1]);
        assert_eq!((lora.lr, lora.rate_lr, lora.steps), (2e-4, Some(2e-4), Some(100)));
        let text = config.to_toml();
        assert_eq!(Config::load(&text, "again.toml", &[]).unwrap().0, config, "{text}");
    }

    #[test]
    fn precision_is_left_to_the_processor_and_told() {
        let (config, notes) = Config::load(&format!("precision = \"auto\"\n{SMALL}"), "t.toml", &[]).unwrap();
        assert_eq!(config.precision, Precision::fastest(Device::Cpu));
        assert!(matches!(config.precision, Precision::F32 | Precision::Bf16), "{:?}", config.precision);
        let told = format!("precision = \"auto\" takes {}, the fastest that cpu has", config.precision.of_products());
        assert!(notes.contains(&told), "{notes:?}");
        // The run keeps what was taken.
        assert_eq!(Config::load(&config.to_toml(), "again.toml", &[]).unwrap().0, config);
        assert_eq!(load(SMALL, &[]).unwrap().precision, Precision::F32);
    }

    #[test]
    fn hrm_begins_as_the_identity_on_a_pretrained_backbone() {
        let start = |text: &str, overrides: &[&str]| {
            let config = load(text, overrides).unwrap();
            let hrm = settings(&config, 0);
            (hrm["preset"].as_str().unwrap().to_owned(), hrm["gate_init"].as_f64().unwrap())
        };
        let (before, rest) = SMALL.split_once("[pretrain]").unwrap();
        let random = format!("{before}[train]{}", rest.split_once("[train]").unwrap().1);
        assert_eq!(start(&random, &[]), ("paper".to_owned(), 0.1));
        assert_eq!(start(SMALL, &[]), ("identity".to_owned(), 1.0));
        assert_eq!(start(SMALL, &["adapter.hrm.preset=paper"]), ("paper".to_owned(), 0.1));
        assert_eq!(start(SMALL, &["adapter.hrm.gate_init=0.5"]), ("identity".to_owned(), 0.5));
    }

    #[test]
    fn a_table_by_a_rule_is_written_out() {
        let with = |more: &[&str]| load(SMALL, &[&["task.max_window={ symbols = 3, accuracy = 0.6 }"], more].concat());
        let config = with(&["seed=3"]).unwrap();
        let TaskConfig::Dfa(task) = &config.task else { panic!() };
        let TaskConfig::Dfa(other) = config.pretrain_task() else { panic!() };
        assert!(
            task.table_seed.is_some_and(|seed| seed % 1000 == 3) && task.sequences.data_seed == Some(3),
            "{task:?}"
        );
        assert!(other.table_seed.is_some_and(|seed| seed % 1000 == 7), "{other:?}");
        let (again, notes) = Config::load(&config.to_toml(), "again.toml", &[]).unwrap();
        assert_eq!(again, config);
        assert!(notes[0].contains("; 0 of those from table_seed"), "{notes:?}");
        for (setting, expected) in [
            (
                "task.max_window.accuracy=0.2",
                "`task.max_window` allows none of 1000 tables, of table_seed = 0, 1000, ...",
            ),
            ("pretrain.task.max_window.accuracy=0.2", "`pretrain.task.max_window` allows none"),
            ("task.max_window.accuracy=2", "`task.max_window.accuracy` must be above 0 and at most 1, found 2"),
            ("task.max_window.symbols=30", "`task.max_window.symbols` = 30 makes every table take 3e13 transitions"),
            ("task.max_window.length=3", "unknown key `task.max_window.length`"),
            ("task.variant=final-state", "`task.max_window` is for a table that is drawn once"),
        ] {
            let message = with(&[setting]).unwrap_err();
            assert!(message.contains(expected), "{setting}: {message}");
        }
    }

    #[test]
    fn the_released_preset_and_single_fields() {
        let config =
            load(SMALL, &["adapter.hrm.preset=released", "adapter.hrm.input=sublayer", "adapter.hrm.gate_init=0.01"])
                .unwrap();
        let hrm = settings(&config, 0);
        assert_eq!((&hrm["discretization"], &hrm["rate_init"]), (&"zoh-clamped".into(), &"s4d_real".into()));
        assert!(!hrm.contains_key("a_min") && !hrm.contains_key("a_max"));
        assert_eq!((&hrm["input"], &hrm["gate_init"]), (&"sublayer".into(), &0.01.into()));
        assert_eq!(hrm["b_std"], 1.0);
    }

    const KIND: &str = "\n[[adapter]]\nkind = \"selective\"\nselection_rank = 2\na_max = 0.9\n";

    #[test]
    fn registered_kinds_are_configured_like_the_others() {
        let text = SMALL.to_owned() + KIND;
        let config =
            load(&text, &["adapter.selective.budget=50000", "adapter.selective.sites=[\"attention\"]"]).unwrap();
        let own = |key: &str| settings(&config, 2)[key].clone();
        assert_eq!((own("selection_rank"), own("a_max"), own("a_min")), (2.into(), 0.9.into(), 0.5.into()));
        // 4 (2 d D + 2 d + 1 + 2 D + 6 d) with D = 128.
        assert_eq!((own("state_dim"), config.adapter[2].method.adapter().unwrap().budget), (46.into(), None));
        // SMALL pretrains its backbone.
        assert_eq!((own("gate_init"), own("c_std"), own("input")), (1.0.into(), 0.0.into(), "norm".into()));
        assert_eq!(Config::load(&config.to_toml(), "again.toml", &[]).unwrap().0, config);
        for (overrides, expected) in [
            (
                &["adapter.selective.state_dim=x"][..],
                "--set adapter.selective.state_dim=x: `adapter.selective.state_dim` must be a whole number of at least 0, found",
            ),
            (
                &["adapter.selective.state_dim=0"],
                "`adapter.selective.kind` cannot be made as configured: adapter: state_dim = 0 is out of range",
            ),
            (&["adapter.selective.a_max=1"], "a_min = 0.5 and a_max = 1 must be in this order between 0 and 1"),
            (
                &["adapter.selective.budget=9", "adapter.selective.state_dim=1"],
                "and `state_dim` are both given: keep one",
            ),
            (&["adapter.selective.sites=[]"], "`adapter.selective.sites` must name `mlp`, `attention` or both"),
            (&["adapter.selective.path=x"], "names a saved adapter, which has its own settings"),
            (&["adapter.selective.truncate.bound=2"], "has no bound, no total and no other method than `bt`"),
            (
                &["adapter.lora.kind=state-offset", "adapter.state-offset.truncate.order=2"],
                "unknown key `adapter.state-offset.rank`",
            ),
        ] {
            let message = load(&text, overrides).unwrap_err();
            assert!(message.contains(expected), "{overrides:?}: {message}");
        }
    }

    #[test]
    fn problems_name_place_and_key() {
        for (overrides, expected) in [
            (&["tran.lr=1"][..], "--set tran.lr=1: unknown key `tran`; did you mean `train`?"),
            (
                &["train.learning_rate=1"],
                "--set train.learning_rate=1: unknown key `train.learning_rate`; did you mean `lr`?",
            ),
            (
                &["train.batchsize=1"],
                "--set train.batchsize=1: unknown key `train.batchsize`; did you mean `batch_size`?",
            ),
            (
                &["task.kind=dfaa"],
                "--set task.kind=dfaa: `task.kind` must be `dfa`, `parity`, `selective-copy`, `linear-system`, `word-problem`, `bytes`, `maestro`, `text`, `quality`, `qmsum`, `narrativeqa`, `longbench`, \
                 `jsonl` or `dpo`, found \"dfaa\"; did you mean `dfa`?",
            ),
            (&["learning_rate=1"], "unknown key `learning_rate`; it is called `lr` here, a key of [train]"),
            (&["train.max_grad_norm=1"], "unknown key `train.max_grad_norm`; did you mean `clip`?"),
            (
                &["train.output_dir=x"],
                "unknown key `train.output_dir`; the directory of a run is given on the command line, `train fit --out",
            ),
            (&["adapter.lora.lora_r=1"], "unknown key `adapter.lora.lora_r`; did you mean `rank`?"),
            (&["adapter.lora.lora_dropout=1"], "unknown key `adapter.lora.lora_dropout`; did you mean `dropout`?"),
            (
                &["adapter.hrm.target_modules=1"],
                "unknown key `adapter.hrm.target_modules`; it is called `targets` here",
            ),
            (&["adapter.lora.kind=LoRA"], "found \"LoRA\"; did you mean `lora`?"),
            (&["backbone.kind=qwen3"], "found \"qwen3\"; models of every family in docs/models.md are `decoder`"),
            (&["adapter.hrm.rank=3"], "--set adapter.hrm.rank=3: unknown key `adapter.hrm.rank`"),
            (&["adapter.hrm.truncat=3"], "unknown key `adapter.hrm.truncat`; did you mean `truncate`?"),
            (&["adapter.lora.rank=0"], "--set adapter.lora.rank=0: `adapter.lora.rank` must be at least 1, found 0"),
            (&["adapter.lora.budget=10"], "`adapter.lora.budget` and `rank` are both given: keep one"),
            (&["adapter.lora.name=hrm"], "`adapter.hrm.name` makes \"hrm\" the name of two rows"),
            (
                &["adapter.lora.name=hrm-epsilon-0.01"],
                "`adapter.hrm-epsilon-0.01.name` makes \"hrm-epsilon-0.01\" the name of two rows",
            ),
            (
                &["adapter.hrm.mode=complex", "adapter.hrm.state_dim=7"],
                "`adapter.hrm.state_dim` must be even for `mode",
            ),
            (
                &["adapter.hrm.mode=signed", "adapter.hrm.preset=released"],
                "\"signed\" goes with `discretization = \"free\"`",
            ),
            (
                &["adapter.hrm.mode=complex", "adapter.hrm.hsv_regularization=1"],
                "`adapter.hrm.hsv_regularization` cannot be used: hankel_sum: the gradient of the Hankel singular values needs real",
            ),
            (
                &["adapter.hrm.mode=negative"],
                "`adapter.hrm.mode` must be `positive`, `signed` or `complex`, found \"negative\"",
            ),
            (&["adapter.hrm.truncate.order=4"], "`adapter.hrm.truncate` must hold exactly one of"),
            (
                &["adapter.lora.probe.gate=1"],
                "`adapter.lora.probe` is for adapters with a gate, which `kind = \"lora\"` has",
            ),
            (&["adapter.hrm.probe=[{gate=1},{gate=1}]"], "`adapter.hrm.probe` has `gate = 1` twice"),
            (&["adapter.hrm.probe.gat=1"], "unknown key `adapter.hrm.probe.gat`; did you mean `gate`?"),
            (&["adapter.lora.exactness.sequences=1"], "`adapter.lora.exactness` is for recurrent adapters"),
            (&["adapter.hrm.exactness.sequences=0"], "`adapter.hrm.exactness.sequences` must be at least 1, found 0"),
            (
                &["backbone.context=16"],
                "--set backbone.context=16: `backbone.context` is 16 tokens, but sequences of the task have 32: shorten `task.length`",
            ),
            (&["backbone.heads=5"], "`backbone.heads` does not fit: d_model = 128 cannot be split over 5 heads"),
            (
                &["task.train_sequences=1000000000000000000"],
                "`task.train_sequences` must be at most 100000000 (shuffling",
            ),
            (&["task.validation_sequences=100000001"], "`task.validation_sequences` must be at most 100000000"),
            (&["task.test_sequences=100000001"], "`task.test_sequences` must be at most 100000000"),
            (&["task.transitions=[[0, 1]]"], "`task.transitions` must have 4 rows (states) of 2 entries (symbols)"),
            (&["pretrain.task.states=5"], "`pretrain.task` has a vocabulary of 7, but the adapters' task has one of 6"),
            (&["device=gpu", "precision=f64"], "--set precision=f64: `precision` \"f64\" is for the CPU"),
            (&["device="], "--set device=: `device` must name a device"),
            (&["gpu_memory=0"], "--set gpu_memory=0: `gpu_memory` must be above 0, found 0"),
            (&["adapter=[]"], "`adapter` is missing"),
            (&["adapter.lora.kind=selectve"], "found \"selectve\"; did you mean `selective`?"),
            (
                &["adapter.lora.kind=complex"],
                "`adapter.complex.kind`: \"complex\" was removed: `kind = \"hrm\"` has these poles: write `mode = \"complex\"`",
            ),
            (&["adapter.hrm.gate_init=nan"], "`adapter.hrm.gate_init` must be finite, found the number NaN"),
            (&["adapter.lora.targets=[1]"], "`adapter.lora.targets.0` must be a string, found the number 1"),
            (&["adapter.lora.kind=ia3"], "unknown key `adapter.ia3.rank`"),
            (&["adapter.hrm.reduce.orde=2"], "unknown key `adapter.hrm.reduce.orde`; did you mean `order`?"),
            (
                &["adapter.lora.kind=selective"],
                ":22: unknown key `adapter.selective.rank`; did you mean `selection_rank`?",
            ),
            (&["name=a/b"], "`name` must be made of letters"),
            (&["adapter.lora.targets=[\"q_prj\"]"], "target \"q_prj\" matches no projection; there are q_proj"),
            (&["adapter.hrm.path=x"], "`adapter.hrm.path` names a saved adapter, which has its own settings"),
            (&["adapter.lora.kind=full"], "unknown key `adapter.full.rank`"),
            (&["backbone.path=nowhere"], "`backbone.path` cannot be used: cannot read nowhere/config.json"),
            (&["train.warmup_steps=101"], "`train.warmup_steps` is 101, more than the 100 steps of the whole training"),
            (&["pretrain.warmup_steps=2000"], "`pretrain.warmup_steps` is 2000, more than the 1250 steps of the whole"),
            (&["adapter.lora.train.epochs=1e17"], "`adapter.lora.train.epochs` makes more steps than can be counted"),
            (&["train.betas=[0.9, 1]"], "`train.betas` must be at least 0 and below 1, found 1"),
            (&["adapter.hrm.train.clip=-1"], "`adapter.hrm.train.clip` must be at least 0, found -1"),
        ] {
            let message = load(SMALL, overrides).unwrap_err();
            assert!(message.contains(expected), "{overrides:?}: {message}");
        }
        let message = load(&SMALL.replace("rank = 4", "rank = 0"), &[]).unwrap_err();
        assert_eq!(message, "dir/small.toml:22: `adapter.lora.rank` must be at least 1, found 0");
        let message = load(&SMALL.replace("kind = \"lora\"\n", ""), &[]).unwrap_err();
        assert!(
            message.contains("dir/small.toml:20: `adapter.1.kind` is missing: it is `hrm`, `lora`, `dora`, `adalora`, `ia3`, `selective`, `rotation`, `householder`, `delta`, `hankel-shared`, `state-offset`, `full` or `none`"),
            "{message}"
        );
        assert!(load("", &[]).unwrap_err().contains("`task` is missing"));
    }
}
