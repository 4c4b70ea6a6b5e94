//! Writing a file: header, metadata and table of tensors first, then the tensors one after the other.

use super::{MAGIC, TensorType};
use crate::weights::{Result, WeightsError};
use hankel_io::{Existing, PendingFile};
use std::path::Path;

/// What the data and every tensor in it are aligned to: what a file that does not say has.
const ALIGNMENT: usize = 32;
/// Version of the format.
const VERSION: u32 = 3;

/// A value of the metadata, in the type that llama.cpp's converter writes it in.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Meta {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    /// Type and value as the bytes of another file have them.
    Raw(Vec<u8>),
}

impl Meta {
    fn put(&self, out: &mut Vec<u8>) {
        let mut array = |kind: u32, len: usize| {
            for number in [9, kind] {
                out.extend(number.to_le_bytes());
            }
            out.extend((len as u64).to_le_bytes());
        };
        match self {
            Meta::U32(value) => put(out, 4, &value.to_le_bytes()),
            Meta::F32(value) => put(out, 6, &value.to_le_bytes()),
            Meta::Bool(value) => put(out, 7, &[u8::from(*value)]),
            Meta::Text(value) => {
                put(out, 8, &[]);
                put_text(out, value);
            }
            Meta::Texts(values) => {
                array(8, values.len());
                values.iter().for_each(|value| put_text(out, value));
            }
            Meta::I32s(values) => {
                array(5, values.len());
                out.extend_from_slice(bytemuck::cast_slice(values));
            }
            Meta::F32s(values) => {
                array(6, values.len());
                out.extend_from_slice(bytemuck::cast_slice(values));
            }
            Meta::Raw(bytes) => out.extend(bytes),
        }
    }
}

/// A scalar: its type and its bytes.
fn put(out: &mut Vec<u8>, kind: u32, bytes: &[u8]) {
    out.extend(kind.to_le_bytes());
    out.extend(bytes);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Keys with their values, in the order of the file.
pub(super) type Metadata = Vec<(String, Meta)>;

/// A tensor that will be written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Planned {
    pub name: String,
    /// Sizes, the length of a row last.
    pub shape: Vec<usize>,
    pub dtype: TensorType,
}

impl Planned {
    pub(super) fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() / self.dtype.block() * self.dtype.block_bytes()
    }
}

/// A file that is being written. It appears when [`GgufWriter::finish`] succeeds, and not otherwise.
pub(super) struct GgufWriter {
    file: PendingFile,
    /// Bytes of each tensor that is still due, the next one last.
    due: Vec<usize>,
    /// Bytes of the next tensor that are there.
    written: usize,
    total: u64,
}

impl GgufWriter {
    /// Begins the file `path` with everything but the tensors.
    ///
    /// # Errors
    /// When it exists, or nothing can be written beside it.
    pub(super) fn create(path: &Path, metadata: &Metadata, tensors: &[Planned]) -> Result<Self> {
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        for count in [tensors.len(), metadata.len()] {
            header.extend((count as u64).to_le_bytes());
        }
        for (key, value) in metadata {
            put_text(&mut header, key);
            value.put(&mut header);
        }
        let mut offset = 0;
        for tensor in tensors {
            put_text(&mut header, &tensor.name);
            header.extend((tensor.shape.len() as u32).to_le_bytes());
            for &size in tensor.shape.iter().rev() {
                header.extend((size as u64).to_le_bytes());
            }
            header.extend(tensor.dtype.number().to_le_bytes());
            header.extend((offset as u64).to_le_bytes());
            offset += tensor.bytes().next_multiple_of(ALIGNMENT);
        }
        header.resize(header.len().next_multiple_of(ALIGNMENT), 0);
        let due = tensors.iter().rev().map(Planned::bytes).collect();
        let mut writer = GgufWriter { file: PendingFile::create(path, Existing::Refuse)?, due, written: 0, total: 0 };
        writer.bytes(&header)?;
        Ok(writer)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.total += bytes.len() as u64;
        Ok(self.file.write(bytes)?)
    }

    /// The next bytes of the tensor that is due.
    ///
    /// # Errors
    /// When they cannot be written.
    ///
    /// # Panics
    /// When there are more than were planned.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes(bytes)?;
        self.written += bytes.len();
        let due = *self.due.last().expect("a tensor is due");
        assert!(self.written <= due, "a tensor has more bytes than were planned");
        if self.written == due {
            self.due.pop();
            self.written = 0;
            let padding = due.next_multiple_of(ALIGNMENT) - due;
            self.bytes(&[0; ALIGNMENT][..padding])?;
        }
        Ok(())
    }

    /// Where the file is while it is written, with all that was written so far.
    ///
    /// # Errors
    /// When that cannot be written.
    pub(super) fn so_far(&mut self) -> Result<&Path> {
        Ok(self.file.flushed()?)
    }

    /// Gives the file its name. Its size in bytes.
    ///
    /// # Errors
    /// When it cannot be written, or something of this name has appeared.
    pub(super) fn finish(self) -> Result<u64> {
        if let Some(due) = self.due.last() {
            let reason = format!("{} of {due} bytes of a tensor are there", self.written);
            return Err(WeightsError::content(self.file.path(), reason));
        }
        self.file.commit()?;
        Ok(self.total)
    }
}
