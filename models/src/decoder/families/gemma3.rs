//! The text models of Gemma 3: gains of `1 + weight`, four norms a layer and norms of queries and keys, windows in most layers,
//! which have a rotary embedding of their own.

use super::{Family, STORED_FREQUENCIES, layer_types, read_sizes, write_common, write_layer_types};
use crate::decoder::config::{Activation, Biases, DecoderConfig, LayerSet, Positions, QkNorm};
use crate::decoder::keys::Keys;
use crate::decoder::layout::Names;
use crate::decoder::rope::{Rope, RopeScaling};
use crate::gguf::Architecture;
use serde_json::{Map, Value, json};

/// Names of the modules of Gemma 2 and 3.
pub(super) const NAMES: Names = Names {
    norms: [
        Some("input_layernorm"),
        Some("post_attention_layernorm"),
        Some("pre_feedforward_layernorm"),
        Some("post_feedforward_layernorm"),
    ],
    ..Names::LLAMA
};

/// `model_type = "gemma3_text"`.
pub static GEMMA3_TEXT: Family = Family {
    model_type: "gemma3_text",
    architecture: "Gemma3ForCausalLM",
    names: NAMES,
    ignored: STORED_FREQUENCIES,
    read: |family, keys| {
        for key in ["hidden_activation", "hidden_act"] {
            keys.only(key, &json!("gelu_pytorch_tanh"))?;
        }
        keys.only("use_bidirectional_attention", &json!(false))?;
        for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
            if let Some(cap) = keys.get::<Value>(key)? {
                return Err(format!("{key} = {cap} is not supported"));
            }
        }
        let attention = keys.or("attention_bias", false)?;
        let (head_dim, scalar) = (keys.or("head_dim", 256)?, keys.or("query_pre_attn_scalar", 256.0_f64)?);
        let tied_embeddings = keys.or("tie_word_embeddings", true)?;
        let config = read_sizes(family, keys)?;
        // The private spelling is what transformers 5 writes.
        let pattern = keys.get("sliding_window_pattern")?.or(keys.get("_sliding_window_pattern")?).unwrap_or(6_usize);
        if pattern == 0 {
            return Err("sliding_window_pattern = 0 is out of range".to_owned());
        }
        let all = (0..config.layers).map(|layer| !(layer + 1).is_multiple_of(pattern)).collect();
        let (rope, local) = ropes(keys, config.context)?;
        Ok(DecoderConfig {
            tied_embeddings,
            head_dim,
            positions: Positions::Rotary(rope),
            local_rope: Some(local),
            sliding_window: Some(keys.or("sliding_window", 4096)?),
            sliding_layers: layer_types(keys)?.unwrap_or(LayerSet::Only(all)),
            norm_plus_one: true,
            qk_norm: Some(QkNorm::Head),
            biases: Biases { qkv: attention, output: attention, mlp: false },
            attention_multiplier: Some(1.0 / scalar.sqrt()),
            embedding_multiplier: (config.d_model as f64).sqrt(),
            activation: Activation::GeluTanh,
            ..config
        })
    },
    write: |config, map| {
        write_common(config, map);
        map.remove("hidden_act");
        map.insert("hidden_activation".into(), json!("gelu_pytorch_tanh"));
        map.insert("attention_bias".into(), json!(config.biases.qkv));
        map.insert("sliding_window".into(), json!(config.sliding_window));
        map.insert("query_pre_attn_scalar".into(), query_scalar(config));
        if let Some(local) = &config.local_rope {
            map.insert("rope_local_base_freq".into(), json!(local.theta));
        }
        write_layer_types(config, map);
    },
    gguf: Some(Architecture {
        has_windows: true,
        check: check_what_is_granted,
        keys: |config, keys| {
            keys.size("attention.sliding_window", config.sliding_window.unwrap_or(0))?;
            if let Some(local) = &config.local_rope {
                if local.scaling != RopeScaling::None {
                    return Err("positions of the layers with windows are scaled, for which GGUF has no key".to_owned());
                }
                if local.theta != 1e4 {
                    return Err(format!("rope_local_base_freq = {}, where llama.cpp takes 10000", local.theta));
                }
            }
            Ok(())
        },
        ..Architecture::plain("gemma3")
    }),
};

/// `query_pre_attn_scalar`, whose root divides the scores: a whole number in every released file, and transformers 5 reads
/// no other.
pub(super) fn query_scalar(config: &DecoderConfig) -> Value {
    let multiplier = config.attention_multiplier.unwrap_or(1.0 / (config.head_dim as f64).sqrt());
    let scalar = 1.0 / (multiplier * multiplier);
    let whole = (scalar - scalar.round()).abs() < 1e-9 * scalar;
    if whole { json!(scalar.round() as u64) } else { json!(scalar) }
}

/// The rotary embeddings of the layers without and with a window.
fn ropes(keys: &Keys, context: usize) -> Result<(Rope, Rope), String> {
    let local_theta = keys.or("rope_local_base_freq", 1e4)?;
    if let Some(each) = keys.get::<Map<String, Value>>("rope_parameters")?
        && let (Some(full), Some(sliding)) = (each.get("full_attention"), each.get("sliding_attention"))
    {
        let read = |value, theta| Rope::of_value("rope_parameters", value, None, None, theta, context);
        return Ok((read(full, 1e6)?, read(sliding, local_theta)?));
    }
    Ok((Rope::read(keys, 1e6, context)?, Rope { theta: local_theta, scaling: RopeScaling::None }))
}

/// llama.cpp takes the scale of the scores, the multiplier of embeddings and the layers with windows for granted.
fn check_what_is_granted(config: &DecoderConfig) -> Result<(), String> {
    let same = |x: f64, y: f64| (x - y).abs() <= 1e-6 * y.abs();
    // The 27B model, which it knows by its 62 layers, has another scale.
    let scalar = if config.layers == 62 { config.d_model as f64 / config.heads as f64 } else { config.head_dim as f64 };
    if config.attention_multiplier.is_some_and(|multiplier| !same(multiplier, 1.0 / scalar.sqrt())) {
        return Err(format!("query_pre_attn_scalar is not {scalar}, which it takes for granted"));
    }
    if !same(config.embedding_multiplier, (config.d_model as f64).sqrt()) {
        return Err("embeddings are not multiplied by the root of the width, which it takes for granted".to_owned());
    }
    let usual = |layer: usize| !(layer + 1).is_multiple_of(6);
    let slides = |layer: usize| config.sliding_window.is_some() && config.sliding_layers.contains(layer);
    if config.sliding_layers == LayerSet::All || (0..config.layers).any(|layer| slides(layer) != usual(layer)) {
        return Err("it has windows in all layers but every sixth, and this model has them in others".to_owned());
    }
    Ok(())
}
