//! Llama 1, 2 and 3, and what is built like them (SmolLM, SmolLM2, TinyLlama ...).

use super::{Family, STORED_FREQUENCIES, read_common, write_common};
use crate::decoder::config::{Biases, DecoderConfig};
use crate::decoder::layout::Names;
use crate::gguf::{Architecture, Divisors};
use serde_json::json;

/// `model_type = "llama"`.
pub static LLAMA: Family = Family {
    model_type: "llama",
    architecture: "LlamaForCausalLM",
    names: Names::LLAMA,
    ignored: STORED_FREQUENCIES,
    read: |family, keys| {
        // Written by some tools; Llama has no window. Conversions of Llama 1 give their length by a former name, too.
        keys.ignore(&["max_sequence_length", "sliding_window"]);
        keys.only("rope_interleaved", &json!(false))?;
        let attention = keys.or("attention_bias", false)?;
        let biases = Biases { qkv: attention, output: attention, mlp: keys.or("mlp_bias", false)? };
        Ok(DecoderConfig { biases, ..read_common(family, keys, 1e4)? })
    },
    write: |config, map| {
        write_common(config, map);
        map.insert("attention_bias".into(), json!(config.biases.qkv));
        map.insert("mlp_bias".into(), json!(config.biases.mlp));
    },
    gguf: Some(Architecture {
        is_read: true,
        interleaved: true,
        biases: Biases { qkv: true, output: true, mlp: true },
        divisors: Divisors::One,
        ..Architecture::plain("llama")
    }),
};
