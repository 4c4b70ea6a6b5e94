//! Writing tensors to a safetensors file from where they are in memory.

use hankel_core::{CpuStorage, Device, Tensor};
use hankel_files::{Result, WeightsError};
use safetensors::{Dtype, SafeTensorError, View};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

/// An entry of a file.
pub(super) struct Part {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub content: Content,
}

/// The bytes of an entry.
pub(super) enum Content {
    /// The elements of a tensor, or the codes of a quantised one, where they are.
    Tensor(Tensor),
    /// Small things.
    Bytes(Vec<u8>),
}

impl Part {
    /// A tensor as it is, brought to main memory; of a quantised one, its codes.
    pub fn of(name: &str, tensor: &Tensor) -> Result<Self> {
        let fail = |e: hankel_core::Error| WeightsError::content(name, e.to_string());
        let tensor = tensor.to_device(Device::Cpu).map_err(fail)?;
        let dtype = match tensor.cpu_storage("safetensors").map_err(fail)? {
            CpuStorage::F32(_) => Dtype::F32,
            CpuStorage::F64(_) => Dtype::F64,
            CpuStorage::F16(_) => Dtype::F16,
            CpuStorage::BF16(_) => Dtype::BF16,
            CpuStorage::U8(_) | CpuStorage::Nf4(_) => Dtype::U8,
            CpuStorage::U32(_) => Dtype::U32,
            CpuStorage::Blocks(matrix) => {
                let name_of = matrix.format().name();
                let problem =
                    format!("{name_of} is of GGUF files, safetensors files have no such type; decode it first");
                return Err(WeightsError::content(name, problem));
            }
        };
        let shape = tensor.nf4().map_or_else(|| tensor.shape().to_vec(), |matrix| vec![matrix.packed().len(), 1]);
        Ok(Part { name: name.to_owned(), dtype, shape, content: Content::Tensor(tensor) })
    }

    /// Its bytes, little-endian as the machine's own.
    pub fn bytes(&self) -> &[u8] {
        let tensor = match &self.content {
            Content::Bytes(bytes) => return bytes,
            Content::Tensor(tensor) => tensor,
        };
        match tensor.cpu_storage("safetensors").expect("in main memory since the part was made") {
            CpuStorage::F32(data) => bytemuck::cast_slice(data),
            CpuStorage::F64(data) => bytemuck::cast_slice(data),
            CpuStorage::F16(data) => bytemuck::cast_slice(data),
            CpuStorage::BF16(data) => bytemuck::cast_slice(data),
            CpuStorage::U8(data) => data,
            CpuStorage::U32(data) => bytemuck::cast_slice(data),
            CpuStorage::Nf4(matrix) => matrix.packed(),
            CpuStorage::Blocks(matrix) => matrix.bytes(),
        }
    }
}

impl View for &Part {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.bytes().into()
    }

    fn data_len(&self) -> usize {
        self.bytes().len()
    }
}

/// Writes and syncs a file.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write(path: &Path, parts: &[Part]) -> Result<()> {
    // The file appears by a rename and would be readable by its owner only: it gets what a new file has here.
    let usual = File::create(path).and_then(|file| file.metadata()).map_err(WeightsError::io("create", path))?;
    let views = parts.iter().map(|part| (part.name.as_str(), part));
    safetensors::serialize_to_file(views, Some([("format".to_owned(), "pt".to_owned())].into()), path).map_err(
        |e| match e {
            SafeTensorError::IoError(e) => WeightsError::io("write", path)(e),
            other => WeightsError::content(path, other.to_string()),
        },
    )?;
    fs::set_permissions(path, usual.permissions())
        .and_then(|()| File::open(path)?.sync_all())
        .map_err(WeightsError::io("write", path))
}

/// Writes and syncs a file of tensors without copying them.
///
/// # Errors
/// When it cannot be written.
pub fn write_tensors(path: &Path, tensors: &BTreeMap<String, Tensor>) -> Result<()> {
    write(path, &tensors.iter().map(|(name, tensor)| Part::of(name, tensor)).collect::<Result<Vec<_>>>()?)
}
