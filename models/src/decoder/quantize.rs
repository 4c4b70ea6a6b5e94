//! Quantising a model directory, into the layout of bitsandbytes.

use super::config::{CONFIG_FILE, DecoderConfig};
use super::directory::{SHARD, companions, finish, open, read_config, take, type_name, write_companions};
use crate::weights::{Result, ShardWriter, WeightsError};
use hankel_io::Existing;
use hankel_ops::linear::nf4;
use serde_json::json;
use std::path::Path;

/// What quantising did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuantizeReport {
    /// Matrices quantised.
    pub matrices: usize,
    /// Bytes of their input.
    pub bytes_before: usize,
    /// Bytes of codes and scales.
    pub bytes_after: usize,
}

/// Quantises the projections of the model at `from` to 4-bit normal floats and writes the directory `to`; what is not
/// quantised is copied as it is, as are the files of the tokenizer and of generation. Memory stays below two shards of
/// 512 MiB and the largest tensor.
///
/// # Errors
/// When `from` cannot be read (see [`super::Decoder::load`]) or is quantised already, or `to` exists or cannot be written.
pub fn quantize_model(from: &Path, to: &Path, double: bool) -> Result<QuantizeReport> {
    let config = DecoderConfig::load(from)?;
    let mut json = read_config(from)?;
    if json.get("quantization_config").is_some_and(|value| !value.is_null()) {
        return Err(WeightsError::content(from.join(CONFIG_FILE), "the model is quantised already"));
    }
    let companions = companions(from)?;
    let mut files = open(from, &config)?;
    let mut writer = ShardWriter::create(to, Existing::Refuse, SHARD)?;
    let mut report = QuantizeReport { matrices: 0, bytes_before: 0, bytes_after: 0 };
    let mut dtype = "float32";
    for spec in config.tensors() {
        let name = &spec.name;
        let weight =
            if spec.is_quantized() { take(&mut files, &spec)? } else { files.take(name, &spec.stored_shape())? };
        let word = type_name(weight.dtype()).ok_or_else(|| {
            WeightsError::content(
                from,
                format!("tensor {name} is {}: the model is quantised already and is used as it is", weight.dtype()),
            )
        })?;
        if spec.is_quantized() {
            let quantized = nf4::quantize(&weight, double)
                .map_err(|e| WeightsError::content(from, format!("tensor {name}: {e}")))?;
            (report.matrices, dtype) = (report.matrices + 1, word);
            report.bytes_before += weight.bytes();
            report.bytes_after += quantized.bytes();
            writer.push(name, &quantized)?;
        } else {
            writer.push(name, &weight)?;
        }
    }
    finish(from, &config, files)?;
    json["quantization_config"] = json!({
        "quant_method": "bitsandbytes",
        "_load_in_4bit": true,
        "_load_in_8bit": false,
        "load_in_4bit": true,
        "load_in_8bit": false,
        "bnb_4bit_compute_dtype": dtype,
        "bnb_4bit_quant_storage": "uint8",
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": double,
    });
    writer.file(CONFIG_FILE, &serde_json::to_vec_pretty(&json).expect("a value"))?;
    write_companions(&companions, &writer)?;
    writer.finish()?;
    Ok(report)
}
