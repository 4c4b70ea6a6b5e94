//! GGUF files: the metadata, tokenizer and weights of a model in one file, as llama.cpp reads them.
//!
//! ```text
//! magic "GGUF" | version u32 | tensors u64 | keys u64 | keys with values | table of tensors | padding | tensors
//! ```
//!
//! Numbers are little-endian. The file is memory-mapped; arrays of the metadata and tensors stay in it. Every length is
//! checked against the bytes that are there before anything is done with it.
//!
//! Source: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod architecture;
mod cursor;
mod export;
mod metadata;
mod model;
mod names;
mod pre_tokenizer;
mod read;
pub(crate) mod tokenizer;
mod types;
mod value;
mod write;

pub(crate) use architecture::{Architecture, Divisors, check_width};
pub use export::{ExportReport, ExportType, export_adapter, export_model};
pub use model::GgufModel;
pub use read::TensorInfo;
pub use types::TensorType;
pub use value::{Array, Value};

use crate::weights::mapped::{Map, map_file};
use crate::weights::{Result, WeightsError};
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// How such a file begins.
const MAGIC: [u8; 4] = *b"GGUF";
/// End of the name of such a file.
pub const EXTENSION: &str = "gguf";

/// Whether `path` names a GGUF file, by the end of its name or, where it has none, by how the file begins: caches of models give files
/// names of their own.
pub fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(EXTENSION)) || begins_as_gguf(path)
}

fn begins_as_gguf(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    let read = path.is_file() && hankel_io::input::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok());
    read && magic == MAGIC
}

/// An open file.
pub struct Gguf {
    path: Arc<Path>,
    map: Arc<Map>,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
    values: BTreeMap<String, Range<usize>>,
}

impl Gguf {
    /// Maps `path` and reads everything but the tensors themselves.
    ///
    /// # Errors
    /// When the file cannot be opened, is cut off, or describes something that is not there; says where in the file.
    pub fn open(path: &Path) -> Result<Self> {
        let map = map_file(path)?;
        let contents = read::read(map.as_ref()).map_err(|fault| WeightsError::Malformed {
            path: path.to_path_buf(),
            kind: "GGUF file",
            reason: fault.to_string(),
        })?;
        let read::Contents { metadata, tensors, values } = contents;
        Ok(Gguf { path: path.into(), map: Arc::new(map), metadata, tensors, values })
    }

    /// The metadata, by key.
    pub fn metadata(&self) -> &BTreeMap<String, Value> {
        &self.metadata
    }

    /// The tensors, by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// Type and value at `key` of the metadata as the file has them.
    ///
    /// # Panics
    /// When there is no such key.
    fn raw(&self, key: &str) -> &[u8] {
        &self.file()[self.values[key].clone()]
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of a tensor of this file.
    pub fn bytes(&self, tensor: &TensorInfo) -> &[u8] {
        &self.file()[tensor.range.clone()]
    }

    /// All bytes of the file.
    fn file(&self) -> &[u8] {
        (*self.map).as_ref()
    }

    fn fail(&self, reason: impl Into<String>) -> WeightsError {
        WeightsError::content(&*self.path, reason)
    }
}
