//! Models and adapters as GGUF files, with names, layout and metadata as llama.cpp's converter writes them.
//!
//! A model is written from a directory or another GGUF file, tensor by tensor in bounded memory. What llama.cpp would
//! compute in another way is refused with the reason; a file that is written gives there what it gives here.
//!
//! Source: `convert_hf_to_gguf.py`, `convert_lora_to_gguf.py` and `src/llama-model.cpp` of llama.cpp.

mod adapter;
mod hyperparameters;
mod tensors;
mod vocabulary;

pub use adapter::export_adapter;

use super::tokenizer::NAME;
use super::write::{GgufWriter, Meta, Metadata, Planned};
use super::{Architecture, Gguf, is_gguf};
use crate::decoder::{DecoderConfig, directory};
use crate::weights::{Result, WeightsError};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// How the matrices of a file are stored.
///
/// Gains, biases and learned positions are always `f32`. In the types of 4 and 5 bits the embedding and the head are `q8_0`. A
/// matrix whose rows are not whole blocks is stored in the next larger type that fits: `q4_k` in `q5_0`, the others in `f16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportType {
    /// The word in commands: what projections are stored in.
    name: &'static str,
    /// `general.file_type`.
    number: u32,
    /// What the embedding and the head are stored in.
    tables: &'static str,
}

impl ExportType {
    /// 32-bit floats.
    pub const F32: Self = Self::new("f32", 0, "f32");
    /// 16-bit floats; an error where a value is beyond 65504.
    pub const F16: Self = Self::new("f16", 1, "f16");
    /// All types.
    pub const ALL: &[Self] = &[
        Self::F32,
        Self::F16,
        Self::new("bf16", 32, "bf16"),
        Self::new("q8_0", 7, "q8_0"),
        Self::new("q4_0", 2, "q8_0"),
        Self::new("q4_1", 3, "q8_0"),
        Self::new("q5_0", 8, "q8_0"),
        Self::new("q5_1", 9, "q8_0"),
        Self::new("q4_k", 14, "q8_0"),
    ];

    const fn new(name: &'static str, number: u32, tables: &'static str) -> Self {
        ExportType { name, number, tables }
    }

    /// The type of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.name == name)
    }

    /// The word in commands.
    pub fn name(self) -> &'static str {
        self.name
    }
}

impl fmt::Display for ExportType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportReport {
    /// `general.architecture`.
    pub architecture: &'static str,
    /// Number of tensors of each type.
    pub tensors: BTreeMap<String, usize>,
    /// Size of the file.
    pub bytes: u64,
    /// What the file cannot say, and what was done instead.
    pub notes: Vec<String>,
}

impl ExportReport {
    fn new(architecture: &'static str, planned: &[Planned], bytes: u64, notes: Vec<String>) -> Self {
        let mut tensors = BTreeMap::new();
        for tensor in planned {
            *tensors.entry(tensor.dtype.to_string()).or_insert(0) += 1;
        }
        ExportReport { architecture, tensors, bytes, notes }
    }
}

/// Writes the model `from`, a directory or a GGUF file, to the new file `to`.
///
/// # Errors
/// When `from` cannot be read, llama.cpp would compute something else from the file, the tokenizer cannot be written so
/// that it gives the same ids, a value is out of the type's range, or `to` exists; nothing is left at `to` then.
pub fn export_model(from: &Path, to: &Path, dtype: ExportType) -> Result<ExportReport> {
    let config = DecoderConfig::load(from)?;
    let fail = |reason: String| WeightsError::content(from, reason);
    let architecture = Architecture::of(&config).map_err(&fail)?;
    let mut notes = Vec::new();
    let mut metadata: Metadata = general(from, architecture.name, dtype)?;
    metadata.extend(hyperparameters::of(&config, architecture, &mut notes).map_err(&fail)?);
    vocabulary::add(from, architecture.label, config.vocabulary, to, &mut metadata, &mut notes)?;
    metadata.push(("general.quantization_version".to_owned(), Meta::U32(2)));
    let own = hyperparameters::own_tensors(&config, architecture).map_err(&fail)?;
    let (planned, sources) = tensors::plan(&config, architecture, dtype, &own);
    let mut files = directory::open(from, &config)?;
    let mut writer = GgufWriter::create(to, &metadata, &planned)?;
    for (planned, source) in planned.iter().zip(&sources) {
        tensors::write(&mut writer, planned, source, &mut files).map_err(|e| match e {
            tensors::Fault::Weights(error) => error,
            tensors::Fault::Value(reason) => fail(format!("tensor {}: {reason}", source.name())),
        })?;
    }
    directory::finish(from, &config, files)?;
    let bytes = writer.finish()?;
    Ok(ExportReport::new(architecture.name, &planned, bytes, notes))
}

/// The keys that say what the file is; those of another GGUF file that say where a model comes from are kept.
fn general(from: &Path, architecture: &str, dtype: ExportType) -> Result<Metadata> {
    /// What describes this file and not the model.
    const OWN: [&str; 5] = ["architecture", "type", "file_type", "quantization_version", "alignment"];
    let text = |key: &str, value: &str| (key.to_owned(), Meta::Text(value.to_owned()));
    let mut metadata = vec![text("general.architecture", architecture), text("general.type", "model")];
    if is_gguf(from) {
        let file = Gguf::open(from)?;
        let kept = file.metadata().keys().filter(|key| {
            key.strip_prefix("general.").is_some_and(|rest| !OWN.contains(&rest) && !rest.starts_with("quantized_by"))
        });
        metadata.extend(kept.map(|key| (key.clone(), Meta::Raw(file.raw(key).to_vec()))));
    } else if let Some(name) = name_of(from) {
        metadata.push(text(NAME, &name));
    }
    metadata.push(("general.file_type".to_owned(), Meta::U32(dtype.number)));
    Ok(metadata)
}

/// The last part of a path, links and `.` resolved.
fn name_of(path: &Path) -> Option<String> {
    let whole = path.canonicalize().ok()?;
    Some(whole.file_name()?.to_string_lossy().into_owned())
}
