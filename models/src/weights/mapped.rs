//! Memory-mapped files; those of safetensors with their tensors.

use hankel_core::BlockFormat;
use hankel_files::{Result, WeightsError};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What tensors borrow from.
pub struct Map(Mmap);

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// How the elements of a tensor are stored.
#[derive(Debug, Clone, Copy)]
pub enum Stored {
    /// One by one.
    Plain(Dtype),
    /// In blocks, of which a row has a whole number.
    Blocks(&'static dyn BlockFormat),
}

/// A tensor inside a mapped file.
pub struct Entry {
    /// The file's bytes.
    pub map: Arc<Map>,
    /// Where the file is, for messages.
    pub path: Arc<Path>,
    /// How its elements are stored.
    pub stored: Stored,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Its bytes within the file.
    pub range: Range<usize>,
    /// Rows of a head, if its first and second half are interleaved in the file.
    pub interleaved: Option<usize>,
}

impl Entry {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &(*self.map).as_ref()[self.range.clone()]
    }

    /// Lets the system begin to read these bytes and as many after them, where the next tensor to be asked for usually is,
    /// in one go instead of page by page as they are touched.
    pub fn read_ahead(&self) {
        #[cfg(unix)]
        {
            let len = (2 * self.range.len()).min(self.map.0.len() - self.range.start);
            // A hint: without it everything is read as well, only later.
            let _ = self.map.0.advise_range(memmap2::Advice::WillNeed, self.range.start, len);
        }
    }
}

/// Bytes of a mapped file that are not read any more.
pub struct Done {
    map: Arc<Map>,
    range: Range<usize>,
}

impl Done {
    /// The bytes `range` of a file.
    pub fn new(map: Arc<Map>, range: Range<usize>) -> Self {
        Done { map, range }
    }

    /// Gives back the memory that these bytes take: they stay in the file.
    ///
    /// The system may map them again with what lies beside them when that is touched for the first time.
    pub fn forget(&self) {
        /// No system that is known has larger pages. Pages at the ends, which others share, stay.
        const PAGE: usize = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 64 << 10 };
        let (start, end) = (self.range.start.next_multiple_of(PAGE), self.range.end / PAGE * PAGE);
        #[cfg(unix)]
        if start < end {
            // SAFETY: the map is of a file and read only, so its pages hold what the file does and nothing else: whoever
            // touches them again reads them from the file again.
            let _ =
                unsafe { self.map.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
        }
        #[cfg(not(unix))]
        let _ = (start, end);
    }
}

/// What messages call the file.
const KIND: &str = "safetensors file";

/// Maps `path`.
///
/// # Errors
/// When it cannot be opened or is not a regular file.
pub fn map_file(path: &Path) -> Result<Map> {
    let file = hankel_io::input::open(path)?;
    // SAFETY: the map is read only. Should another program shorten the file while it is in use, the process ends with a
    // bus error, as with every memory-mapped model; contents are checked before they are used and decode to some number
    // whatever they are.
    unsafe { Mmap::map(&file) }.map(Map).map_err(WeightsError::io("map", path))
}

/// Maps `path` and lists its tensors by name.
///
/// # Errors
/// When the file cannot be opened, is cut off, or its header describes something that is not there.
pub fn map(path: &Path) -> Result<Vec<(String, Entry)>> {
    let map = map_file(path)?.0;
    let malformed = |reason: String| WeightsError::Malformed { path: path.to_path_buf(), kind: KIND, reason };
    let parsed = SafeTensors::deserialize(&map).map_err(|e| malformed(explain(&e, map.len())))?;
    let start = map.as_ptr().addr();
    let shared = Arc::<Path>::from(path);
    let found: Vec<_> = parsed
        .iter()
        .map(|(name, view)| {
            let first = view.data().as_ptr().addr().wrapping_sub(start);
            let range = if view.data().is_empty() { 0..0 } else { first..first + view.data().len() };
            (name.to_owned(), view.dtype(), view.shape().to_vec(), range)
        })
        .collect();
    let map = Arc::new(Map(map));
    let entry = |(name, dtype, shape, range)| {
        let stored = Stored::Plain(dtype);
        (name, Entry { map: map.clone(), path: shared.clone(), stored, shape, range, interleaved: None })
    };
    Ok(found.into_iter().map(entry).collect())
}

fn explain(error: &SafeTensorError, size: usize) -> String {
    match error {
        SafeTensorError::MetadataIncompleteBuffer => {
            format!("its header describes more or fewer bytes than the {size} of the file: it was cut off or added to")
        }
        SafeTensorError::InvalidHeaderLength | SafeTensorError::HeaderTooSmall => {
            format!("it ends inside its header ({size} bytes): it was cut off")
        }
        SafeTensorError::InvalidOffset(name) => {
            format!("the bytes of tensor {name} overlap those of another or leave a gap")
        }
        SafeTensorError::TensorInvalidInfo => "a tensor's shape does not fit its number of bytes".to_owned(),
        other => format!("{other} ({size} bytes)"),
    }
}
