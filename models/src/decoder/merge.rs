//! Folding an adapter into a model directory.

use super::config::{CONFIG_FILE, DecoderConfig};
use super::directory::{SHARD, companions, finish, open, read_config, stored, take, type_name, write_companions};
use super::layout::TensorSpec;
use crate::adapters::{AdapterSet, MergeReport};
use crate::weights::{Result, ShardWriter, WeightsError};
use hankel_core::DType;
use hankel_io::Existing;
use std::path::Path;

/// Writes the model at `from` with `adapters` folded into its weights to the directory `to`. Every tensor is rounded to `dtype`
/// (`bf16` or `f32`). Without a `dtype` it keeps its type; blocks of a GGUF file become `f32`. The files of the tokenizer and of generation
/// are copied. Memory stays below two shards of 512 MiB and a few times the largest tensor.
///
/// # Errors
/// When the adapters cannot be merged ([`AdapterSet::check_mergeable`]) or are of another model, `from` cannot be read or is
/// quantised, or `to` exists or cannot be written; nothing is left at `to` then.
pub fn merge_model(adapters: &AdapterSet, from: &Path, to: &Path, dtype: Option<DType>) -> Result<MergeReport> {
    let fail = |reason: String| WeightsError::content(from, reason);
    adapters.check_mergeable().map_err(|e| fail(e.to_string()))?;
    let config = DecoderConfig::load(from)?;
    let mut json = read_config(from)?;
    if json.get("quantization_config").is_some_and(|value| !value.is_null()) {
        let reason = "the model is quantised, which cannot hold the sum: merge into the weights it was made from";
        return Err(fail(reason.to_owned()));
    }
    let companions = companions(from)?;
    let mut files = open(from, &config)?;
    let mut writer = ShardWriter::create(to, Existing::Refuse, SHARD)?;
    let mut report = MergeReport::default();
    for spec in config.tensors() {
        let weight = take(&mut files, &spec)?;
        let TensorSpec { name, .. } = &spec;
        // Blocks cannot hold the sum; what they stand for can.
        let weight = if weight.blocks().is_some() {
            weight.to_dtype(DType::F32).map_err(|e| fail(format!("tensor {name}: {e}")))?
        } else {
            weight
        };
        let rounded = dtype.unwrap_or(weight.dtype());
        let merged = adapters.merge_tensor(name, &weight, rounded).map_err(|e| fail(format!("tensor {name}: {e}")))?;
        let weight = match merged {
            Some((merged, of_this)) => {
                report.tensors.push(of_this);
                merged
            }
            None => weight.to_dtype(rounded).map_err(|e| fail(format!("tensor {name}: {e}")))?,
        };
        type_name(weight.dtype()).ok_or_else(|| fail(format!("tensor {name} is {}", weight.dtype())))?;
        let weight = stored(&spec, weight).map_err(|e| fail(format!("tensor {name}: {e}")))?;
        writer.push(name, &weight)?;
    }
    finish(from, &config, files)?;
    if let Some(dtype) = dtype {
        let word = type_name(dtype).ok_or_else(|| fail(format!("nothing is merged into {dtype}")))?;
        // Under the new name and the old one, whichever the file has.
        let keys: Vec<&str> = ["dtype", "torch_dtype"].into_iter().filter(|key| json.get(key).is_some()).collect();
        for key in if keys.is_empty() { vec!["torch_dtype"] } else { keys } {
            json[key] = word.into();
        }
    }
    writer.file(CONFIG_FILE, &serde_json::to_vec_pretty(&json).expect("a value"))?;
    write_companions(&companions, &writer)?;
    writer.finish()?;
    Ok(report)
}
