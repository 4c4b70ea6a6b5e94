//! `[[adapter]]`: what is trained on the backbone. Several are trained in turn and compared.

use super::check::Checks;
use super::training::TrainConfig;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One `[[adapter]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterConfig {
    /// Name of the row and of the directory under `adapters/`; the kind when not given.
    pub name: String,
    /// Directory of a saved adapter to go on from, reduced ones included.
    pub path: Option<PathBuf>,
    /// Truncation of the trained adapter, evaluated as a row of its own.
    pub truncate: Option<TruncateConfig>,
    /// Settings of `[train]` that differ for this adapter, merged over them.
    pub train: Option<TrainConfig>,
    /// The adapter.
    pub method: AdapterMethod,
}

/// Keys of `[[adapter]]` that every kind has.
pub const COMMON_KEYS: &[&str] = &["kind", "name", "path", "truncate", "train"];

/// Values of `adapter.kind`.
pub const KINDS: &[&str] = &["hrm", "lora", "none"];

/// An adapter, by `kind`.
#[derive(Debug, Clone, PartialEq)]
pub enum AdapterMethod {
    /// `kind = "hrm"`: the recurrent adapter (SPEC section 1).
    Hrm(HrmConfig),
    /// `kind = "lora"`: low-rank updates of linear layers.
    Lora(LoraConfig),
    /// `kind = "none"`: the backbone alone, or its head and embeddings when those are trained.
    None(NoneConfig),
}

/// Which published reading of the adapter (R2) gives the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// The paper's equations.
    #[default]
    Paper,
    /// The code behind the paper's numbers.
    Released,
}

/// What the adapter reads and adds to (R2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// The residual stream after the sublayer.
    Residual,
    /// The normalised input of the sublayer.
    Norm,
    /// The sublayer's output before the residual sum.
    Sublayer,
}

/// How the parameters give the recurrence (R1, R2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discretization {
    /// `a = exp(-exp(log_a + log_dt))`, B unconstrained.
    Free,
    /// As `free`, the input scaled by the zero-order-hold factor.
    Zoh,
    /// Zero-order hold with a clamped softplus step (released).
    ZohClamped,
}

/// Initial decay rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateInit {
    /// `-ln a` log-spaced from `a_min` to `a_max`, `log_dt = 0`.
    LogSpaced,
    /// `log_a_n = ln(n + 1)`, `log_dt` log-uniform in [ln 1e-4, ln 0.1].
    S4dReal,
}

/// How the recurrence is evaluated (R3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scan {
    /// Chosen once by length, state size and device, and written into the resolved configuration.
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
    /// State dimension d of every layer.
    pub state_dim: Option<usize>,
    /// Number of parameters to solve the state dimension for, instead of giving it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// Sites: `mlp`, `attention`.
    pub sites: Option<Vec<StreamSite>>,
    /// What the adapter reads.
    pub input: Option<Input>,
    /// How the parameters give the recurrence.
    pub discretization: Option<Discretization>,
    /// Initial decay rates.
    pub init: Option<RateInit>,
    /// Fastest initial pole of `init = "log_spaced"`.
    pub a_min: Option<f64>,
    /// Slowest initial pole of `init = "log_spaced"`; 1 - 1/T when not given.
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

/// A place in a block where the stream can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamSite {
    /// After attention.
    Attention,
    /// After the MLP.
    Mlp,
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
    pub targets: Option<Vec<String>>,
}

/// No adapter.
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
}

impl AdapterMethod {
    /// The value of `adapter.kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            AdapterMethod::Hrm(_) => "hrm",
            AdapterMethod::Lora(_) => "lora",
            AdapterMethod::None(_) => "none",
        }
    }
}

impl HrmConfig {
    /// Writes out what the preset gives, for sequences of `length` tokens on a stream of width `d_model`.
    fn resolve(&mut self, length: usize, d_model: usize) {
        let released = self.preset == Preset::Released;
        let pick = |paper: f64, other: f64| if released { other } else { paper };
        self.sites.get_or_insert_with(|| vec![StreamSite::Mlp]);
        self.input.get_or_insert(if released { Input::Norm } else { Input::Residual });
        self.discretization.get_or_insert(if released { Discretization::ZohClamped } else { Discretization::Free });
        if *self.init.get_or_insert(if released { RateInit::S4dReal } else { RateInit::LogSpaced })
            == RateInit::LogSpaced
        {
            let slowest = *self.a_max.get_or_insert(1.0 - 1.0 / (length.max(2) as f64));
            self.a_min.get_or_insert(slowest.min(0.5));
        }
        if let Some(d) = self.state_dim {
            let wide = if d_model >= 1024 { 1.0 / (d_model as f64).sqrt() } else { 1.0 };
            self.b_std.get_or_insert(pick(0.02, wide));
            self.c_std.get_or_insert(pick(0.02, 1.0 / (d.max(1) as f64).sqrt()));
        }
        self.gate_init.get_or_insert(0.1);
        self.train_gate.get_or_insert(true);
        self.train_log_dt.get_or_insert(true);
    }

    fn check(&self, loaded: bool, checks: &mut Checks<'_>) {
        one_size(checks, "state_dim", self.state_dim, self.budget, loaded);
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
        let mut sites = self.sites.clone().unwrap_or_else(|| vec![StreamSite::Mlp]);
        checks.require("sites", !sites.is_empty(), || "must name `mlp`, `attention` or both".to_owned());
        sites.sort_unstable();
        sites.dedup();
        checks.require("sites", self.sites.as_ref().is_none_or(|given| given.len() == sites.len()), || {
            "names a site twice".to_owned()
        });
    }
}

impl LoraConfig {
    fn resolve(&mut self) {
        self.targets.get_or_insert_with(|| vec!["q_proj".to_owned(), "v_proj".to_owned()]);
        if let Some(rank) = self.rank {
            self.lora_alpha.get_or_insert(rank as f64);
        }
    }

    fn check(&self, loaded: bool, checks: &mut Checks<'_>) {
        one_size(checks, "rank", self.rank, self.budget, loaded);
        checks.require("lora_alpha", self.lora_alpha.is_none_or(f64::is_finite), || "must be finite".to_owned());
        checks.fraction("dropout", self.dropout);
        checks.require("targets", self.targets.as_ref().is_none_or(|sites| !sites.is_empty()), || {
            "must name at least one linear site, for example [\"q_proj\", \"v_proj\"]".to_owned()
        });
    }
}

/// Exactly one of the size and the budget, or neither when the adapter is loaded.
fn one_size(checks: &mut Checks<'_>, key: &str, size: Option<usize>, budget: Option<u64>, loaded: bool) {
    checks.require("budget", size.is_none() || budget.is_none(), || format!("and `{key}` are both given: keep one"));
    checks.require(key, loaded || size.is_some() || budget.is_some(), || "or `budget` must be given".to_owned());
    checks.at_least(key, size.unwrap_or(1), 1);
    checks.at_most(key, size.unwrap_or(1), 1 << 20);
    checks.at_least("budget", budget.unwrap_or(1), 1);
}

impl AdapterConfig {
    pub(super) fn resolve(&mut self, length: usize, d_model: usize) {
        match &mut self.method {
            _ if self.path.is_some() => {}
            AdapterMethod::Hrm(c) => c.resolve(length, d_model),
            AdapterMethod::Lora(c) => c.resolve(),
            AdapterMethod::None(_) => {}
        }
    }

    pub(super) fn check(&self, checks: &mut Checks<'_>) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let reserved = ["pretrain", ".", ".."].contains(&self.name.as_str());
        checks.require("name", !self.name.is_empty() && self.name.chars().all(plain) && !reserved, || {
            format!("must be made of letters, digits, `-`, `_` and `.`, and not be `pretrain`; found {:?}", self.name)
        });
        let loaded = self.path.is_some();
        match &self.method {
            AdapterMethod::Hrm(c) => c.check(loaded, checks),
            AdapterMethod::Lora(c) => c.check(loaded, checks),
            AdapterMethod::None(_) => checks.require("path", !loaded, || "is not for `kind = \"none\"`".to_owned()),
        }
        if let Some(rule) = &self.truncate {
            checks.require("truncate", matches!(self.method, AdapterMethod::Hrm(_)), || {
                format!("is for recurrent adapters, not for `kind = {:?}`", self.method.kind())
            });
            rule.check(&mut checks.inside("truncate"));
        }
        if let Some(train) = &self.train {
            train.check(&mut checks.inside("train"));
        }
    }
}

impl TruncateConfig {
    fn check(self, checks: &mut Checks<'_>) {
        let given = [self.epsilon.is_some(), self.order.is_some(), self.energy.is_some(), self.bound.is_some()];
        checks.require("", given.iter().filter(|&&given| given).count() == 1, || {
            "must hold exactly one of `epsilon`, `order`, `energy` and `bound`".to_owned()
        });
        checks.not_negative("epsilon", self.epsilon.unwrap_or(0.0));
        checks.not_negative("bound", self.bound.unwrap_or(0.0));
        let energy = self.energy.unwrap_or(1.0);
        checks.require("energy", energy > 0.0 && energy <= 1.0, || {
            format!("must be above 0 and at most 1, found {energy}")
        });
    }
}
