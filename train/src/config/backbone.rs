//! `[backbone]`: the transformer that adapters are attached to.

use super::check::Checks;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `[backbone]`, by `kind`.
#[derive(Debug, Clone, PartialEq)]
pub enum BackboneConfig {
    /// `kind = "tiny_gpt"`.
    TinyGpt(TinyGptConfig),
}

/// Values of `backbone.kind`.
pub const KINDS: &[&str] = &["tiny_gpt"];

/// Normalisation of a block's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// Mean and variance, with scale and shift.
    LayerNorm,
    /// Root mean square, with scale.
    RmsNorm,
}

/// Initialisation of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackboneInit {
    /// Normal with standard deviation `init_std`, projections into the residual stream divided by sqrt(2 layers).
    #[default]
    Gpt2,
    /// Normal with standard deviation `init_std` everywhere (the released code).
    Normal,
}

/// A small GPT with learned positions (SPEC section 4). Fields left out take the values of SPEC, or those of the files at
/// `path`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TinyGptConfig {
    /// Directory with `config.json` and `model.safetensors`, or a run directory that trained a backbone; random weights
    /// when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Number of layers.
    pub layers: Option<usize>,
    /// Width of the residual stream.
    pub d_model: Option<usize>,
    /// Attention heads.
    pub heads: Option<usize>,
    /// Width inside the MLP; 4 d_model when not given.
    pub d_ff: Option<usize>,
    /// Number of learned positions; the task's length when not given.
    pub context: Option<usize>,
    /// Normalisation.
    pub norm: Option<Norm>,
    /// Whether the head uses the embedding matrix.
    pub tied_embeddings: Option<bool>,
    /// Whether linear layers and norms have biases.
    pub biases: Option<bool>,
    /// Dropout of embeddings, attention output and MLP output while training.
    pub dropout: f64,
    /// Initialisation.
    pub init: BackboneInit,
    /// Standard deviation of the initial weights.
    pub init_std: f64,
    /// Whether the backbone is held fixed while adapters are trained. `false` trains it together with the adapter, afresh
    /// for each adapter (the released protocol).
    pub freeze: bool,
    /// Whether the head of a frozen backbone is trained with the adapter.
    pub train_head: bool,
    /// Whether the embeddings of a frozen backbone are trained with the adapter.
    pub train_embeddings: bool,
}

impl Default for TinyGptConfig {
    fn default() -> Self {
        TinyGptConfig {
            path: None,
            layers: None,
            d_model: None,
            heads: None,
            d_ff: None,
            context: None,
            norm: None,
            tied_embeddings: None,
            biases: None,
            dropout: 0.0,
            init: BackboneInit::Gpt2,
            init_std: 0.02,
            freeze: true,
            train_head: false,
            train_embeddings: false,
        }
    }
}

impl TinyGptConfig {
    /// Layers, 4 by default.
    pub fn layers(&self) -> usize {
        self.layers.unwrap_or(4)
    }
    /// Width of the residual stream, 128 by default.
    pub fn d_model(&self) -> usize {
        self.d_model.unwrap_or(128)
    }
    /// Heads, 4 by default.
    pub fn heads(&self) -> usize {
        self.heads.unwrap_or(4)
    }
    /// Width inside the MLP.
    pub fn d_ff(&self) -> usize {
        self.d_ff.unwrap_or(4 * self.d_model())
    }
}

impl BackboneConfig {
    /// The value of `backbone.kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            BackboneConfig::TinyGpt(_) => "tiny_gpt",
        }
    }

    /// Where the weights are loaded from, if they are.
    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            BackboneConfig::TinyGpt(c) => c.path.as_ref(),
        }
    }

    /// Whether the backbone is held fixed while adapters are trained.
    pub fn freeze(&self) -> bool {
        match self {
            BackboneConfig::TinyGpt(c) => c.freeze,
        }
    }

    /// Writes out what a random backbone takes by default. The shape of a loaded one is in its own files.
    pub(super) fn resolve(&mut self, sequence_length: usize) {
        match self {
            BackboneConfig::TinyGpt(c) if c.path.is_none() => {
                c.layers = Some(c.layers());
                c.d_model = Some(c.d_model());
                c.heads = Some(c.heads());
                c.d_ff = Some(c.d_ff());
                c.context.get_or_insert(sequence_length);
                c.norm.get_or_insert(Norm::LayerNorm);
                c.tied_embeddings.get_or_insert(false);
                c.biases.get_or_insert(true);
            }
            BackboneConfig::TinyGpt(_) => {}
        }
    }

    pub(super) fn check(&self, sequence_length: usize, checks: &mut Checks<'_>) {
        let BackboneConfig::TinyGpt(c) = self;
        let sizes = [("layers", c.layers), ("d_model", c.d_model), ("heads", c.heads), ("d_ff", c.d_ff)];
        for (key, value) in sizes {
            checks.at_least(key, value.unwrap_or(1), 1);
            checks.at_most(key, value.unwrap_or(1), 1 << 20);
        }
        if c.path.is_none() {
            let (width, heads) = (c.d_model(), c.heads());
            checks.require(
                if c.heads.is_some() { "heads" } else { "d_model" },
                heads > 0 && width.is_multiple_of(heads),
                || format!("d_model = {width} cannot be split over {heads} heads"),
            );
        }
        if let Some(context) = c.context {
            checks.require("context", context >= sequence_length, || {
                format!("is {context}, but sequences of the task have {sequence_length} tokens")
            });
        }
        checks.fraction("dropout", c.dropout);
        checks.positive("init_std", c.init_std);
    }
}
