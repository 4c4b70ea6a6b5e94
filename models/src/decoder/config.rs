//! What a decoder is made of: its sizes, and the features in which families of models differ.

use super::families::{self, Family, MOST_LAYERS};
use super::keys::Keys;
use super::rope::{Rope, RopeScaling};
use crate::adapters::{Placement, StreamSite};
use crate::gguf::{self, GgufModel};
use crate::linear::NormKind;
use crate::weights::{Result, WeightsError};
use serde_json::{Map, Value};
use std::path::Path;

/// Name of the file.
pub const CONFIG_FILE: &str = "config.json";

/// Some layers of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerSet {
    /// Every layer.
    All,
    /// Those whose entry is true, one entry a layer.
    Only(Vec<bool>),
}

impl LayerSet {
    /// Whether layer `index` is one of them.
    pub fn contains(&self, index: usize) -> bool {
        match self {
            LayerSet::All => true,
            LayerSet::Only(layers) => layers.get(index).copied().unwrap_or(false),
        }
    }
}

/// How the model knows where a token stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Positions {
    /// Queries and keys are turned (see [`Rope`]); positions have no end.
    Rotary(Rope),
    /// A learned row for each of `context` positions is added to the embedding.
    Learned,
}

/// The function inside the MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x sigmoid(x)`.
    Silu,
    /// GELU by its approximation with a hyperbolic tangent.
    GeluTanh,
}

/// Which normalisation queries and keys get before they are turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkNorm {
    /// Each head by itself, with one gain `[head_dim]` for all.
    Head,
    /// All heads of a token together.
    Projection,
}

/// Which projections have biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Biases {
    /// Those of queries, keys and values.
    pub qkv: bool,
    /// That of the attention's output.
    pub output: bool,
    /// Those of the MLP.
    pub mlp: bool,
}

/// Sizes, constants and features of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderConfig {
    /// The family: names of modules, and how `config.json` is read and written.
    pub family: &'static Family,
    /// Number of token ids, `vocab_size`.
    pub vocabulary: usize,
    /// Width of the residual stream, `hidden_size`.
    pub d_model: usize,
    /// Number of blocks, `num_hidden_layers`.
    pub layers: usize,
    /// Heads of the queries, `num_attention_heads`.
    pub heads: usize,
    /// Heads of keys and values, `num_key_value_heads`: they divide `heads`.
    pub kv_heads: usize,
    /// Width of a head; `d_model / heads` when the file does not say.
    pub head_dim: usize,
    /// Width inside the MLP, `intermediate_size`.
    pub d_ff: usize,
    /// Length the model was made for, `max_position_embeddings`. Only learned positions end there.
    pub context: usize,
    /// Whether the head is the token embedding, `tie_word_embeddings`.
    pub tied_embeddings: bool,
    /// Standard deviation of random weights, `initializer_range`.
    pub init_std: f64,
    /// Where a token stands.
    pub positions: Positions,
    /// Rotary embedding of the layers with a sliding window, where it is another than that of the others.
    pub local_rope: Option<Rope>,
    /// Layers that turn queries and keys.
    pub rope_layers: LayerSet,
    /// Keys that a query sees in layers with a sliding window, itself included; `None` for all.
    pub sliding_window: Option<usize>,
    /// Layers with a sliding window.
    pub sliding_layers: LayerSet,
    /// Which normalisation.
    pub norm: NormKind,
    /// Added to the mean square or variance in normalisations.
    pub norm_eps: f64,
    /// Whether normalisations multiply by `1 + weight` instead of `weight`.
    pub norm_plus_one: bool,
    /// Normalisation of queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// Biases.
    pub biases: Biases,
    /// What scores are multiplied by; `1 / sqrt(head_dim)` when not given.
    pub attention_multiplier: Option<f64>,
    /// Scores `s` become `cap tanh(s / cap)` before the mask.
    pub score_cap: Option<f64>,
    /// Logits `z` become `cap tanh(z / cap)`.
    pub logit_cap: Option<f64>,
    /// What embeddings are multiplied by.
    pub embedding_multiplier: f64,
    /// What sub-layers' outputs are multiplied by before they are added to the stream.
    pub residual_multiplier: f64,
    /// What logits are divided by.
    pub logits_divisor: f64,
    /// The function inside the MLP.
    pub activation: Activation,
}

impl DecoderConfig {
    /// Mistral-7B-v0.1.
    pub fn mistral_7b() -> Self {
        DecoderConfig {
            vocabulary: 32_000,
            d_model: 4096,
            layers: 32,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            d_ff: 14_336,
            context: 32_768,
            sliding_window: Some(4096),
            norm_eps: 1e-5,
            ..Self::plain(&families::MISTRAL)
        }
    }

    /// A model of `family` without any feature, of no size: what a family's file fills in.
    pub fn plain(family: &'static Family) -> Self {
        DecoderConfig {
            family,
            vocabulary: 0,
            d_model: 0,
            layers: 0,
            heads: 0,
            kv_heads: 0,
            head_dim: 0,
            d_ff: 0,
            context: 4096,
            tied_embeddings: false,
            init_std: 0.02,
            positions: Positions::Rotary(Rope::default()),
            local_rope: None,
            rope_layers: LayerSet::All,
            sliding_window: None,
            sliding_layers: LayerSet::All,
            norm: NormKind::RmsNorm,
            norm_eps: 1e-6,
            norm_plus_one: false,
            qk_norm: None,
            biases: Biases::default(),
            attention_multiplier: None,
            score_cap: None,
            logit_cap: None,
            embedding_multiplier: 1.0,
            residual_multiplier: 1.0,
            logits_divisor: 1.0,
            activation: Activation::Silu,
        }
    }

    /// Reads the configuration of a model: `config.json` of a directory, or the metadata of a GGUF file.
    ///
    /// # Errors
    /// When the file is missing or malformed, of an unknown family, or asks for something that is not supported.
    pub fn load(model: &Path) -> Result<Self> {
        if gguf::is_gguf(model) {
            let keys = GgufModel::open(model)?;
            let keys = keys.config().as_object().expect("an object");
            return Self::of_keys(keys).map_err(|problem| WeightsError::content(model, problem));
        }
        let path = model.join(CONFIG_FILE);
        let bytes = hankel_io::input::read(&path)?;
        Self::parse(&bytes).map_err(|problem| WeightsError::content(&path, problem))
    }

    /// The configuration in a `config.json`.
    ///
    /// # Errors
    /// Says what is wrong, naming the key.
    pub fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let map: Map<String, Value> = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        Self::of_keys(&map)
    }

    /// The configuration in the object of a `config.json`.
    ///
    /// # Errors
    /// Says what is wrong, naming the key.
    pub fn of_keys(map: &Map<String, Value>) -> std::result::Result<Self, String> {
        let keys = Keys::new(map);
        let model_type: String = keys.require("model_type")?;
        let family = families::of(&model_type).ok_or_else(|| {
            let known: Vec<&str> = families::FAMILIES.iter().map(|family| family.model_type).collect();
            let known = known.join(", ");
            format!("model_type {model_type:?} is not supported; {known} are")
        })?;
        let config = (family.read)(family, &keys)?;
        keys.check_decoder()?;
        keys.check_quantization()?;
        keys.finish(&model_type)?;
        config.check()?;
        Ok(config)
    }

    /// Says what does not fit together, naming the key.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        let sizes = [
            ("vocab_size", self.vocabulary),
            ("hidden_size", self.d_model),
            ("num_hidden_layers", self.layers),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("intermediate_size", self.d_ff),
            ("max_position_embeddings", self.context),
            ("sliding_window", self.sliding_window.unwrap_or(1)),
        ];
        if let Some((key, size)) = sizes.iter().find(|(_, size)| *size == 0 || *size > 1 << 24) {
            return Err(format!("{key} = {size} is out of range"));
        }
        if self.layers > MOST_LAYERS {
            return Err(format!("num_hidden_layers = {} is out of range: at most {MOST_LAYERS}", self.layers));
        }
        if self.heads * self.head_dim > 1 << 24 {
            return Err(format!(
                "num_attention_heads = {} times head_dim = {} is out of range",
                self.heads, self.head_dim
            ));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let (heads, kv) = (self.heads, self.kv_heads);
            return Err(format!("num_key_value_heads = {kv} does not divide num_attention_heads = {heads}"));
        }
        for (key, set) in [("no_rope_layers", &self.rope_layers), ("layer_types", &self.sliding_layers)] {
            if let LayerSet::Only(layers) = set
                && layers.len() != self.layers
            {
                return Err(format!("{key} has {} entries for {} layers", layers.len(), self.layers));
            }
        }
        if let Positions::Rotary(rope) = &self.positions {
            if !self.head_dim.is_multiple_of(2) {
                return Err(format!("head_dim = {} is odd; rotary embeddings turn pairs", self.head_dim));
            }
            rope.check(self.head_dim)?;
            self.local_rope.as_ref().map_or(Ok(()), |rope| rope.check(self.head_dim))?;
        }
        let positive = [
            ("rms_norm_eps", self.norm_eps),
            ("attention_multiplier", self.attention_multiplier.unwrap_or(1.0)),
            ("attn_logit_softcapping", self.score_cap.unwrap_or(1.0)),
            ("final_logit_softcapping", self.logit_cap.unwrap_or(1.0)),
            ("embedding_multiplier", self.embedding_multiplier),
            ("residual_multiplier", self.residual_multiplier),
            ("logits_scaling", self.logits_divisor),
        ];
        if let Some((key, value)) = positive.iter().find(|(_, value)| !(*value > 0.0 && value.is_finite())) {
            return Err(format!("{key} = {value} is not a positive number"));
        }
        if !(self.init_std >= 0.0 && self.init_std.is_finite()) {
            return Err(format!("initializer_range = {} is not a standard deviation", self.init_std));
        }
        Ok(())
    }

    /// The file's content, in the spelling of released checkpoints. `dtype` is `bfloat16`, `float16` or `float32`.
    pub fn to_json(&self, dtype: &str) -> Value {
        let mut map = Map::new();
        map.insert("architectures".into(), vec![self.family.architecture].into());
        map.insert("model_type".into(), self.family.model_type.into());
        (self.family.write)(self, &mut map);
        map.insert("bos_token_id".into(), 1.into());
        map.insert("eos_token_id".into(), 2.into());
        map.insert("torch_dtype".into(), dtype.into());
        Value::Object(map)
    }

    /// The length beyond which a sequence is turned by other angles from its first token on, if there is one.
    pub fn turning_length(&self) -> Option<usize> {
        match &self.positions {
            Positions::Rotary(Rope { scaling: RopeScaling::LongRope { original, .. }, .. }) => Some(*original),
            _ => None,
        }
    }

    /// Length of the sequences that the model was made for, stretched wavelengths included.
    pub fn made_for(&self) -> usize {
        let stretched = match &self.positions {
            // `max_position_embeddings` of Llama 3 is the stretched length already, and less than this.
            Positions::Rotary(Rope { scaling: RopeScaling::Yarn { factor, original, .. }, .. }) => {
                (*factor * *original as f64) as usize
            }
            _ => 0,
        };
        self.context.max(stretched)
    }

    /// Number of values.
    pub fn parameters(&self) -> usize {
        self.tensors().iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum()
    }

    /// Where adapters can be attached.
    pub fn placement(&self) -> Placement {
        Placement {
            layers: self.layers,
            d_model: self.d_model,
            linear: self.sites(),
            stream: vec![StreamSite::Attention, StreamSite::Mlp],
        }
    }
}
