//! Gemma 2: gains of `1 + weight`, four norms a layer, capped scores and logits, windows in every other layer.

use super::gemma3::NAMES;
use super::{Family, STORED_FREQUENCIES, layer_types, read_sizes, write_common, write_layer_types};
use crate::decoder::config::{Activation, Biases, DecoderConfig, LayerSet, Positions};
use crate::decoder::rope::Rope;
use serde_json::json;

/// `model_type = "gemma2"`.
pub static GEMMA2: Family = Family {
    model_type: "gemma2",
    architecture: "Gemma2ForCausalLM",
    names: NAMES,
    ignored: STORED_FREQUENCIES,
    read: |family, keys| {
        for key in ["hidden_activation", "hidden_act"] {
            keys.only(key, &json!("gelu_pytorch_tanh"))?;
        }
        keys.only("use_bidirectional_attention", &json!(false))?;
        // Released files have it beside `sliding_window`, and nothing reads it.
        keys.ignore(&["sliding_window_size"]);
        let attention = keys.or("attention_bias", false)?;
        let (head_dim, scalar) = (keys.or("head_dim", 256)?, keys.or("query_pre_attn_scalar", 256.0_f64)?);
        let tied_embeddings = keys.or("tie_word_embeddings", true)?;
        let config = read_sizes(family, keys)?;
        let even = (0..config.layers).map(|layer| layer.is_multiple_of(2)).collect();
        Ok(DecoderConfig {
            tied_embeddings,
            head_dim,
            positions: Positions::Rotary(Rope::read(keys, 1e4, config.context)?),
            sliding_window: keys.nullable("sliding_window", 4096)?,
            sliding_layers: layer_types(keys)?.unwrap_or(LayerSet::Only(even)),
            norm_plus_one: true,
            biases: Biases { qkv: attention, output: attention, mlp: false },
            attention_multiplier: Some(1.0 / scalar.sqrt()),
            score_cap: keys.nullable("attn_logit_softcapping", 50.0)?,
            logit_cap: keys.nullable("final_logit_softcapping", 30.0)?,
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
        map.insert("query_pre_attn_scalar".into(), super::gemma3::query_scalar(config));
        map.insert("attn_logit_softcapping".into(), json!(config.score_cap));
        map.insert("final_logit_softcapping".into(), json!(config.logit_cap));
        write_layer_types(config, map);
    },
    gguf: None,
};
