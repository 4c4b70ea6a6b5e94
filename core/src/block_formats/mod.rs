//! Block formats: weights quantised in blocks of elements that share scales, as GGUF files hold them.
//!
//! A format is a file here and a line in `formats!`; for GPUs a file and a line in `ops/src/linear/gpu/blocks`. Blocks stay as they are in the file, usually in mapped memory;
//! operators decode a run of them at a time where they multiply. Decoded values equal ggml's bit for bit: scales are
//! multiplied in `f32` first, products and sums are rounded one by one.
//!
//! Source of the layouts: `ggml-quants.c` and `gguf-py/gguf/quants.py` of llama.cpp.

mod iq4_nl;
mod k_scales;
mod matrix;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
#[cfg(test)]
mod tests;

pub use matrix::BlockMatrix;

use crate::wide::{self, WIDTH, Wide, WideOp};
use crate::{Error, Result};
use half::f16;
use pulp::Arch;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// Elements of the largest block.
pub const MAX_BLOCK: usize = 256;

/// A format, as its file defines it.
pub trait Blocks: Send + Sync + 'static {
    /// Its name in configurations and messages: `q4_0`, `q6_k`.
    const NAME: &str;
    /// Elements of a block: 32, or 256.
    const SIZE: usize;
    /// Bytes of a block.
    const BYTES: usize;

    /// Calls `give(i, values)` with the elements `32 i .. 32 i + 32` of a block, for every `i`.
    fn values<W: Wide>(wide: W, block: &[u8], give: impl FnMut(usize, [W::Floats; 2]));

    /// The encoder, if the format is written and not only read.
    const ENCODE: Option<Encode> = None;
}

/// Encodes whole blocks as ggml does; the values are finite. Panics when values and bytes are not of equally many blocks.
pub type Encode = fn(&[f32], &mut [u8]);

/// How elements are stored in blocks.
pub trait BlockFormat: Send + Sync {
    /// Its name in configurations and messages: `q4_0`, `q6_k`.
    fn name(&self) -> &'static str;

    /// Elements of a block.
    fn block_size(&self) -> usize;

    /// Bytes of a block.
    fn block_bytes(&self) -> usize;

    /// Decodes whole blocks.
    ///
    /// # Panics
    /// When `bytes` and `out` are not of equally many blocks.
    fn decode(&self, bytes: &[u8], out: &mut [f32]);

    /// Decodes one run of `len` elements, which are whole blocks, into each row of `out`. Runs begin `step` bytes apart, rows
    /// `stride` elements apart. The last row may end with its run.
    ///
    /// # Panics
    /// When a run does not consist of whole blocks, or the bytes end before it.
    fn decode_runs(&self, bytes: &[u8], step: usize, len: usize, out: &mut [f32], stride: usize);

    /// The encoder, if the format is written and not only read.
    fn encoder(&self) -> Option<Encode>;
}

impl<F: Blocks> BlockFormat for F {
    fn name(&self) -> &'static str {
        F::NAME
    }

    fn block_size(&self) -> usize {
        F::SIZE
    }

    fn block_bytes(&self) -> usize {
        F::BYTES
    }

    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        let whole = bytes.len().is_multiple_of(F::BYTES) && out.len() == bytes.len() / F::BYTES * F::SIZE;
        assert!(whole, "the blocks are not whole");
        let (step, len) = (bytes.len(), out.len());
        wide::dispatch(Arch::new(), Decode::<F> { bytes, step, len, out, stride: len, format: PhantomData });
    }

    fn decode_runs(&self, bytes: &[u8], step: usize, len: usize, out: &mut [f32], stride: usize) {
        assert!(len.is_multiple_of(F::SIZE) && len <= stride, "the blocks are not whole");
        wide::dispatch(Arch::new(), Decode::<F> { bytes, step, len, out, stride, format: PhantomData });
    }

    fn encoder(&self) -> Option<Encode> {
        F::ENCODE
    }
}

/// Runs of blocks to be decoded, as [`BlockFormat::decode_runs`] has them.
struct Decode<'a, F> {
    bytes: &'a [u8],
    step: usize,
    len: usize,
    out: &'a mut [f32],
    stride: usize,
    format: PhantomData<F>,
}

impl<F: Blocks> WideOp for Decode<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, wide: W) {
        let Decode { bytes, step, len, out, stride, .. } = self;
        for (i, out) in out.chunks_mut(stride.max(1)).enumerate() {
            let bytes = &bytes[i * step..][..len / F::SIZE * F::BYTES];
            for (block, out) in bytes.chunks_exact(F::BYTES).zip(out[..len].chunks_exact_mut(F::SIZE)) {
                let out = out.as_chunks_mut::<WIDTH>().0;
                F::values(
                    wide,
                    block,
                    #[inline(always)]
                    |i, [a, b]| {
                        wide.store(a, &mut out[2 * i]);
                        wide.store(b, &mut out[2 * i + 1]);
                    },
                );
            }
        }
    }
}

/// Something to be done for the format of some blocks, compiled for each.
pub trait ForFormat {
    /// The result.
    type Output;
    /// Does it.
    fn with<F: Blocks>(self) -> Self::Output;
}

macro_rules! formats {
    ($($number:literal => $format:path),* $(,)?) => {
        /// The formats of GGUF files with the number that a file gives for each.
        pub static GGML_FORMATS: [(u32, &dyn BlockFormat); [$($number),*].len()] = [$(($number, &$format)),*];

        /// Does `task` for `format`; `None` for one that is not in [`GGML_FORMATS`].
        #[inline]
        pub fn with_format<T: ForFormat>(format: &dyn BlockFormat, task: T) -> Option<T::Output> {
            let name = format.name();
            $(if name == <$format as Blocks>::NAME {
                return Some(task.with::<$format>());
            })*
            None
        }
    };
}

formats! {
    2 => q4_0::Q4_0,
    3 => q4_1::Q4_1,
    6 => q5_0::Q5_0,
    7 => q5_1::Q5_1,
    8 => q8_0::Q8_0,
    10 => q2_k::Q2K,
    11 => q3_k::Q3K,
    12 => q4_k::Q4K,
    13 => q5_k::Q5K,
    14 => q6_k::Q6K,
    20 => iq4_nl::Iq4Nl,
}

impl dyn BlockFormat {
    /// The format with this name, such as `q4_k`.
    pub fn from_name(name: &str) -> Option<&'static dyn BlockFormat> {
        GGML_FORMATS.iter().map(|(_, format)| *format).find(|format| format.name() == name)
    }

    /// Encodes whole blocks as ggml does; the values are finite.
    ///
    /// # Errors
    /// When the format is only read.
    ///
    /// # Panics
    /// When `values` and `out` are not of equally many blocks.
    pub fn encode(&self, values: &[f32], out: &mut [u8]) -> Result<()> {
        let Some(encode) = self.encoder() else {
            let written = GGML_FORMATS.iter().filter(|(_, format)| format.encoder().is_some());
            let names: Vec<&str> = written.map(|(_, format)| format.name()).collect();
            let problem = format!("{} is read, not written; {} are", self.name(), names.join(", "));
            return Err(Error::invalid("quantize", problem));
        };
        encode(values, out);
        Ok(())
    }

    /// Bytes of `elements` elements; `None` when they do not fill blocks or cannot be counted.
    pub fn bytes_of(&self, elements: usize) -> Option<usize> {
        let whole = elements.is_multiple_of(self.block_size());
        whole.then(|| (elements / self.block_size()).checked_mul(self.block_bytes())).flatten()
    }
}

impl PartialEq for dyn BlockFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn BlockFormat {}

impl Hash for dyn BlockFormat {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for dyn BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An expression of an index for 0 and for 1. No closure: these are not always inlined, and code that is not has no vectors.
macro_rules! pair {
    ($i:ident => $value:expr) => {
        [
            {
                let $i = 0_usize;
                $value
            },
            {
                let $i = 1_usize;
                $value
            },
        ]
    };
}
use pair;

/// The numbers from 0 on.
const FROM_0: [f32; WIDTH] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// `N` bytes of a block.
#[inline(always)]
fn part<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("a block holds its parts")
}

/// 32 codes of five bits: elements `i` and `i + 16` have their low four in the low and the high half of byte `i`.
#[inline(always)]
fn five_bits<W: Wide>(wide: W, low: &[u8; 16], high: &[u8; 4]) -> [W::Words; 2] {
    let (low, four_bits) = (wide.unsigned(low), wide.splat_word(15));
    let fifth = pair!(i => wide.where_set(u16::from_le_bytes([high[2 * i], high[2 * i + 1]]), 16));
    [wide.or(wide.and(low, four_bits), fifth[0]), wide.or(wide.shr(low, 4), fifth[1])]
}

/// Encodes blocks one after the other.
fn encode_blocks<const BYTES: usize, const SIZE: usize>(
    values: &[f32],
    out: &mut [u8],
    encode: impl Fn(&[f32; SIZE], &mut [u8; BYTES]),
) {
    let (values, rest) = values.as_chunks::<SIZE>();
    let (blocks, left) = out.as_chunks_mut::<BYTES>();
    assert!(blocks.len() == values.len() && rest.is_empty() && left.is_empty(), "the blocks are not whole");
    for (values, block) in values.iter().zip(blocks) {
        encode(values, block);
    }
}

/// Every element the half-precision float at `bytes[at..at + 2]`.
#[inline(always)]
fn splat_half<W: Wide>(wide: W, bytes: &[u8], at: usize) -> W::Floats {
    wide.splat_half(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// Stores `x` rounded to half precision.
fn put_half(x: f32, out: &mut [u8]) {
    out[..2].copy_from_slice(&f16::from_f32(x).to_bits().to_le_bytes());
}

/// `1 / x`, 0 for 0.
fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// The first value of the largest magnitude.
fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0_f32, |found, &x| if x.abs() > found.abs() { x } else { found })
}

/// The smallest and the largest value.
fn range(values: &[f32]) -> (f32, f32) {
    values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)))
}

/// Elements `i` and `i + 16` in the low and the high half of byte `i`.
fn pack_nibbles(codes: &[u8; 32], out: &mut [u8]) {
    for (i, byte) in out[..16].iter_mut().enumerate() {
        *byte = codes[i] & 15 | codes[i + 16] << 4;
    }
}

/// The fifth bits of 32 codes, one to a bit.
fn fifth_bits(codes: &[u8; 32]) -> [u8; 4] {
    codes.iter().enumerate().fold(0_u32, |bits, (i, code)| bits | u32::from(code >> 4) << i).to_le_bytes()
}
