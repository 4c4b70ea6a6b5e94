//! Sizes and choices.

use crate::adapters::{LinearSite, Placement, StreamSite};
use crate::linear::NormKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How weights are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// Normal with standard deviation `init_std`; projections into the residual stream divided by sqrt(2 layers).
    #[default]
    Gpt2,
    /// Normal with standard deviation `init_std` everywhere (the released code).
    Normal,
}

/// Settings of a `TinyGPT`: `config.json` holds all of them, a run's configuration any of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TinyGptConfig {
    /// Number of blocks.
    pub layers: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Attention heads; they divide `d_model`.
    pub heads: usize,
    /// Width inside the MLP.
    pub d_ff: usize,
    /// Number of token ids.
    pub vocabulary: usize,
    /// Number of positions.
    pub context: usize,
    /// Normalisation.
    pub norm: NormKind,
    /// Whether linear layers (the head excepted) and layer norms have biases.
    pub biases: bool,
    /// Whether the head is the token embedding.
    pub tied_embeddings: bool,
    /// Probability of dropout on the embeddings and on both sub-layers' outputs, while training.
    pub dropout: f64,
    /// How weights are drawn.
    pub init: Init,
    /// Standard deviation of the weights.
    pub init_std: f64,
}

impl Default for TinyGptConfig {
    /// The paper's form at 512 positions and a vocabulary of bytes.
    fn default() -> Self {
        TinyGptConfig {
            layers: 4,
            d_model: 128,
            heads: 4,
            d_ff: 512,
            vocabulary: 256,
            context: 512,
            norm: NormKind::LayerNorm,
            biases: true,
            tied_embeddings: false,
            dropout: 0.0,
            init: Init::Gpt2,
            init_std: 0.02,
        }
    }
}

impl TinyGptConfig {
    /// Says what does not fit together, naming the key.
    pub(crate) fn check(&self) -> Result<(), String> {
        let sizes = [
            ("layers", self.layers),
            ("d_model", self.d_model),
            ("heads", self.heads),
            ("d_ff", self.d_ff),
            ("vocabulary", self.vocabulary),
            ("context", self.context),
        ];
        if let Some((key, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(format!("{key} must be at least 1"));
        }
        if let Some((key, size)) = sizes.iter().find(|(_, size)| *size > 1 << 24) {
            return Err(format!("{key} = {size} is out of range"));
        }
        if !self.d_model.is_multiple_of(self.heads) {
            return Err(format!("heads = {} does not divide d_model = {}", self.heads, self.d_model));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(format!("dropout = {} is not in 0 <= p < 1", self.dropout));
        }
        if !(self.init_std >= 0.0 && self.init_std.is_finite()) {
            return Err(format!("init_std = {} is not a standard deviation", self.init_std));
        }
        Ok(())
    }

    /// Standard deviation of projections into the residual stream.
    pub(crate) fn residual_std(&self) -> f64 {
        match self.init {
            Init::Gpt2 => self.init_std / (2.0 * self.layers as f64).sqrt(),
            Init::Normal => self.init_std,
        }
    }

    /// Where adapters can be attached.
    pub fn placement(&self) -> Placement {
        let (d, f) = (self.d_model, self.d_ff);
        let attention = ["q_proj", "k_proj", "v_proj", "o_proj"].map(|name| LinearSite::new(name, "self_attn", [d, d]));
        let mlp = [LinearSite::new("up_proj", "mlp", [d, f]), LinearSite::new("down_proj", "mlp", [f, d])];
        Placement {
            layers: self.layers,
            d_model: d,
            linear: attention.into_iter().chain(mlp).collect(),
            stream: vec![StreamSite::Attention, StreamSite::Mlp],
        }
    }
}
