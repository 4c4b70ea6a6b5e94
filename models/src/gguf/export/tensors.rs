//! The tensors of a model under their names in GGUF files, in the types and the order of rows that belong there.

use super::ExportType;
use crate::decoder::layout::{TensorKind, TensorSpec};
use crate::decoder::{DecoderConfig, directory};
use crate::gguf::names::stem;
use crate::gguf::write::{GgufWriter, Planned};
use crate::gguf::{Architecture, TensorType};
use crate::weights::{ModelFiles, WeightsError};
use half::{bf16, f16};
use hankel_core::{CpuStorage, Tensor};
use rayon::prelude::*;
use std::ops::Range;

/// Elements that are converted at a time, if a head has no more.
const PIECE: usize = 4 << 20;

/// What went wrong with a tensor.
pub(super) enum Fault {
    /// It cannot be read or written.
    Weights(WeightsError),
    /// It cannot be stored in its type.
    Value(String),
}

impl From<WeightsError> for Fault {
    fn from(error: WeightsError) -> Self {
        Fault::Weights(error)
    }
}

impl From<hankel_core::Error> for Fault {
    fn from(error: hankel_core::Error) -> Self {
        Fault::Value(error.to_string())
    }
}

/// Where a tensor comes from.
pub(super) enum Source<'a> {
    /// From the model, with rows of so wide heads to be interleaved.
    Model { spec: TensorSpec, interleaved: Option<usize> },
    /// Settings of the model.
    Own { name: &'a str, values: &'a [f32] },
}

impl Source<'_> {
    pub(super) fn name(&self) -> &str {
        match self {
            Source::Model { spec, .. } => &spec.name,
            Source::Own { name, .. } => name,
        }
    }
}

/// All tensors of the file, in its order, and where each comes from.
pub(super) fn plan<'a>(
    config: &DecoderConfig,
    architecture: &Architecture,
    dtype: ExportType,
    own: &'a [(&'a str, Vec<f32>)],
) -> (Vec<Planned>, Vec<Source<'a>>) {
    let (mut planned, mut sources) = (Vec::new(), Vec::new());
    let mut add = |name: String, spec: TensorSpec, interleaved: Option<usize>| {
        let dtype = type_of(&name, &spec, dtype);
        planned.push(Planned { name, shape: spec.shape.clone(), dtype });
        sources.push(Source::Model { spec, interleaved });
    };
    for (name, spec) in ["token_embd.weight", "position_embd.weight"].into_iter().zip(config.tables()) {
        add(name.to_owned(), spec, None);
    }
    let modules = config.modules();
    for layer in 0..config.layers {
        for module in &modules {
            let heads = architecture.interleaves(module.slot).then_some(config.head_dim);
            for spec in config.tensors_of(layer, module) {
                let suffix = spec.name.rsplit('.').next().unwrap_or_default();
                add(format!("blk.{layer}.{}.{suffix}", stem(module.slot, config.family)), spec, heads);
            }
        }
    }
    for (name, spec) in ["output_norm.weight", "output_norm.bias"].into_iter().zip(config.last_norm()) {
        add(name.to_owned(), spec, None);
    }
    if !config.tied_embeddings {
        add("output.weight".to_owned(), config.head_tensor(), None);
    }
    for (name, values) in own {
        planned.push(Planned { name: (*name).to_owned(), shape: vec![values.len()], dtype: TensorType::F32 });
        sources.push(Source::Own { name, values });
    }
    (planned, sources)
}

/// The type that a tensor gets.
fn type_of(name: &str, spec: &TensorSpec, dtype: ExportType) -> TensorType {
    let named = |name| TensorType::named(name).expect("a type that there is");
    let wanted = match spec.kind {
        TensorKind::Projection => named(dtype.name),
        TensorKind::Embedding if name.starts_with("position_embd") => TensorType::F32,
        TensorKind::Embedding => named(dtype.tables),
        TensorKind::Gain | TensorKind::GainBelowOne | TensorKind::Bias => TensorType::F32,
    };
    let width = *spec.shape.last().expect("a tensor has a dimension");
    // Where rows are not whole blocks of 256, they may be of 32.
    let mut candidates = [wanted, named("q5_0")].into_iter();
    candidates.find(|candidate| width.is_multiple_of(candidate.block())).unwrap_or(TensorType::F16)
}

/// Writes the tensor that is due.
pub(super) fn write(
    writer: &mut GgufWriter,
    planned: &Planned,
    source: &Source,
    files: &mut ModelFiles,
) -> Result<(), Fault> {
    let (spec, interleaved) = match source {
        Source::Own { values, .. } => return Ok(writer.push(bytemuck::cast_slice(values))?),
        Source::Model { spec, interleaved } => (spec, *interleaved),
    };
    let tensor = directory::take(files, spec)?;
    let width = *planned.shape.last().expect("a tensor has a dimension");
    // A vector is a column: its rows have an element each.
    let (rows, width) = if planned.shape.len() == 1 { (width, 1) } else { (tensor.elements() / width, width) };
    let step = interleaved.unwrap_or(1);
    let piece = (PIECE / width).max(1).next_multiple_of(step);
    for first in (0..rows).step_by(piece) {
        let range = first..(first + piece).min(rows);
        let mut bytes = match same_blocks(&tensor, planned.dtype, width, &range) {
            Some(bytes) => bytes.to_vec(),
            None => encode(&tensor, spec, planned.dtype, width, range.start * width..range.end * width)?,
        };
        if let Some(head) = interleaved {
            bytes = interleave(&bytes, range.len(), head);
        }
        writer.push(&bytes)?;
    }
    Ok(())
}

/// The blocks of some rows, where the tensor is stored in the wanted format already.
fn same_blocks<'a>(tensor: &'a Tensor, dtype: TensorType, width: usize, rows: &Range<usize>) -> Option<&'a [u8]> {
    let matrix = tensor.blocks()?;
    let TensorType::Blocks(format) = dtype else { return None };
    let row = format.bytes_of(width).filter(|_| matrix.format() == format)?;
    Some(&matrix.bytes()[rows.start * row..rows.end * row])
}

/// Some elements of a tensor in the type of the file.
fn encode(
    tensor: &Tensor,
    spec: &TensorSpec,
    dtype: TensorType,
    width: usize,
    range: Range<usize>,
) -> Result<Vec<u8>, Fault> {
    let mut values = values(tensor, range)?;
    if spec.kind == TensorKind::GainBelowOne {
        values.iter_mut().for_each(|x| *x += 1.0);
    }
    match dtype {
        TensorType::F32 => Ok(bytemuck::cast_slice(&values).to_vec()),
        TensorType::F16 => {
            let halves: Vec<f16> = values.par_iter().map(|&x| f16::from_f32(x)).collect();
            match halves.iter().position(|x| !x.is_finite()) {
                Some(at) => {
                    Err(Fault::Value(format!("it holds {}, beyond what f16 can: choose --type bf16", values[at])))
                }
                None => Ok(bytemuck::cast_slice(&halves).to_vec()),
            }
        }
        TensorType::Bf16 => {
            let rounded: Vec<bf16> = values.par_iter().map(|&x| bf16::from_f32(x)).collect();
            Ok(bytemuck::cast_slice(&rounded).to_vec())
        }
        TensorType::Blocks(format) => {
            let row = format.bytes_of(width).expect("rows of whole blocks");
            let mut bytes = vec![0; values.len() / width * row];
            let rows = values.par_chunks(width).zip(bytes.par_chunks_mut(row));
            rows.try_for_each(|(values, bytes)| format.encode(values, bytes))?;
            let mut decoded = vec![0.0; width];
            for row in bytes.chunks(row) {
                format.decode(row, &mut decoded);
                if decoded.iter().any(|x| !x.is_finite()) {
                    return Err(Fault::Value(format!(
                        "its values are beyond what {dtype} can hold: choose --type bf16"
                    )));
                }
            }
            Ok(bytes)
        }
    }
}

/// Some elements of a tensor.
fn values(tensor: &Tensor, range: Range<usize>) -> Result<Vec<f32>, Fault> {
    let mut out = vec![0.0; range.len()];
    match tensor.cpu_storage("gguf")? {
        CpuStorage::F32(data) => out.copy_from_slice(&data[range]),
        CpuStorage::F16(data) => out.iter_mut().zip(&data[range]).for_each(|(out, x)| *out = x.to_f32()),
        CpuStorage::BF16(data) => out.iter_mut().zip(&data[range]).for_each(|(out, x)| *out = x.to_f32()),
        CpuStorage::Blocks(matrix) => matrix.decode(range.start, &mut out),
        CpuStorage::Nf4(matrix) => matrix.decode(range, &mut out),
        CpuStorage::F64(_) | CpuStorage::U8(_) | CpuStorage::U32(_) => {
            return Err(Fault::Value(format!("it is stored as {}", tensor.dtype())));
        }
    }
    Ok(out)
}

/// Puts `rows` rows, `head` to a head, in the order in which row `i` of the first half of a head is followed by row `i` of
/// the second. Rows are copied whole, in whatever they are stored.
pub(super) fn interleave(bytes: &[u8], rows: usize, head: usize) -> Vec<u8> {
    let row = bytes.len() / rows;
    let mut out = vec![0; bytes.len()];
    for (from, to) in bytes.chunks_exact(head * row).zip(out.chunks_exact_mut(head * row)) {
        for (k, to) in to.chunks_exact_mut(row).enumerate() {
            let (i, j) = (k / 2, k % 2);
            to.copy_from_slice(&from[(j * (head / 2) + i) * row..][..row]);
        }
    }
    out
}
