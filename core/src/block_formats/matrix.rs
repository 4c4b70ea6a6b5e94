//! A matrix of blocks.

use super::{BlockFormat, MAX_BLOCK};
use crate::pool::Buffer;
use crate::{Error, Float, Result};
use std::fmt;

/// Row-major elements in blocks of a format, in memory of its own or of a shared owner such as a mapped file.
pub struct BlockMatrix {
    format: &'static dyn BlockFormat,
    bytes: Buffer<u8>,
    elements: usize,
}

impl fmt::Debug for BlockMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockMatrix({} elements in {})", self.elements, self.format.name())
    }
}

impl BlockMatrix {
    /// The blocks `bytes` of `elements` elements, which are not copied.
    ///
    /// # Errors
    /// When the elements do not fill blocks, or the bytes are not those of so many blocks.
    pub fn new(format: &'static dyn BlockFormat, bytes: Buffer<u8>, elements: usize) -> Result<Self> {
        let name = format.name();
        let Some(expected) = format.bytes_of(elements) else {
            let problem = format!("{elements} elements do not fill blocks of {}", format.block_size());
            return Err(Error::invalid(name, problem));
        };
        if bytes.len() != expected {
            let problem = format!("{} bytes for {elements} elements, expected {expected}", bytes.len());
            return Err(Error::invalid(name, problem));
        }
        Ok(BlockMatrix { format, bytes, elements })
    }

    /// Quantises `values` as ggml does.
    ///
    /// # Errors
    /// When the format is only read, the values do not fill blocks, or one is not finite.
    pub fn quantize(format: &'static dyn BlockFormat, values: &[f32]) -> Result<Self> {
        if let Some(i) = values.iter().position(|x| !x.is_finite()) {
            return Err(Error::invalid("quantize", format!("element {i} is {}", values[i])));
        }
        let mut bytes = Buffer::zeros(values.len() / format.block_size() * format.block_bytes());
        let whole = values.len() / format.block_size() * format.block_size();
        format.encode(&values[..whole], &mut bytes)?;
        Self::new(format, bytes, values.len())
    }

    /// How the elements are stored.
    pub fn format(&self) -> &'static dyn BlockFormat {
        self.format
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// The blocks.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the blocks belong to a shared owner, such as a memory-mapped file.
    pub fn is_borrowed(&self) -> bool {
        self.bytes.is_borrowed()
    }

    /// Decodes the elements from `first` on. A run of whole blocks costs nothing but their decoding.
    ///
    /// # Panics
    /// When the range goes beyond the end.
    pub fn decode(&self, first: usize, out: &mut [f32]) {
        let (size, width) = (self.format.block_size(), self.format.block_bytes());
        let decode = |block: usize, out: &mut [f32]| {
            let bytes = &self.bytes[block * width..][..out.len() / size * width];
            self.format.decode(bytes, out);
        };
        let (mut next, mut rest) = (first, out);
        while !rest.is_empty() {
            let offset = next % size;
            let whole = if offset == 0 { rest.len() / size * size } else { 0 };
            let count = if whole > 0 { whole } else { (size - offset).min(rest.len()) };
            let (out, after) = rest.split_at_mut(count);
            if whole > 0 {
                decode(next / size, out);
            } else {
                let mut part = [0.0_f32; MAX_BLOCK];
                decode(next / size, &mut part[..size]);
                out.copy_from_slice(&part[offset..offset + count]);
            }
            (next, rest) = (next + count, after);
        }
    }

    /// Decodes one run of `len` elements into each row of `out`. Runs begin `step` elements apart, the first at `first`; rows begin
    /// `stride` elements apart. The last row may end with its run.
    ///
    /// # Panics
    /// When a run goes beyond the end, or `len` is larger than `stride`.
    pub fn decode_runs(&self, first: usize, step: usize, len: usize, out: &mut [f32], stride: usize) {
        assert!(len <= stride, "runs of {len} elements in places of {stride}");
        let (size, width) = (self.format.block_size(), self.format.block_bytes());
        if [first, step, len].iter().all(|n| n.is_multiple_of(size)) {
            return self.format.decode_runs(&self.bytes[first / size * width..], step / size * width, len, out, stride);
        }
        for (i, out) in out.chunks_mut(stride).enumerate() {
            self.decode(first + i * step, &mut out[..len]);
        }
    }

    /// Calls `f` with runs of decoded elements, in order.
    pub(crate) fn for_runs(&self, mut f: impl FnMut(&[f32])) {
        const RUN: usize = 4 * MAX_BLOCK;
        let mut run = [0.0_f32; RUN];
        for first in (0..self.elements).step_by(RUN) {
            let run = &mut run[..RUN.min(self.elements - first)];
            self.decode(first, run);
            f(run);
        }
    }

    /// Every element.
    pub fn to_vec<T: Float>(&self) -> Vec<T> {
        let mut out = Vec::with_capacity(self.elements);
        self.for_runs(|run| out.extend(run.iter().map(|&x| T::of(f64::from(x)))));
        out
    }

    /// Whether every element is finite.
    pub fn is_finite(&self) -> bool {
        let mut finite = true;
        self.for_runs(|run| finite &= run.iter().all(|x| x.is_finite()));
        finite
    }
}
