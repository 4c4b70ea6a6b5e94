//! The weights of a model: directories as Hugging Face stores them (`model.safetensors`, or shards with
//! `model.safetensors.index.json`), and GGUF files. Where a directory has both, `model.safetensors` counts, as in
//! transformers.
//!
//! Files are memory-mapped, and tensors borrow from the map: a model is ready as soon as its headers are read, and what is
//! not used is never loaded. Reading is strict. A tensor that is missing, superfluous, of another shape or type, or present
//! twice is named; the index may name files in the directory itself and nowhere else.

use super::mapped::{self, Done, Entry, Stored};
use super::quantized;
use crate::gguf::{self, GgufModel};
use half::{bf16, f16};
use hankel_core::{BlockFormat, BlockMatrix, Buffer, Element, Tensor};
use hankel_files::{Result, WeightsError};
use rayon::prelude::*;
use safetensors::Dtype;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The only file of an unsharded model.
pub const WEIGHTS_FILE: &str = "model.safetensors";
/// What says which tensor is in which shard.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// The tensors of a model that have not been taken yet.
pub struct ModelFiles {
    directory: PathBuf,
    entries: BTreeMap<String, Entry>,
    /// What has been read and copied.
    done: Vec<Done>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl ModelFiles {
    /// Maps the files of a model directory, or a GGUF file, whose tensors get the names of a model directory.
    ///
    /// # Errors
    /// When a file is missing, cut off or malformed, when the index names a file outside the directory or does not agree
    /// with the shards, or when a tensor is in two shards.
    pub fn open(directory: &Path) -> Result<Self> {
        if gguf::is_gguf(directory) {
            return GgufModel::open(directory)?.weights();
        }
        let (single, index) = (directory.join(WEIGHTS_FILE), directory.join(INDEX_FILE));
        let entries = match (single.exists(), index.exists()) {
            // An index beside it is left over from before.
            (true, _) => mapped::map(&single)?.into_iter().collect(),
            (false, true) => open_shards(directory, &index)?,
            (false, false) => {
                let names = std::fs::read_dir(directory).into_iter().flatten().flatten();
                let names: Vec<String> = names.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
                let has = |part: &str, end: &str| names.iter().any(|name| name.contains(part) && name.ends_with(end));
                let what = match (has("-of-", ".safetensors"), has("", ".bin")) {
                    (true, _) => "the index of its shards is missing",
                    (false, true) => "files of PyTorch (.bin) are not read, convert them to safetensors",
                    (false, false) => "this is not a model directory",
                };
                let reason = format!("there is neither {WEIGHTS_FILE} nor {INDEX_FILE}: {what}");
                return Err(WeightsError::content(directory, reason));
            }
        };
        Ok(ModelFiles { directory: directory.to_path_buf(), entries, done: Vec::new() })
    }

    /// The tensors of the file `path`, by name, behind a header that has been read.
    pub(crate) fn of_entries(path: &Path, entries: BTreeMap<String, Entry>, header: Done) -> Self {
        ModelFiles { directory: path.to_path_buf(), entries, done: vec![header] }
    }

    /// Names of the tensors that are left.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Sizes of the tensor `name`, if it is left.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.entries.get(name).map(|entry| &entry.shape[..])
    }

    /// Whether `name` is left.
    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Takes the weight `name` of shape `shape` as it is stored: `f32`, `f16`, `bf16`, 4-bit floats in the layout of
    /// bitsandbytes, or blocks. Nothing is copied that starts where its elements may start and has its rows in order.
    ///
    /// # Errors
    /// When it is missing, of another shape or type, or holds a value that is not finite.
    pub fn take(&mut self, name: &str, shape: &[usize]) -> Result<Tensor> {
        if let Some(quantized) = quantized::take(self, name, shape)? {
            return Ok(quantized);
        }
        let entry = self.take_entry(name)?;
        let fail = |reason: String| Err(WeightsError::content(&*entry.path, format!("tensor {name} {reason}")));
        if entry.shape != shape {
            return fail(format!("has shape {:?}, expected {shape:?}", entry.shape));
        }
        entry.read_ahead();
        let (tensor, bad) = match entry.stored {
            Stored::Plain(Dtype::F32) => {
                (tensor::<f32>(&entry), position(entry.bytes(), |b: [u8; 4]| b[3] & 0x7f == 0x7f && b[2] >= 0x80))
            }
            Stored::Plain(Dtype::BF16) => {
                (tensor::<bf16>(&entry), position(entry.bytes(), |b: [u8; 2]| b[1] & 0x7f == 0x7f && b[0] >= 0x80))
            }
            Stored::Plain(Dtype::F16) => {
                (tensor::<f16>(&entry), position(entry.bytes(), |b: [u8; 2]| b[1] & 0x7c == 0x7c))
            }
            Stored::Blocks(format) => (blocks(&entry, format), None),
            Stored::Plain(other) => {
                return fail(format!("has element type {other:?}, expected F32, F16 or BF16"));
            }
        };
        if entry.interleaved.is_some() {
            // Queries and keys, copied, would be in memory twice: 8 MB more beside the 98 of a SmolLM2. Those of layers before may
            // have been mapped again with their neighbours.
            self.done.push(Done::new(entry.map.clone(), entry.range.clone()));
            self.done.iter().for_each(Done::forget);
        }
        if let Some(flat) = bad {
            return fail(format!("holds a value that is not finite at element {flat}"));
        }
        match tensor {
            Ok(tensor) if !tensor.is_finite() && tensor.blocks().is_some() => {
                fail("has a block whose scale is not finite".to_owned())
            }
            Ok(tensor) => Ok(tensor),
            Err(e) => fail(e.to_string()),
        }
    }

    pub(super) fn take_entry(&mut self, name: &str) -> Result<Entry> {
        self.entries
            .remove(name)
            .ok_or_else(|| WeightsError::content(&self.directory, format!("tensor {name} is missing")))
    }

    /// Drops tensors that carry nothing, by the end of their names.
    pub fn ignore(&mut self, suffix: &str) {
        self.entries.retain(|name, _| !name.ends_with(suffix));
    }

    /// Puts `prefix` before every name but that of the module `head`.
    pub(crate) fn add_prefix(&mut self, prefix: &str, head: &str) {
        let is_head = |name: &str| name.strip_prefix(head).is_some_and(|rest| rest.starts_with('.'));
        let named = |name: String| if is_head(&name) { name } else { format!("{prefix}{name}") };
        let entries = std::mem::take(&mut self.entries);
        self.entries = entries.into_iter().map(|(name, entry)| (named(name), entry)).collect();
    }

    /// Fails if a tensor was not taken. Gives back the memory of what was copied.
    ///
    /// # Errors
    /// Names it, its file, and how many more there are.
    pub fn finish(self) -> Result<()> {
        self.done.iter().for_each(Done::forget);
        let Some((name, entry)) = self.entries.first_key_value() else { return Ok(()) };
        let more = match self.entries.len() - 1 {
            0 => String::new(),
            n => format!(" (nor do {n} more)"),
        };
        Err(WeightsError::content(&*entry.path, format!("tensor {name} does not belong to this model{more}")))
    }
}

/// The elements of an entry: borrowed, or copied where the file puts them at an address they cannot have.
fn tensor<T: Element>(entry: &Entry) -> hankel_core::Result<Tensor> {
    let buffer = match entry.interleaved {
        None => Buffer::<T>::borrowed(entry.map.clone(), entry.range.clone()).ok(),
        Some(_) => None,
    };
    Tensor::from_buffer(buffer.unwrap_or_else(|| elements(entry).into()), entry.shape.clone())
}

/// A matrix of blocks, borrowed where its rows are in order.
fn blocks(entry: &Entry, format: &'static dyn BlockFormat) -> hankel_core::Result<Tensor> {
    let bytes = match entry.interleaved {
        None => borrow(entry)?,
        Some(_) => elements::<u8>(entry).into(),
    };
    Tensor::from_blocks(BlockMatrix::new(format, bytes, entry.shape.iter().product())?, entry.shape.clone())
}

/// Elements of an entry, copied, with rows in order.
pub(super) fn elements<T: Element>(entry: &Entry) -> Vec<T> {
    let bytes = entry.bytes();
    let mut elements = vec![T::zeroed(); bytes.len() / size_of::<T>()];
    let out = bytemuck::cast_slice_mut::<T, u8>(&mut elements);
    match entry.interleaved {
        None => out.copy_from_slice(bytes),
        Some(head) => deinterleave(bytes, entry.shape[0], head, out),
    }
    elements
}

/// Reorders `rows` rows, `head` to a head: row `2 i + j` of a head becomes its row `j head / 2 + i`, so that the first half of a head comes
/// before the second. Rows are copied whole, in whatever type they are stored.
fn deinterleave(bytes: &[u8], rows: usize, head: usize, out: &mut [u8]) {
    let row = bytes.len() / rows;
    let heads = bytes.chunks_exact(head * row).zip(out.chunks_exact_mut(head * row));
    for (from, to) in heads {
        for (k, to) in to.chunks_exact_mut(row).enumerate() {
            let (j, i) = (k / (head / 2), k % (head / 2));
            to.copy_from_slice(&from[(2 * i + j) * row..][..row]);
        }
    }
}

/// Bytes of an entry, borrowed.
pub(super) fn borrow(entry: &Entry) -> hankel_core::Result<Buffer<u8>> {
    Buffer::borrowed(entry.map.clone(), entry.range.clone())
}

/// Position of the first element of `N` bytes for which `is_bad`.
fn position<const N: usize>(bytes: &[u8], is_bad: impl Fn([u8; N]) -> bool + Sync) -> Option<usize> {
    const PIECE: usize = 1 << 20;
    bytes.par_chunks(PIECE).enumerate().find_map_first(|(i, piece)| {
        let elements = piece.as_chunks::<N>().0;
        // Looking at all of them without leaving early lets the compiler use vectors.
        if elements.iter().fold(false, |bad, &e| bad | is_bad(e)) {
            elements.iter().position(|&e| is_bad(e)).map(|at| i * PIECE / N + at)
        } else {
            None
        }
    })
}

fn open_shards(directory: &Path, index_path: &Path) -> Result<BTreeMap<String, Entry>> {
    let fail = |reason: String| WeightsError::content(index_path, reason);
    let bytes = hankel_io::input::read(index_path)?;
    let index: Index = serde_json::from_slice(&bytes).map_err(|e| fail(e.to_string()))?;
    let mut shards: Vec<&String> = index.weight_map.values().collect();
    shards.sort();
    shards.dedup();
    for shard in &shards {
        hankel_io::name::component(&format!("the shard in {}", index_path.display()), shard)?;
    }
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    for shard in shards {
        for (name, entry) in mapped::map(&directory.join(shard))? {
            match index.weight_map.get(&name) {
                Some(expected) if expected == shard => {}
                Some(expected) => return Err(fail(format!("tensor {name} is in {shard}, the index says {expected}"))),
                None => return Err(fail(format!("tensor {name} of {shard} is not in the index"))),
            }
            entries.insert(name, entry);
        }
    }
    match index.weight_map.iter().find(|(name, _)| !entries.contains_key(*name)) {
        Some((name, shard)) => Err(fail(format!("tensor {name} should be in {shard} and is not"))),
        None => Ok(entries),
    }
}
