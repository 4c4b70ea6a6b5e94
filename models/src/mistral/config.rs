//! `config.json` of Mistral and Llama checkpoints.

use crate::adapters::{LinearSite, Placement, StreamSite};
use crate::weights::{Result, WeightsError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;

/// Name of the file.
pub const CONFIG_FILE: &str = "config.json";

/// Which of the two architectures: the same block, with a sliding window or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `"model_type": "mistral"`.
    Mistral,
    /// `"model_type": "llama"`.
    Llama,
}

/// Sizes and constants.
#[derive(Debug, Clone, PartialEq)]
pub struct MistralConfig {
    /// The architecture's name.
    pub family: Family,
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
    /// Length the model was made for, `max_position_embeddings`. Nothing ends there: positions are angles.
    pub context: usize,
    /// Keys that a query sees, itself included; `None` for all.
    pub sliding_window: Option<usize>,
    /// Base of the rotary embedding's wavelengths.
    pub rope_theta: f64,
    /// Added to the mean square in normalisations, `rms_norm_eps`.
    pub rms_norm_eps: f64,
    /// Whether the head is the token embedding, `tie_word_embeddings`.
    pub tied_embeddings: bool,
    /// Standard deviation of random weights, `initializer_range`.
    pub init_std: f64,
}

/// The fields that matter, in both spellings.
#[derive(Deserialize)]
struct File {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    max_position_embeddings: Option<usize>,
    sliding_window: Option<usize>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Rope>,
    rope_parameters: Option<Rope>,
    partial_rotary_factor: Option<f64>,
    rms_norm_eps: Option<f64>,
    tie_word_embeddings: Option<bool>,
    initializer_range: Option<f64>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    quantization_config: Option<Quantization>,
}

#[derive(Deserialize)]
struct Rope {
    rope_theta: Option<f64>,
    #[serde(alias = "type")]
    rope_type: Option<String>,
}

#[derive(Deserialize)]
struct Quantization {
    quant_method: Option<String>,
    load_in_4bit: Option<bool>,
    bnb_4bit_quant_type: Option<String>,
}

impl MistralConfig {
    /// Mistral-7B-v0.1.
    pub fn mistral_7b() -> Self {
        MistralConfig {
            family: Family::Mistral,
            vocabulary: 32_000,
            d_model: 4096,
            layers: 32,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            d_ff: 14_336,
            context: 32_768,
            sliding_window: Some(4096),
            rope_theta: 1e4,
            rms_norm_eps: 1e-5,
            tied_embeddings: false,
            init_std: 0.02,
        }
    }

    /// Reads `config.json` of a model directory.
    ///
    /// # Errors
    /// When the file is missing or malformed, of another architecture, or asks for something that is not supported.
    pub fn load(directory: &Path) -> Result<Self> {
        let path = directory.join(CONFIG_FILE);
        let bytes = hankel_io::input::read(&path)?;
        Self::parse(&bytes).map_err(|problem| WeightsError::content(&path, problem))
    }

    /// The configuration in a `config.json`.
    ///
    /// # Errors
    /// Says what is wrong, naming the key.
    pub fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let file: File = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        let family = match &file.model_type[..] {
            "mistral" => Family::Mistral,
            "llama" => Family::Llama,
            other => return Err(format!("model_type {other:?} is not supported; mistral and llama are")),
        };
        if let Some(activation) = file.hidden_act.as_deref().filter(|a| !matches!(*a, "silu" | "swish")) {
            return Err(format!("hidden_act = {activation:?} is not supported; silu is"));
        }
        for (key, value) in [("attention_bias", file.attention_bias), ("mlp_bias", file.mlp_bias)] {
            if value == Some(true) {
                return Err(format!("{key} = true is not supported"));
            }
        }
        if file.partial_rotary_factor.is_some_and(|factor| factor != 1.0) {
            return Err("partial_rotary_factor other than 1 is not supported".to_owned());
        }
        for (key, rope) in [("rope_parameters", &file.rope_parameters), ("rope_scaling", &file.rope_scaling)] {
            let kind = rope.as_ref().and_then(|rope| rope.rope_type.as_deref());
            if let Some(kind) = kind.filter(|kind| *kind != "default") {
                return Err(format!("{key}: rope type {kind:?} is not supported; default is"));
            }
        }
        let thetas = [file.rope_theta, file.rope_parameters.and_then(|rope| rope.rope_theta)];
        if let [Some(old), Some(new)] = thetas
            && old != new
        {
            return Err(format!("rope_theta is {old} and rope_parameters.rope_theta is {new}"));
        }
        if let Some(quantization) = file.quantization_config {
            let Quantization { quant_method, load_in_4bit, bnb_4bit_quant_type } = quantization;
            let kind = bnb_4bit_quant_type.as_deref();
            if quant_method.as_deref() != Some("bitsandbytes") || load_in_4bit != Some(true) || kind != Some("nf4") {
                return Err("quantization_config: only bitsandbytes in 4 bit with nf4 is supported".to_owned());
            }
        }
        let heads = file.num_attention_heads;
        let head_dim = match file.head_dim {
            Some(head_dim) => head_dim,
            None if heads > 0 && file.hidden_size.is_multiple_of(heads) => file.hidden_size / heads,
            None => {
                let problem = "there is no head_dim, and num_attention_heads";
                return Err(format!("{problem} = {heads} does not divide hidden_size = {}", file.hidden_size));
            }
        };
        let config = MistralConfig {
            family,
            vocabulary: file.vocab_size,
            d_model: file.hidden_size,
            layers: file.num_hidden_layers,
            heads,
            kv_heads: file.num_key_value_heads.unwrap_or(heads),
            head_dim,
            d_ff: file.intermediate_size,
            context: file.max_position_embeddings.unwrap_or(4096),
            sliding_window: file.sliding_window.filter(|_| family == Family::Mistral),
            rope_theta: thetas.into_iter().flatten().next().unwrap_or(1e4),
            rms_norm_eps: file.rms_norm_eps.unwrap_or(1e-6),
            tied_embeddings: file.tie_word_embeddings.unwrap_or(false),
            init_std: file.initializer_range.unwrap_or(0.02),
        };
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
        if !self.head_dim.is_multiple_of(2) {
            return Err(format!("head_dim = {} is odd; rotary embeddings turn pairs", self.head_dim));
        }
        let positive = [("rope_theta", self.rope_theta), ("rms_norm_eps", self.rms_norm_eps)];
        if let Some((key, value)) = positive.iter().find(|(_, value)| !(*value > 0.0 && value.is_finite())) {
            return Err(format!("{key} = {value} is not a positive number"));
        }
        if !(self.init_std >= 0.0 && self.init_std.is_finite()) {
            return Err(format!("initializer_range = {} is not a standard deviation", self.init_std));
        }
        Ok(())
    }

    /// The file's content, in the spelling of the released 7B checkpoint. `dtype` is `bfloat16`, `float16` or `float32`.
    pub fn to_json(&self, dtype: &str) -> Value {
        let (name, architecture) = match self.family {
            Family::Mistral => ("mistral", "MistralForCausalLM"),
            Family::Llama => ("llama", "LlamaForCausalLM"),
        };
        let mut value = json!({
            "architectures": [architecture],
            "model_type": name,
            "vocab_size": self.vocabulary,
            "hidden_size": self.d_model,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.d_ff,
            "max_position_embeddings": self.context,
            "rope_theta": self.rope_theta,
            "rms_norm_eps": self.rms_norm_eps,
            "tie_word_embeddings": self.tied_embeddings,
            "initializer_range": self.init_std,
            "hidden_act": "silu",
            "attention_bias": false,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "torch_dtype": dtype,
        });
        if self.family == Family::Mistral {
            value["sliding_window"] = json!(self.sliding_window);
        }
        value
    }

    /// Every tensor of a checkpoint with its shape, in the order of the forward pass.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let d = self.d_model;
        let mut all = vec![("model.embed_tokens.weight".to_owned(), vec![self.vocabulary, d])];
        for layer in 0..self.layers {
            let mut push =
                |name: &str, shape: Vec<usize>| all.push((format!("model.layers.{layer}.{name}.weight"), shape));
            push("input_layernorm", vec![d]);
            for site in self.sites().iter().filter(|site| site.module == "self_attn") {
                push(&format!("self_attn.{}", site.name), vec![site.outputs, site.inputs]);
            }
            push("post_attention_layernorm", vec![d]);
            for site in self.sites().iter().filter(|site| site.module == "mlp") {
                push(&format!("mlp.{}", site.name), vec![site.outputs, site.inputs]);
            }
        }
        all.push(("model.norm.weight".to_owned(), vec![d]));
        if !self.tied_embeddings {
            all.push(("lm_head.weight".to_owned(), vec![self.vocabulary, d]));
        }
        all
    }

    /// The projections of a layer.
    pub(crate) fn sites(&self) -> Vec<LinearSite> {
        let (d, f) = (self.d_model, self.d_ff);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let attention = [("q_proj", [d, q]), ("k_proj", [d, kv]), ("v_proj", [d, kv]), ("o_proj", [q, d])];
        let mlp = [("gate_proj", [d, f]), ("up_proj", [d, f]), ("down_proj", [f, d])];
        let attention = attention.map(|(name, sizes)| LinearSite::new(name, "self_attn", sizes));
        attention.into_iter().chain(mlp.map(|(name, sizes)| LinearSite::new(name, "mlp", sizes))).collect()
    }

    /// Number of values.
    pub fn parameters(&self) -> usize {
        self.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
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
