//! `[[adapter]]`: what is trained on the backbone. Several are trained in turn and compared.

use super::check::Checks;
use super::low_rank::{self, AdaLoraConfig, Ia3Config};
use super::probe::{ExactnessConfig, ProbeConfig};
use super::stream::StreamConfig;
use super::training::TrainConfig;
use hankel_models::adapters::{Discretization, HrmInput, HrmMode, Placement, Preset, RateInit, StreamSite};
use hankel_models::lti::{Method, OrderRule};
use hankel_models::reduce::OrderChoice;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One `[[adapter]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterConfig {
    /// Name of the row and of the directory under `adapters/`; the kind when not given.
    pub name: String,
    /// Directory of a saved adapter to go on from, reduced ones included.
    pub path: Option<PathBuf>,
    /// Truncations of the trained adapter, each evaluated as a row of its own: one table or an array of them.
    pub truncate: Vec<TruncateConfig>,
    /// Truncation in the middle of training, which goes on with the smaller adapter.
    pub reduce: Option<ReduceConfig>,
    /// Weight λ of the sum of all layers' Hankel singular values in the training loss; 0 for none. Layers that were truncated
    /// already have no such term.
    pub hsv_regularization: f64,
    /// Evaluations of the trained adapter under other gates, each a row of its own: one table or an array of them.
    pub probe: Vec<ProbeConfig>,
    /// Measures how exactly the recurrence of the trained adapter is evaluated.
    pub exactness: Option<ExactnessConfig>,
    /// Settings of `[train]` that differ for this adapter, merged over them.
    pub train: Option<TrainConfig>,
    /// The adapter.
    pub method: AdapterMethod,
}

/// Keys of `[[adapter]]` that every kind has.
pub const COMMON_KEYS: &[&str] =
    &["kind", "name", "path", "truncate", "reduce", "hsv_regularization", "probe", "exactness", "train"];

/// Values of `adapter.kind`, beside the registered kinds.
pub const KINDS: &[&str] = &["hrm", "lora", "dora", "adalora", "ia3", "full", "none"];

/// An adapter, by `kind`.
#[derive(Debug, Clone, PartialEq)]
pub enum AdapterMethod {
    /// `kind = "hrm"`: the recurrent adapter (R1, R2).
    Hrm(HrmConfig),
    /// `kind = "lora"`: low-rank updates of linear layers.
    Lora(LoraConfig),
    /// `kind = "dora"`: low-rank updates of the directions of rows, their magnitudes learned apart.
    Dora(LoraConfig),
    /// `kind = "adalora"`: low-rank updates that share out their ranks.
    AdaLora(AdaLoraConfig),
    /// `kind = "ia3"`: scales.
    Ia3(Ia3Config),
    /// Any registered kind.
    Stream(StreamConfig),
    /// `kind = "full"`: no adapter, but every parameter of the backbone trained further.
    Full(NoneConfig),
    /// `kind = "none"`: the backbone alone, or its head and embeddings when those are trained.
    None(NoneConfig),
}

/// How the recurrence is evaluated (R3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scan {
    /// Step by step, which a GPU does in chunks.
    #[default]
    Auto,
    /// FFT convolution.
    Fft,
    /// Step by step.
    Sequential,
    /// In chunks.
    Chunked,
}

/// The recurrent adapter.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HrmConfig {
    /// Where the defaults of the fields below come from.
    pub preset: Preset,
    /// Which poles it can have: `positive`, `signed` or `complex`.
    pub mode: HrmMode,
    /// State dimension d of every layer.
    pub state_dim: Option<usize>,
    /// Number of parameters to solve the state dimension for, instead of giving it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// Sites: `mlp`, `attention`.
    #[serde(deserialize_with = "low_rank::one_or_many")]
    pub sites: Option<Vec<StreamSite>>,
    /// What the adapter reads.
    pub input: Option<HrmInput>,
    /// How the parameters give the recurrence.
    pub discretization: Option<Discretization>,
    /// Initial decay rates.
    pub rate_init: Option<RateInit>,
    /// Fastest initial pole of `rate_init = "log_spaced"`.
    pub a_min: Option<f64>,
    /// Slowest initial pole of `rate_init = "log_spaced"`; 1 - 1/T when not given.
    pub a_max: Option<f64>,
    /// Standard deviation of the initial B.
    pub b_std: Option<f64>,
    /// Standard deviation of the initial C.
    pub c_std: Option<f64>,
    /// Initial gate.
    pub gate_init: Option<f64>,
    /// Whether the gate is trained.
    pub train_gate: Option<bool>,
    /// Whether `log_dt` is trained.
    pub train_log_dt: Option<bool>,
    /// How the recurrence is evaluated.
    pub scan: Scan,
}

/// Low-rank updates `W + (lora_alpha / rank) B A`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoraConfig {
    /// Rank r.
    pub rank: Option<usize>,
    /// Number of parameters to solve the rank for, instead of giving it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// Scale of the update, divided by the rank; the rank itself when not given (a scale of 1).
    pub lora_alpha: Option<f64>,
    /// Dropout on the input of A.
    pub dropout: f64,
    /// Linear sites: `q_proj`, `k_proj`, `v_proj`, `o_proj`, and those of the MLP.
    #[serde(deserialize_with = "low_rank::one_or_many")]
    pub targets: Option<Vec<String>>,
    /// Divide the scale by the root of the rank instead (rsLoRA).
    pub rslora: bool,
}

/// No adapter: nothing to set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NoneConfig {}

/// A truncation rule (R6): one of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TruncateConfig {
    /// Keep singular values of at least this share of the largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// Keep this many states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<usize>,
    /// Keep this share of the sum of the singular values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<f64>,
    /// Keep as few states as have an error bound of at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// Keep this many states over all layers, those of the largest singular values, so that the sum of the layers' bounds is
    /// least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// How the smaller systems are made; `bt` (balanced truncation) when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
}

/// Truncation in the middle of training: the rule, and when.
///
/// Adam's first moments of B, C and the gates are carried through the change of coordinates; those of the poles and all second
/// moments start again, with a short warm-up of the learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReduceConfig {
    /// After this many passes over the training sequences; may be a fraction.
    pub after_epoch: f64,
    /// Steps in which the learning rate rises again from 0 to what it was.
    pub warmup_steps: u64,
    /// As in `truncate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// As in `truncate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<usize>,
    /// As in `truncate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<f64>,
    /// As in `truncate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// As in `truncate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
}

impl Default for ReduceConfig {
    fn default() -> Self {
        ReduceConfig {
            after_epoch: 1.0,
            warmup_steps: 20,
            epsilon: None,
            order: None,
            energy: None,
            bound: None,
            total: None,
        }
    }
}

impl AdapterMethod {
    /// The value of `adapter.kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            AdapterMethod::Hrm(_) => "hrm",
            AdapterMethod::Lora(_) => "lora",
            AdapterMethod::Dora(_) => "dora",
            AdapterMethod::AdaLora(_) => "adalora",
            AdapterMethod::Ia3(_) => "ia3",
            AdapterMethod::Stream(c) => c.kind,
            AdapterMethod::Full(_) => "full",
            AdapterMethod::None(_) => "none",
        }
    }
}

impl HrmConfig {
    /// Whether nothing is set that a saved adapter determines itself.
    fn is_bare(&self) -> bool {
        *self == HrmConfig::default()
    }

    fn check(&self, placement: &Placement, checks: &mut Checks<'_>) {
        one_size(checks, "state_dim", self.state_dim, self.budget);
        let mode = self.mode.name();
        checks.require(
            "state_dim",
            self.mode != HrmMode::Complex || self.state_dim.is_none_or(|d| d.is_multiple_of(2)),
            || format!("must be even for `mode = {mode:?}`, which has two states in a pair"),
        );
        let default = if self.preset == Preset::Released { Discretization::ZohClamped } else { Discretization::Free };
        let free = self.discretization.unwrap_or(default) == Discretization::Free;
        checks.require("mode", self.mode == HrmMode::Positive || free, || {
            format!(
                "{mode:?} goes with `discretization = \"free\"` only: a hold of real decay rates has positive poles"
            )
        });
        for (key, value) in [("a_min", self.a_min), ("a_max", self.a_max)] {
            checks.require(key, value.is_none_or(|a| a > 0.0 && a < 1.0), || {
                format!("must be above 0 and below 1, found {}", value.unwrap_or_default())
            });
        }
        if let (Some(fast), Some(slow)) = (self.a_min, self.a_max) {
            checks.require("a_max", fast <= slow, || format!("is {slow}, below a_min = {fast}"));
        }
        checks.not_negative("b_std", self.b_std.unwrap_or(0.0));
        checks.not_negative("c_std", self.c_std.unwrap_or(0.0));
        checks.require("gate_init", self.gate_init.is_none_or(f64::is_finite), || "must be finite".to_owned());
        if let Some(sites) = &self.sites {
            check_sites(sites, placement, checks);
        }
    }
}

/// At least one site, each once, all of the backbone's.
pub(super) fn check_sites(sites: &[StreamSite], placement: &Placement, checks: &mut Checks<'_>) {
    checks.require("sites", !sites.is_empty(), || "must name `mlp`, `attention` or both".to_owned());
    let mut sorted = sites.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    checks.require("sites", sites.len() == sorted.len(), || "names a site twice".to_owned());
    checks.require("sites", sites.iter().all(|site| placement.stream.contains(site)), || {
        "names a site that the backbone does not have".to_owned()
    });
}

impl LoraConfig {
    fn is_bare(&self) -> bool {
        *self == LoraConfig::default()
    }

    fn check(&self, placement: &Placement, checks: &mut Checks<'_>) {
        one_size(checks, "rank", self.rank, self.budget);
        checks.require("lora_alpha", self.lora_alpha.is_none_or(f64::is_finite), || "must be finite".to_owned());
        checks.fraction("dropout", self.dropout);
        low_rank::targets(self.targets.as_deref(), placement, checks);
    }
}

/// Exactly one of the size and the budget.
fn one_size(checks: &mut Checks<'_>, key: &str, size: Option<usize>, budget: Option<u64>) {
    checks.require("budget", size.is_none() || budget.is_none(), || format!("and `{key}` are both given: keep one"));
    checks.require(key, size.is_some() || budget.is_some(), || "or `budget` must be given".to_owned());
    checks.at_least(key, size.unwrap_or(1), 1);
    checks.at_most(key, size.unwrap_or(1), 1 << 20);
    checks.at_least("budget", budget.unwrap_or(1), 1);
}

impl AdapterConfig {
    /// Names of the rows that are made of it, and of the directories under `adapters/`.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec![self.name.clone()];
        names.extend(self.truncate.iter().map(|rule| rule.row_name(&self.name)));
        names.extend(self.probe.iter().map(|probe| probe.row_name(&self.name)));
        names.extend(self.reduce.map(|_| self.name_in_training()));
        names
    }

    /// Name under `adapters/` of what `reduce` left in the middle of training.
    pub fn name_in_training(&self) -> String {
        format!("{}-reduced-in-training", self.name)
    }

    /// Checks the adapter for a task of sequences of a `length`, and of a number of them if that is known.
    pub(super) fn check(
        &self,
        (length, sequences): (usize, Option<usize>),
        placement: &Placement,
        checks: &mut Checks<'_>,
    ) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let reserved = ["pretrain", ".", ".."].contains(&self.name.as_str());
        checks.require("name", !self.name.is_empty() && self.name.chars().all(plain) && !reserved, || {
            format!("must be made of letters, digits, `-`, `_` and `.`, and not be `pretrain`; found {:?}", self.name)
        });
        let bare = match &self.method {
            AdapterMethod::Hrm(c) => c.is_bare(),
            AdapterMethod::Lora(c) | AdapterMethod::Dora(c) => c.is_bare(),
            AdapterMethod::AdaLora(c) => *c == AdaLoraConfig::default(),
            AdapterMethod::Ia3(c) => *c == Ia3Config::default(),
            AdapterMethod::Stream(c) => c.is_bare(),
            AdapterMethod::Full(_) | AdapterMethod::None(_) => false,
        };
        match (&self.path, &self.method) {
            (Some(_), AdapterMethod::Full(_) | AdapterMethod::None(_)) => {
                checks.require("path", false, || {
                    format!("is not for `kind = {:?}`, which has no adapter to load", self.method.kind())
                });
            }
            (Some(_), _) => checks.require("path", bare, || {
                "names a saved adapter, which has its own settings: leave out the others".to_owned()
            }),
            (None, AdapterMethod::Hrm(c)) => c.check(placement, checks),
            (None, AdapterMethod::Lora(c) | AdapterMethod::Dora(c)) => c.check(placement, checks),
            (None, AdapterMethod::AdaLora(c)) => c.check(placement, checks),
            (None, AdapterMethod::Ia3(c)) => c.check(placement, checks),
            (None, AdapterMethod::Stream(c)) => c.check(length, placement, checks),
            (None, AdapterMethod::Full(_) | AdapterMethod::None(_)) => {}
        }
        let recurrent = matches!(self.method, AdapterMethod::Hrm(_));
        let kind = self.method.kind();
        let only = || format!("is for recurrent adapters, not for `kind = {kind:?}`");
        let varying = match &self.method {
            AdapterMethod::Stream(c) if !self.truncate.is_empty() => c.can_be_truncated(length, placement),
            _ => false,
        };
        checks.require("truncate", self.truncate.is_empty() || recurrent || varying, only);
        let plain = |rule: &TruncateConfig| {
            rule.bound.is_none() && rule.total.is_none() && rule.method.is_none_or(|m| m == Method::default())
        };
        checks.require("truncate", !varying || self.truncate.iter().all(plain), || {
            format!("has no bound, no total and no other method than `bt` for `kind = {kind:?}`, which varies in time")
        });
        checks.require("exactness", self.exactness.is_none() || recurrent, only);
        checks.at_least("exactness.sequences", self.exactness.map_or(1, |e| e.sequences), 1);
        let gated = recurrent || matches!(self.method, AdapterMethod::Stream(_));
        checks.require("probe", self.probe.is_empty() || gated, || {
            format!("is for adapters with a gate, which `kind = {kind:?}` has not")
        });
        for (index, probe) in self.probe.iter().enumerate() {
            checks.require("probe.gate", probe.gate.is_finite(), || "must be finite".to_owned());
            checks
                .require("probe", !self.probe[..index].contains(probe), || format!("has `{}` twice", probe.describe()));
        }
        checks.require("reduce", self.reduce.is_none() || recurrent, only);
        checks.require("hsv_regularization", self.hsv_regularization == 0.0 || recurrent, only);
        checks.not_negative("hsv_regularization", self.hsv_regularization);
        let complex = matches!(&self.method, AdapterMethod::Hrm(c) if c.mode == HrmMode::Complex);
        checks.require("hsv_regularization", self.hsv_regularization == 0.0 || !complex, || {
            "needs real poles, which `mode = \"complex\"` has not".to_owned()
        });
        if let Some(reduce) = &self.reduce {
            let mut checks = checks.inside("reduce");
            checks.positive("after_epoch", reduce.after_epoch);
            reduce.truncation().check(&mut checks);
        }
        for (index, rule) in self.truncate.iter().enumerate() {
            let twice = self.truncate[..index].contains(rule);
            checks.require("truncate", !twice, || format!("has `{}` twice", rule.describe()));
            rule.check(&mut checks.inside("truncate"));
        }
        if let Some(train) = &self.train {
            train.check(sequences, &mut checks.inside("train"));
        }
    }
}

impl ReduceConfig {
    /// What is done.
    pub fn truncation(self) -> TruncateConfig {
        let ReduceConfig { epsilon, order, energy, bound, total, .. } = self;
        TruncateConfig { epsilon, order, energy, bound, total, method: None }
    }

    /// The optimizer step after which it is done.
    ///
    /// # Errors
    /// When nothing would be trained afterwards.
    pub fn step_within(self, settings: &TrainConfig, sequences: usize) -> anyhow::Result<u64> {
        let at = TrainConfig { steps: None, epochs: Some(self.after_epoch), ..settings.clone() }.steps(sequences);
        let steps = settings.steps(sequences);
        anyhow::ensure!(
            at < steps,
            "`reduce.after_epoch = {}` is step {at} of a training of {steps} steps: nothing would be trained afterwards; \
             for a truncation at the end use `truncate`",
            self.after_epoch
        );
        Ok(at)
    }
}

impl TruncateConfig {
    fn given(self) -> Vec<OrderChoice> {
        let rules = [
            self.epsilon.map(OrderRule::Epsilon),
            self.order.map(OrderRule::Order),
            self.energy.map(OrderRule::Energy),
            self.bound.map(OrderRule::Bound),
        ];
        let per_layer = rules.into_iter().flatten().map(OrderChoice::PerLayer);
        per_layer.chain(self.total.map(OrderChoice::Budget)).collect()
    }

    /// How the orders are chosen.
    pub fn choice(self) -> OrderChoice {
        self.given().first().copied().unwrap_or_default()
    }

    /// The rule for each layer by itself, if it is one.
    pub fn rule(self) -> Option<OrderRule> {
        if let OrderChoice::PerLayer(rule) = self.choice() { Some(rule) } else { None }
    }

    /// The rule in words: `epsilon = 0.01`, `order = 6, method = svd`, `total = 24`.
    pub fn describe(self) -> String {
        let rule = match self.choice() {
            OrderChoice::PerLayer(OrderRule::Epsilon(value)) => format!("epsilon = {value}"),
            OrderChoice::PerLayer(OrderRule::Order(value)) => format!("order = {value}"),
            OrderChoice::PerLayer(OrderRule::Energy(value)) => format!("energy = {value}"),
            OrderChoice::PerLayer(OrderRule::Bound(value)) => format!("bound = {value}"),
            OrderChoice::Budget(value) => format!("total = {value}"),
            OrderChoice::TotalBound(value) => format!("total bound = {value}"),
        };
        self.method.map_or(rule.clone(), |method| format!("{rule}, method = {}", method.name()))
    }

    /// Name of the row and directory: `hrm-epsilon-0.01`, `hrm-order-6-svd`.
    pub fn row_name(self, full: &str) -> String {
        let rule = self.describe().replace(" = ", "-").replace(", method", "");
        format!("{full}-{rule}")
    }

    fn check(self, checks: &mut Checks<'_>) {
        checks.require("", self.given().len() == 1, || {
            "must hold exactly one of `epsilon`, `order`, `energy`, `bound` and `total`".to_owned()
        });
        if let Some(Err(error)) = self.rule().map(OrderRule::check) {
            checks.require("", false, || format!("cannot be used: {error}"));
        }
        checks.at_least("total", self.total.unwrap_or(1), 1);
        let direct = self.method.filter(|method| method.has_direct_term());
        checks.require("method", direct.is_none(), || {
            let name = direct.map_or("", Method::name);
            format!("`{name}` makes a direct term, which the recurrence of an adapter has no place for")
        });
    }
}
