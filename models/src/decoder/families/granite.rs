//! Granite 3: Llama with four multipliers.

use super::{Family, STORED_FREQUENCIES, read_common, write_common};
use crate::decoder::config::{Biases, DecoderConfig};
use crate::decoder::layout::Names;
use crate::gguf::{Architecture, Divisors};
use serde_json::json;

/// `model_type = "granite"`.
pub static GRANITE: Family = Family {
    model_type: "granite",
    architecture: "GraniteForCausalLM",
    names: Names::LLAMA,
    ignored: STORED_FREQUENCIES,
    read: |family, keys| {
        let attention = keys.or("attention_bias", false)?;
        Ok(DecoderConfig {
            biases: Biases { qkv: attention, output: attention, mlp: keys.or("mlp_bias", false)? },
            embedding_multiplier: keys.or("embedding_multiplier", 1.0)?,
            attention_multiplier: Some(keys.or("attention_multiplier", 1.0)?),
            residual_multiplier: keys.or("residual_multiplier", 1.0)?,
            logits_divisor: keys.or("logits_scaling", 1.0)?,
            ..read_common(family, keys, 1e4)?
        })
    },
    write: |config, map| {
        write_common(config, map);
        map.insert("attention_bias".into(), json!(config.biases.qkv));
        map.insert("mlp_bias".into(), json!(config.biases.mlp));
        map.insert("embedding_multiplier".into(), json!(config.embedding_multiplier));
        map.insert("attention_multiplier".into(), json!(config.attention_multiplier));
        map.insert("residual_multiplier".into(), json!(config.residual_multiplier));
        map.insert("logits_scaling".into(), json!(config.logits_divisor));
    },
    gguf: Some(Architecture {
        interleaved: true,
        biases: Biases { qkv: true, output: true, mlp: true },
        divisors: Divisors::One,
        keys: |config, keys| {
            let usual = 1.0 / (config.head_dim as f64).sqrt();
            keys.float("attention.scale", config.attention_multiplier.unwrap_or(usual));
            keys.float("embedding_scale", config.embedding_multiplier);
            keys.float("residual_scale", config.residual_multiplier);
            keys.float("logit_scale", config.logits_divisor);
            Ok(())
        },
        ..Architecture::plain("granite")
    }),
};
