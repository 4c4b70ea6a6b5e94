//! Qwen 3: a norm of each head of queries and keys before the rotation.

use super::{Family, STORED_FREQUENCIES, read_common, read_late_windows, write_common, write_windows};
use crate::decoder::config::{Biases, DecoderConfig, QkNorm};
use crate::decoder::layout::Names;
use crate::gguf::Architecture;
use serde_json::json;

/// `model_type = "qwen3"`.
pub static QWEN3: Family = Family {
    model_type: "qwen3",
    architecture: "Qwen3ForCausalLM",
    names: Names::LLAMA,
    ignored: STORED_FREQUENCIES,
    read: |family, keys| {
        let attention = keys.or("attention_bias", false)?;
        let biases = Biases { qkv: attention, output: attention, mlp: false };
        let head_dim = keys.or("head_dim", 128)?;
        let config = read_late_windows(keys, read_common(family, keys, 1e4)?)?;
        Ok(DecoderConfig { biases, head_dim, qk_norm: Some(QkNorm::Head), ..config })
    },
    write: |config, map| {
        write_common(config, map);
        write_windows(config, map);
        map.insert("attention_bias".into(), json!(config.biases.qkv));
    },
    gguf: Some(Architecture { is_read: true, ..Architecture::plain("qwen3") }),
};
