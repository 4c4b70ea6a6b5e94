//! What rewriting a model directory has in common, whatever becomes of the weights.

use super::config::CONFIG_FILE;
use crate::weights::{Result, ShardWriter, WeightsError};
use hankel_core::DType;
use serde_json::Value;
use std::path::Path;

/// Bytes of a shard: two are held in memory at once.
pub(super) const SHARD: usize = 512 << 20;

/// Files beside the weights that stay as they are.
const COMPANIONS: [&str; 5] =
    ["generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"];

/// `config.json` of the directory, with all its fields.
pub(super) fn read_config(directory: &Path) -> Result<Value> {
    let path = directory.join(CONFIG_FILE);
    let text = hankel_io::input::read(&path)?;
    serde_json::from_slice(&text).map_err(|e| WeightsError::content(&path, e.to_string()))
}

/// Copies the files of the tokenizer and of generation that are there.
pub(super) fn copy_companions(from: &Path, writer: &ShardWriter) -> Result<()> {
    for name in COMPANIONS {
        let path = from.join(name);
        if path.is_file() {
            writer.file(name, &hankel_io::input::read(&path)?)?;
        }
    }
    Ok(())
}

/// The name in `config.json` of a type that weights are stored in; none for quantised ones.
pub(super) fn type_name(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("float32"),
        DType::BF16 => Some("bfloat16"),
        DType::F16 => Some("float16"),
        _ => None,
    }
}
