//! Random models: in memory for tests, and streamed to disk at any size.

use super::config::{CONFIG_FILE, DecoderConfig};
use super::directory::{SHARD, stored};
use super::layout::{TensorKind, TensorSpec};
use super::load::Source;
use crate::weights::{Result, ShardWriter, WeightsError};
use half::bf16;
use hankel_core::{Tensor, parallel};
use hankel_io::Existing;
use hankel_io::memory::available;
use serde_json::{Map, Value};
use std::f32::consts::TAU;
use std::path::Path;

/// Normal values of standard deviation `std`, drawn under the tensor's name; gains 1, biases 0.
pub(super) struct Random {
    pub std: f64,
    pub seed: u64,
}

impl Random {
    /// The element type's bytes of a matrix, `convert` giving those of each element.
    fn draw<E: Copy + Send + Default>(&self, name: &str, len: usize, convert: impl Fn(f32) -> E + Sync) -> Vec<E> {
        let random = hankel_core::Random::new(self.seed, name, 0);
        let std = self.std as f32;
        let mut out = vec![E::default(); len];
        // Four values of every block of random words: Box-Muller in single precision, for billions of them.
        parallel::for_row_blocks(&mut out, 1, 1 << 16, |first, piece| {
            for (i, four) in piece.chunks_mut(4).enumerate() {
                let words = random.block((first / 4 + i) as u64);
                for (pair, words) in four.chunks_mut(2).zip(words.chunks_exact(2)) {
                    // In (0, 1]: the logarithm is finite.
                    let unit = ((words[0] >> 8) as f32 + 1.0) * (1.0 / 16_777_216.0);
                    let radius = std * (-2.0 * unit.ln()).sqrt();
                    let (sin, cos) = ((words[1] >> 8) as f32 * (TAU / 16_777_216.0)).sin_cos();
                    for (out, value) in pair.iter_mut().zip([radius * cos, radius * sin]) {
                        *out = convert(value);
                    }
                }
            }
        });
        out
    }
}

impl Source for Random {
    type Error = hankel_core::Error;

    fn take(&mut self, spec: &TensorSpec) -> hankel_core::Result<Tensor> {
        let len = spec.shape.iter().product();
        let values = match start(spec.kind) {
            Some(value) => vec![value; len],
            None => self.draw(&spec.name, len, |x| x),
        };
        Tensor::from_vec(values, spec.shape.clone())
    }
}

/// What all elements of a tensor start at; `None` where they are drawn.
fn start(kind: TensorKind) -> Option<f32> {
    match kind {
        TensorKind::Gain => Some(1.0),
        TensorKind::GainBelowOne | TensorKind::Bias => Some(0.0),
        TensorKind::Embedding | TensorKind::Projection => None,
    }
}

/// Element type of a model's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InitType {
    /// 2 bytes, as Mistral-7B is published.
    #[default]
    Bf16,
    /// 4 bytes.
    F32,
}

impl InitType {
    /// The word in `config.json`.
    fn name(self) -> &'static str {
        if self == InitType::Bf16 { "bfloat16" } else { "float32" }
    }
}

/// Writes a model with random weights of any size to the directory `path`: `config.json` and shards of 512 MiB. Memory stays
/// below two shards and the largest tensor. The values are those of [`super::Decoder::new`], rounded to `kind`.
///
/// # Errors
/// When the sizes do not fit together, the directory exists, or cannot be written.
pub fn init_model(config: &DecoderConfig, seed: u64, kind: InitType, path: &Path) -> Result<()> {
    write(config, &config.to_json(kind.name()), seed, kind, path)
}

/// As [`init_model`], where `config` is that of `keys`, the object of a `config.json`: the ids of special tokens stay as
/// they are there. transformers takes its family's own for those that are left out, which a small vocabulary may not have.
///
/// # Errors
/// As [`init_model`].
pub fn init_model_of(
    keys: &Map<String, Value>,
    config: &DecoderConfig,
    seed: u64,
    kind: InitType,
    path: &Path,
) -> Result<()> {
    let mut json = config.to_json(kind.name());
    let written = json.as_object_mut().expect("an object");
    for key in ["bos_token_id", "eos_token_id", "pad_token_id"] {
        match keys.get(key) {
            Some(id) => written.insert(key.to_owned(), id.clone()),
            None => written.remove(key),
        };
    }
    write(config, &json, seed, kind, path)
}

fn write(config: &DecoderConfig, json: &Value, seed: u64, kind: InitType, path: &Path) -> Result<()> {
    config.check().map_err(|problem| WeightsError::content(path, problem))?;
    let tensors = config.tensors();
    let size = if kind == InitType::Bf16 { 2 } else { 4 };
    let largest = tensors.iter().map(|spec| spec.shape.iter().product::<usize>() as u64 * size).max().unwrap_or(0);
    // Nothing is begun that has no room.
    if let Some(memory) = available().filter(|memory| memory.bytes < largest) {
        let problem = format!(
            "its largest tensor takes {largest} bytes, and {} are available ({}): take smaller sizes",
            memory.bytes, memory.limit
        );
        return Err(WeightsError::content(path, problem));
    }
    let mut writer = ShardWriter::create(path, Existing::Refuse, SHARD)?;
    let random = Random { std: config.init_std, seed };
    for spec in tensors {
        let TensorSpec { name, shape, .. } = &spec;
        let len = shape.iter().product();
        let tensor = match (kind, start(spec.kind)) {
            (InitType::Bf16, Some(value)) => Tensor::from_vec(vec![bf16::from_f32(value); len], shape.clone()),
            (InitType::Bf16, None) => Tensor::from_vec(random.draw(name, len, bf16::from_f32), shape.clone()),
            (InitType::F32, Some(value)) => Tensor::from_vec(vec![value; len], shape.clone()),
            (InitType::F32, None) => Tensor::from_vec(random.draw(name, len, |x| x), shape.clone()),
        };
        let tensor = tensor.and_then(|tensor| stored(&spec, tensor));
        writer.push(name, &tensor.map_err(|e| WeightsError::content(path, format!("tensor {name}: {e}")))?)?;
    }
    let text = serde_json::to_vec_pretty(json).expect("numbers and words");
    writer.file(CONFIG_FILE, &text)?;
    writer.finish()
}
