//! OLMo 2: norms after the sub-layers, on what they add to the stream, and of whole queries and keys.

use super::{Family, STORED_FREQUENCIES, read_common, write_common};
use crate::decoder::config::{Biases, DecoderConfig, QkNorm};
use crate::decoder::layout::Names;
use crate::gguf::{Architecture, check_width};
use serde_json::json;

/// `model_type = "olmo2"`.
pub static OLMO2: Family = Family {
    model_type: "olmo2",
    architecture: "Olmo2ForCausalLM",
    names: Names {
        norms: [None, Some("post_attention_layernorm"), None, Some("post_feedforward_layernorm")],
        ..Names::LLAMA
    },
    ignored: STORED_FREQUENCIES,
    read: |family, keys| {
        let attention = keys.or("attention_bias", false)?;
        let biases = Biases { qkv: attention, output: attention, mlp: false };
        let rms_norm_eps = keys.or("rms_norm_eps", 1e-5)?;
        let config = read_common(family, keys, 1e4)?;
        Ok(DecoderConfig { biases, norm_eps: rms_norm_eps, qk_norm: Some(QkNorm::Projection), ..config })
    },
    write: |config, map| {
        write_common(config, map);
        map.insert("attention_bias".into(), json!(config.biases.qkv));
    },
    gguf: Some(Architecture { check: check_width, ..Architecture::plain("olmo2") }),
};
