//! What reading and rewriting a model directory have in common, whatever becomes of the weights.

use super::config::{CONFIG_FILE, DecoderConfig};
use super::layout::TensorSpec;
use crate::Tokenizer;
use crate::chat::load::TOOLS_FILE;
use crate::gguf::{self, GgufModel};
use crate::weights::{ModelFiles, Result, ShardWriter, WeightsError};
use hankel_core::{CpuStorage, DType, Element, Tensor};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::Path;

/// Bytes of a shard: two are held in memory at once.
pub(super) const SHARD: usize = 512 << 20;

/// Files beside the weights that stay as they are.
const COMPANIONS: [&str; 10] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    TOOLS_FILE,
];

/// `config.json` of the directory, or what a GGUF file says in its spelling; all its fields, but those that name Python files, which are
/// not copied.
pub(super) fn read_config(directory: &Path) -> Result<Value> {
    if gguf::is_gguf(directory) {
        return Ok(GgufModel::open(directory)?.config().clone());
    }
    let path = directory.join(CONFIG_FILE);
    let text = hankel_io::input::read(&path)?;
    let mut config: Value = serde_json::from_slice(&text).map_err(|e| WeightsError::content(&path, e.to_string()))?;
    if let Some(fields) = config.as_object_mut() {
        fields.remove("auto_map");
    }
    Ok(config)
}

/// Fails where a model's files hold more than was taken: tensors that it does not have, or a head of its own where the embedding is to
/// be one.
pub(crate) fn finish(directory: &Path, config: &DecoderConfig, mut files: ModelFiles) -> Result<()> {
    let head = config.head_tensor();
    if config.tied_embeddings && files.contains(&head.name) {
        let tokens = TensorSpec { name: format!("{}.weight", config.family.names.embedding), ..config.head_tensor() };
        let (embedding, own) = (take(&mut open(directory, config)?, &tokens)?, take(&mut files, &head)?);
        let same = same_values(&own, &embedding).map_err(|e| WeightsError::content(directory, e.to_string()))?;
        if !same {
            let reason = format!("{} differs from {}, yet tie_word_embeddings is true", head.name, tokens.name);
            return Err(WeightsError::content(directory, reason));
        }
    }
    files.finish()
}

/// Whether two tensors of one shape hold the same numbers. Nothing is copied where their types are the same.
fn same_values(x: &Tensor, y: &Tensor) -> hankel_core::Result<bool> {
    /// Elements that are widened at a time: 2 MiB of each tensor.
    const PIECE: usize = 1 << 18;
    fn same<T: Element + PartialEq>(x: &[T], y: &[T]) -> bool {
        // Bytes are compared faster; zeros of either sign are one number.
        bytemuck::cast_slice::<T, u8>(x) == bytemuck::cast_slice::<T, u8>(y) || x == y
    }
    let elements = x.elements();
    match (x.cpu_storage("compare")?, y.cpu_storage("compare")?) {
        (CpuStorage::F32(x), CpuStorage::F32(y)) => Ok(same(x, y)),
        (CpuStorage::BF16(x), CpuStorage::BF16(y)) => Ok(same(x, y)),
        (CpuStorage::F16(x), CpuStorage::F16(y)) => Ok(same(x, y)),
        (x, y) => {
            for first in (0..elements).step_by(PIECE) {
                let piece = first..elements.min(first + PIECE);
                if widened(x, piece.clone())? != widened(y, piece)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

/// The elements `range` of a weight as doubles.
fn widened(storage: &CpuStorage, range: Range<usize>) -> hankel_core::Result<Vec<f64>> {
    match storage {
        CpuStorage::F32(x) => Ok(x[range].iter().map(|&x| f64::from(x)).collect()),
        CpuStorage::BF16(x) => Ok(x[range].iter().map(|x| x.to_f64()).collect()),
        CpuStorage::F16(x) => Ok(x[range].iter().map(|x| x.to_f64()).collect()),
        CpuStorage::Nf4(x) => {
            let mut out = vec![0.0_f64; range.len()];
            x.decode(range, &mut out);
            Ok(out)
        }
        _ => Err(hankel_core::Error::invalid("compare", "a weight is neither floats nor 4-bit floats")),
    }
}

/// A file beside the weights: its name and content.
pub(super) type Companion = (&'static str, Vec<u8>);

/// Why a directory that is made of the model `from` will have no tokenizer: that of a GGUF file may be missing, or of a kind
/// that is not known here. `None` where it will have what is there.
///
/// # Errors
/// When a GGUF file cannot be read.
pub fn tokenizer_left_out(from: &Path) -> Result<Option<String>> {
    if !gguf::is_gguf(from) {
        return Ok(None);
    }
    let model = GgufModel::open(from)?;
    Ok(Tokenizer::of_gguf(model.file()).err().map(|e| format!("the directory has no tokenizer: {e}")))
}

/// The files of the tokenizer and of generation that are there; those of a GGUF file are made from it, none where its
/// tokenizer cannot be built. To be read before any tensor, so that no work is lost to one that cannot be.
pub(super) fn companions(from: &Path) -> Result<Vec<Companion>> {
    if gguf::is_gguf(from) {
        let model = GgufModel::open(from)?;
        let Ok(tokenizer) = Tokenizer::of_gguf(model.file()) else { return Ok(Vec::new()) };
        let ends = tokenizer.ends();
        let generation = json!({
            "bos_token_id": tokenizer.bos(),
            // All at which generation stops: `eos_token` and config.json name one.
            "eos_token_id": (!ends.is_empty()).then_some(ends),
            "pad_token_id": model.config().get("pad_token_id"),
        });
        let mut config = json!({
            // Without it, transformers goes by `model_type` and may put other tokens around a text than tokenizer.json says.
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": model.chat_template()?,
        });
        for (name, token) in tokenizer.special_tokens() {
            config[name] = token.into();
        }
        let pretty = |value: &Value| serde_json::to_vec_pretty(value).expect("a value");
        return Ok(vec![
            ("tokenizer.json", tokenizer.to_json()?.into_bytes()),
            ("tokenizer_config.json", pretty(&config)),
            ("generation_config.json", pretty(&generation)),
        ]);
    }
    let read = |name: &'static str| -> Result<Companion> { Ok((name, hankel_io::input::read(&from.join(name))?)) };
    COMPANIONS.into_iter().filter(|name| from.join(name).is_file()).map(read).collect()
}

/// Writes `companions` beside the weights.
pub(super) fn write_companions(companions: &[Companion], writer: &ShardWriter) -> Result<()> {
    companions.iter().try_for_each(|(name, content)| writer.file(name, content))
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

/// The tensors of a directory, without those that carry nothing.
pub(crate) fn open(directory: &Path, config: &DecoderConfig) -> Result<ModelFiles> {
    let mut files = ModelFiles::open(directory)?;
    let names = &config.family.names;
    let embedding = format!("{}.weight", names.embedding);
    // A checkpoint of the model without its head.
    if !files.contains(&embedding) && embedding.strip_prefix(names.prefix).is_some_and(|bare| files.contains(bare)) {
        files.add_prefix(names.prefix, names.head);
    }
    config.family.ignored.iter().for_each(|suffix| files.ignore(suffix));
    Ok(files)
}

/// Takes a tensor as it is stored, in the shape of memory. In 4 bits all matrices have that shape in files, too, as those that
/// transformers writes with bitsandbytes.
pub(crate) fn take(files: &mut ModelFiles, spec: &TensorSpec) -> Result<Tensor> {
    if !spec.transposed || files.is_quantized(&spec.name) {
        return files.take(&spec.name, &spec.shape);
    }
    let tensor = files.take(&spec.name, &spec.stored_shape())?;
    transposed(&tensor).map_err(|e| WeightsError::content(&spec.name, e.to_string()))
}

/// A tensor in the shape of files.
pub(super) fn stored(spec: &TensorSpec, tensor: Tensor) -> hankel_core::Result<Tensor> {
    if spec.transposed { transposed(&tensor) } else { Ok(tensor) }
}

fn transposed(tensor: &Tensor) -> hankel_core::Result<Tensor> {
    fn columns<T: Element>(x: &[T], [rows, width]: [usize; 2]) -> hankel_core::Result<Tensor> {
        let out = (0..width).flat_map(|j| (0..rows).map(move |i| x[i * width + j])).collect();
        Tensor::from_vec(out, [width, rows])
    }
    let &[rows, width] = &tensor.shape()[..] else { return Ok(tensor.clone()) };
    match tensor.cpu_storage("transpose")? {
        CpuStorage::F64(x) => columns(x, [rows, width]),
        CpuStorage::F32(x) => columns(x, [rows, width]),
        CpuStorage::BF16(x) => columns(x, [rows, width]),
        CpuStorage::F16(x) => columns(x, [rows, width]),
        _ => {
            Err(hankel_core::Error::invalid("transpose", format!("a matrix in {} is stored as it is", tensor.dtype())))
        }
    }
}
