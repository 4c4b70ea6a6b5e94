//! Mistral (Jiang et al., 2023): Llama with a sliding window in all layers.

use super::{Family, STORED_FREQUENCIES, read_common, write_common};
use crate::decoder::config::DecoderConfig;
use crate::decoder::layout::Names;
use crate::gguf::{Architecture, Divisors};
use serde_json::json;

/// `model_type = "mistral"`.
pub static MISTRAL: Family = Family {
    model_type: "mistral",
    architecture: "MistralForCausalLM",
    names: Names::LLAMA,
    ignored: STORED_FREQUENCIES,
    read: |family, keys| {
        keys.only("attention_bias", &json!(false))?;
        keys.only("mlp_bias", &json!(false))?;
        let sliding_window = keys.nullable("sliding_window", 4096)?;
        Ok(DecoderConfig { sliding_window, ..read_common(family, keys, 1e4)? })
    },
    write: |config, map| {
        write_common(config, map);
        map.insert("sliding_window".into(), json!(config.sliding_window));
    },
    gguf: Some(Architecture { interleaved: true, divisors: Divisors::One, ..Architecture::plain("llama") }),
};
