//! Qwen 2 and 2.5: biases of queries, keys and values.

use super::{Family, STORED_FREQUENCIES, read_common, read_late_windows, write_common, write_windows};
use crate::decoder::config::{Biases, DecoderConfig};
use crate::decoder::layout::Names;
use crate::gguf::Architecture;
use serde_json::json;

/// `model_type = "qwen2"`.
pub static QWEN2: Family = Family {
    model_type: "qwen2",
    architecture: "Qwen2ForCausalLM",
    names: Names::LLAMA,
    ignored: STORED_FREQUENCIES,
    read: |family, keys| {
        keys.only("use_mrope", &json!(false))?;
        let config = read_late_windows(keys, read_common(family, keys, 1e4)?)?;
        Ok(DecoderConfig { biases: Biases { qkv: true, ..Biases::default() }, ..config })
    },
    write: |config, map| {
        write_common(config, map);
        write_windows(config, map);
    },
    gguf: Some(Architecture {
        is_read: true,
        biases: Biases { qkv: true, output: false, mlp: false },
        ..Architecture::plain("qwen2")
    }),
};
