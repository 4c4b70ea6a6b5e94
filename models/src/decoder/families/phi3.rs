//! Phi-3: queries, keys and values in one projection, gate and value in another.

use super::{Family, STORED_FREQUENCIES, read_common, write_common};
use crate::decoder::config::DecoderConfig;
use crate::decoder::layout::{Names, Up};
use crate::gguf::{Architecture, Divisors};
use serde_json::json;

/// `model_type = "phi3"`.
pub static PHI3: Family = Family {
    model_type: "phi3",
    architecture: "Phi3ForCausalLM",
    names: Names { qkv: &["qkv_proj"], up: Up::Fused("gate_up_proj"), ..Names::LLAMA },
    ignored: STORED_FREQUENCIES,
    read: |family, keys| {
        keys.only("attention_bias", &json!(false))?;
        let (sliding_window, norm_eps) = (keys.get("sliding_window")?, keys.or("rms_norm_eps", 1e-5)?);
        Ok(DecoderConfig { sliding_window, norm_eps, ..read_common(family, keys, 1e4)? })
    },
    write: |config, map| {
        write_common(config, map);
        map.insert("sliding_window".into(), json!(config.sliding_window));
        // transformers reads it here alone, and takes 4096 where it is not.
        let original = map.get("rope_scaling").and_then(|scaling| scaling.get("original_max_position_embeddings"));
        if let Some(original) = original.cloned() {
            map.insert("original_max_position_embeddings".into(), original);
        }
    },
    gguf: Some(Architecture {
        divisors: Divisors::LongAndShort,
        label: Some("Phi-3"),
        keys: |config, keys| keys.size("attention.sliding_window", config.sliding_window.unwrap_or(0)),
        ..Architecture::plain("phi3")
    }),
};
