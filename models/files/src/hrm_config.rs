//! `adapter_config.json` of an HRM adapter (R2, "on disk").

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Published reading of the adapter that supplies the defaults of the other fields (R2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HrmPreset {
    /// The equations of the paper.
    #[default]
    Paper,
    /// The code behind the paper's numbers.
    Released,
    /// C begins at 0 behind a gate of 1, as LoRA's B does: the model computes at first what it did without the adapter. It reads the
    /// normalised input of the sub-layer, since the stream of a real model has a mean and large entries.
    Identity,
}

/// What the adapter reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamInput {
    /// The residual stream after the sub-layer's sum.
    #[default]
    Residual,
    /// The normalised input of the sub-layer.
    Norm,
    /// The sub-layer's output before the sum.
    Sublayer,
}

/// How poles and input matrix follow from the parameters (R1, R2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discretization {
    /// `a = exp(-exp(log_a + log_dt))`, B as it is.
    #[default]
    Free,
    /// The same poles, B scaled by `(1 - a) / exp(log_a)`.
    Zoh,
    /// `dt = clamp(softplus(log_dt), 1e-4, 0.1)`, `a = exp(-dt exp(log_a))`, B scaled by `(1 - a) / exp(log_a)`.
    ZohClamped,
}

/// Which poles the recurrence can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HrmMode {
    /// The paper's: real poles between 0 and 1, which decay.
    #[default]
    Positive,
    /// Real poles of either sign: those of the odd states are negative, so that they alternate as they decay.
    Signed,
    /// Complex pairs, two states each, with learned angles: they turn as they decay.
    Complex,
}

impl HrmMode {
    /// The name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Positive => "positive",
            Self::Signed => "signed",
            Self::Complex => "complex",
        }
    }
}

/// Where in a block the adapter sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamSite {
    /// At the attention sub-layer.
    Attention,
    /// At the MLP sub-layer.
    #[default]
    Mlp,
}

impl StreamSite {
    /// The name in configurations and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Mlp => "mlp",
        }
    }

    /// The module's name in tensor names.
    pub fn module(self) -> &'static str {
        match self {
            Self::Attention => "self_attn",
            Self::Mlp => "mlp",
        }
    }
}

/// Which sites of every layer carry an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HrmSites {
    /// Attention only.
    Attention,
    /// MLP only.
    #[default]
    Mlp,
    /// Both.
    Both,
}

impl HrmSites {
    /// Whether a site is among them.
    pub fn contains(self, site: StreamSite) -> bool {
        match self {
            Self::Both => true,
            Self::Attention => site == StreamSite::Attention,
            Self::Mlp => site == StreamSite::Mlp,
        }
    }
}

/// Form of a stored layer's state matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HrmForm {
    /// Trained parameters `log_a`, `log_dt` and, in mode `complex`, `angle`.
    Diagonal,
    /// Poles as `pole_radius`, `pole_angle`.
    Modal,
    /// The matrix `a`.
    Dense,
}

/// Contents of `adapter_config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "RawConfig")]
pub struct HrmConfigFile {
    /// Always `"HRM"`.
    pub peft_type: String,
    /// States per layer before any reduction.
    pub state_dim: usize,
    /// Source of the defaults.
    pub preset: HrmPreset,
    /// Which poles the trained parameters stand for.
    pub mode: HrmMode,
    /// What the adapter reads.
    pub input: StreamInput,
    /// How the system follows from the parameters.
    pub discretization: Discretization,
    /// Sites that carry an adapter.
    pub site: HrmSites,
    /// The backbone, as in PEFT.
    pub base_model_name_or_path: Option<String>,
    /// Indices of the layers with an adapter, ascending; filled in on saving.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<usize>>,
    /// States kept per stored layer, when reduced; filled in on saving.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_dims: Option<Vec<usize>>,
    /// Form per stored layer, when reduced; filled in on saving.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<Vec<HrmForm>>,
    /// Every other field of the file, kept as it is.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl HrmConfigFile {
    /// The configuration of an unreduced adapter with the preset's own fields.
    pub fn new(preset: HrmPreset, state_dim: usize) -> Self {
        let released = preset == HrmPreset::Released;
        Self {
            peft_type: "HRM".into(),
            state_dim,
            preset,
            mode: HrmMode::Positive,
            input: if preset == HrmPreset::Paper { StreamInput::Residual } else { StreamInput::Norm },
            discretization: if released { Discretization::ZohClamped } else { Discretization::Free },
            site: HrmSites::Mlp,
            base_model_name_or_path: None,
            layers: None,
            state_dims: None,
            form: None,
            other: Map::new(),
        }
    }
}

/// The file as written: fields may be left to the preset, and `form` may be one word for all layers.
#[derive(Deserialize)]
struct RawConfig {
    peft_type: String,
    state_dim: usize,
    #[serde(default)]
    preset: HrmPreset,
    #[serde(default)]
    mode: HrmMode,
    input: Option<StreamInput>,
    discretization: Option<Discretization>,
    #[serde(default)]
    site: HrmSites,
    base_model_name_or_path: Option<String>,
    layers: Option<Vec<usize>>,
    state_dims: Option<Vec<usize>>,
    form: Option<OneOrMany>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(HrmForm),
    Many(Vec<HrmForm>),
}

impl From<RawConfig> for HrmConfigFile {
    fn from(raw: RawConfig) -> Self {
        let defaults = Self::new(raw.preset, raw.state_dim);
        let layers = raw.state_dims.as_ref().or(raw.layers.as_ref()).map_or(0, Vec::len);
        Self {
            peft_type: raw.peft_type,
            mode: raw.mode,
            input: raw.input.unwrap_or(defaults.input),
            discretization: raw.discretization.unwrap_or(defaults.discretization),
            site: raw.site,
            base_model_name_or_path: raw.base_model_name_or_path,
            layers: raw.layers,
            state_dims: raw.state_dims,
            form: raw.form.map(|f| match f {
                OneOrMany::One(form) => vec![form; layers],
                OneOrMany::Many(forms) => forms,
            }),
            other: raw.other,
            ..defaults
        }
    }
}
