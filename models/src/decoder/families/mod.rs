//! Families of models: one file each, with the names of its modules, how its `config.json` is read and written, and what it
//! is in GGUF files.
//!
//! Adding one is such a file and a line in [`FAMILIES`].

mod gemma2;
mod gemma3;
mod gpt2;
mod granite;
mod llama;
mod mistral;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen3;
mod smollm3;

pub use gemma2::GEMMA2;
pub use gemma3::GEMMA3_TEXT;
pub use gpt2::GPT2;
pub use granite::GRANITE;
pub use llama::LLAMA;
pub use mistral::MISTRAL;
pub use olmo2::OLMO2;
pub use phi3::PHI3;
pub use qwen2::QWEN2;
pub use qwen3::QWEN3;
pub use smollm3::SMOLLM3;

use super::config::{DecoderConfig, LayerSet, Positions};
use super::keys::Keys;
use super::layout::Names;
use super::rope::Rope;
use crate::gguf::Architecture;
use serde_json::{Map, Value, json};
use std::fmt;

/// The families that can be read.
pub static FAMILIES: &[&Family] =
    &[&LLAMA, &MISTRAL, &QWEN2, &QWEN3, &SMOLLM3, &OLMO2, &PHI3, &GRANITE, &GEMMA2, &GEMMA3_TEXT, &GPT2];

/// A family of models.
pub struct Family {
    /// `model_type` in `config.json`.
    pub model_type: &'static str,
    /// The class of transformers.
    pub architecture: &'static str,
    /// Names of its modules.
    pub names: Names,
    /// Ends of the names of tensors that some files hold and that carry nothing.
    pub ignored: &'static [&'static str],
    /// The configuration that the keys of a `config.json` say.
    pub(super) read: fn(&'static Family, &Keys) -> Result<DecoderConfig, String>,
    /// The keys of a `config.json` that say a configuration.
    pub(super) write: fn(&DecoderConfig, &mut Map<String, Value>),
    /// What it is in GGUF files, if it can be in them.
    pub(crate) gguf: Option<Architecture>,
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.model_type)
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.model_type == other.model_type
    }
}

/// The family of a `model_type`.
pub fn of(model_type: &str) -> Option<&'static Family> {
    FAMILIES.iter().copied().find(|family| family.model_type == model_type)
}

/// The rotary frequencies, which old checkpoints store although they follow from the configuration.
const STORED_FREQUENCIES: &[&str] = &["rotary_emb.inv_freq"];

/// What every family that took over Llama's keys has in common. `theta` is the base of the wavelengths when none is
/// written.
fn read_common(family: &'static Family, keys: &Keys, theta: f64) -> Result<DecoderConfig, String> {
    let activation: Option<String> = keys.get("hidden_act")?;
    if let Some(activation) = activation.filter(|a| !matches!(a.as_str(), "silu" | "swish")) {
        return Err(format!("hidden_act = {activation:?} is not supported; silu is"));
    }
    let config = read_sizes(family, keys)?;
    let rope = Rope::read(keys, theta, config.context)?;
    Ok(DecoderConfig { positions: Positions::Rotary(rope), ..config })
}

/// More than any model has.
pub(super) const MOST_LAYERS: usize = 1 << 17;

/// The part of it that says nothing of activation and positions.
fn read_sizes(family: &'static Family, keys: &Keys) -> Result<DecoderConfig, String> {
    let config = DecoderConfig::plain(family);
    let layers: usize = keys.require("num_hidden_layers")?;
    // Families make lists of them before anything else is looked at.
    if layers > MOST_LAYERS {
        return Err(format!("num_hidden_layers = {layers} is out of range: at most {MOST_LAYERS}"));
    }
    let (heads, d_model): (usize, usize) = (keys.require("num_attention_heads")?, keys.require("hidden_size")?);
    Ok(DecoderConfig {
        vocabulary: keys.require("vocab_size")?,
        d_model,
        layers,
        heads,
        kv_heads: keys.or("num_key_value_heads", heads)?,
        head_dim: match keys.get("head_dim")? {
            Some(head_dim) => head_dim,
            None if heads > 0 && d_model.is_multiple_of(heads) => d_model / heads,
            None => {
                let problem = "there is no head_dim, and num_attention_heads";
                return Err(format!("{problem} = {heads} does not divide hidden_size = {d_model}"));
            }
        },
        d_ff: keys.require("intermediate_size")?,
        context: keys.or("max_position_embeddings", config.context)?,
        tied_embeddings: keys.or("tie_word_embeddings", config.tied_embeddings)?,
        init_std: keys.or("initializer_range", config.init_std)?,
        norm_eps: keys.or("rms_norm_eps", config.norm_eps)?,
        ..config
    })
}

/// The counterpart of [`read_common`].
fn write_common(config: &DecoderConfig, map: &mut Map<String, Value>) {
    let pairs = [
        ("vocab_size", json!(config.vocabulary)),
        ("hidden_size", json!(config.d_model)),
        ("num_hidden_layers", json!(config.layers)),
        ("num_attention_heads", json!(config.heads)),
        ("num_key_value_heads", json!(config.kv_heads)),
        ("head_dim", json!(config.head_dim)),
        ("intermediate_size", json!(config.d_ff)),
        ("max_position_embeddings", json!(config.context)),
        ("rms_norm_eps", json!(config.norm_eps)),
        ("tie_word_embeddings", json!(config.tied_embeddings)),
        ("initializer_range", json!(config.init_std)),
        ("hidden_act", json!("silu")),
    ];
    map.extend(pairs.map(|(key, value)| (key.to_owned(), value)));
    if let Positions::Rotary(rope) = &config.positions {
        rope.write(map);
    }
}

/// `layer_types`: which layers have a sliding window; `None` when it is not written.
fn layer_types(keys: &Keys) -> Result<Option<LayerSet>, String> {
    let Some(types) = keys.get::<Vec<String>>("layer_types")? else { return Ok(None) };
    let slides = |name: &String| match name.as_str() {
        "sliding_attention" => Ok(true),
        "full_attention" => Ok(false),
        other => Err(format!("layer_types: {other:?} is not supported; full_attention and sliding_attention are")),
    };
    types.iter().map(slides).collect::<Result<_, _>>().map(|layers| Some(LayerSet::Only(layers)))
}

/// The windows of Qwen: 4096 keys where a file does not say how many, in layers from `max_window_layers` on where it does not
/// say in which.
fn read_late_windows(keys: &Keys, config: DecoderConfig) -> Result<DecoderConfig, String> {
    let (window, from): (_, usize) = (keys.nullable("sliding_window", 4096)?, keys.or("max_window_layers", 28)?);
    read_windows(keys, config, window, |layer| layer >= from)
}

/// The windows of Qwen and SmolLM3, of `window` keys: none but with `use_sliding_window`, then in layers as `layer_types` says,
/// or where it is not written as `slides` does.
fn read_windows(
    keys: &Keys,
    config: DecoderConfig,
    window: Option<usize>,
    slides: impl Fn(usize) -> bool,
) -> Result<DecoderConfig, String> {
    let types = layer_types(keys)?;
    if !keys.or("use_sliding_window", false)? {
        return Ok(config);
    }
    let sliding_layers = types.unwrap_or_else(|| LayerSet::Only((0..config.layers).map(slides).collect()));
    Ok(DecoderConfig { sliding_window: window, sliding_layers, ..config })
}

/// The counterpart of [`read_windows`].
fn write_windows(config: &DecoderConfig, map: &mut Map<String, Value>) {
    map.insert("use_sliding_window".into(), json!(config.sliding_window.is_some()));
    if let Some(window) = config.sliding_window {
        map.insert("sliding_window".into(), json!(window));
        write_layer_types(config, map);
    }
}

fn write_layer_types(config: &DecoderConfig, map: &mut Map<String, Value>) {
    let name = |layer| if config.sliding_layers.contains(layer) { "sliding_attention" } else { "full_attention" };
    map.insert("layer_types".into(), (0..config.layers).map(name).collect());
}
