//! What rewriting a model directory has in common, whatever becomes of the weights.

use super::config::CONFIG_FILE;
use crate::weights::{Result, ShardWriter, WeightsError};
use hankel_core::{CpuStorage, Storage, Tensor};
use safetensors::Dtype;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Files beside the weights that stay as they are.
const COMPANIONS: [&str; 5] =
    ["generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"];

/// `config.json` of the directory, with all its fields.
pub(super) fn read_config(directory: &Path) -> Result<Value> {
    let path = directory.join(CONFIG_FILE);
    let text = fs::read(&path).map_err(WeightsError::io("read", &path))?;
    serde_json::from_slice(&text).map_err(|e| WeightsError::content(&path, e.to_string()))
}

/// Copies the files of the tokenizer and of generation that are there.
pub(super) fn copy_companions(from: &Path, writer: &ShardWriter) -> Result<()> {
    for name in COMPANIONS {
        let path = from.join(name);
        if path.is_file() {
            writer.file(name, &fs::read(&path).map_err(WeightsError::io("read", &path))?)?;
        }
    }
    Ok(())
}

/// Type, its name in `config.json`, and bytes of a weight that is not quantised.
pub(super) fn raw(weight: &Tensor) -> Option<(Dtype, &'static str, &[u8])> {
    let Storage::Cpu(storage) = weight.storage();
    match storage {
        CpuStorage::F32(data) => Some((Dtype::F32, "float32", bytemuck::cast_slice(data))),
        CpuStorage::BF16(data) => Some((Dtype::BF16, "bfloat16", bytemuck::cast_slice(data))),
        CpuStorage::F16(data) => Some((Dtype::F16, "float16", bytemuck::cast_slice(data))),
        _ => None,
    }
}
