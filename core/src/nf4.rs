//! Packed 4-bit normal floats: the storage of frozen weights (Dettmers et al., "QLoRA", 2023).
//!
//! Elements are cut in blocks over the row-major flattened matrix. An element is one of 16 code values times its block's
//! scale; a byte holds element `2i` in its high nibble and `2i + 1` in its low one. With double quantisation the scales
//! themselves are 8-bit codes: `scale = codebook[code] * nested + offset` in single precision, one `nested` for each 256 blocks.
//! This is the layout of bitsandbytes, bit for bit; quantising is `hankel_ops::linear::nf4`.

use crate::pool::Buffer;
use crate::{DType, Error, Float, Result};
use half::f16;
use std::ops::Range;

/// Rounds to the nearest `bf16`, ties to even; `x` is not a NaN. Without branches, so that 16 of them take a few instructions.
#[inline(always)]
fn to_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff_0000)
}

/// Scales of the blocks.
pub enum Scales {
    /// As they are.
    Plain(Buffer<f32>),
    /// Quantised once more.
    Double {
        /// One byte for each block.
        codes: Buffer<u8>,
        /// One value for each `block` scales.
        nested: Buffer<f32>,
        /// The values of the codes.
        codebook: Box<[f32; 256]>,
        /// Added to every scale.
        offset: f32,
        /// Scales that share a value of `nested`.
        block: usize,
    },
}

impl Scales {
    fn len(&self) -> usize {
        match self {
            Scales::Plain(scales) => scales.len(),
            Scales::Double { codes, .. } => codes.len(),
        }
    }

    /// The scales of the blocks from `first` on.
    #[inline(always)]
    pub fn read(&self, first: usize, out: &mut [f32]) {
        match self {
            Scales::Plain(scales) => out.copy_from_slice(&scales[first..][..out.len()]),
            Scales::Double { codes, nested, codebook, offset, block } => {
                // One division for the run, not one for each scale.
                let (which, within) = (first / block, first % block);
                let (nested, codes) = (&nested[which..], &codes[first..][..out.len()]);
                let (start, rest) = out.split_at_mut((block - within).min(codes.len()));
                let (start_codes, rest_codes) = codes.split_at(start.len());
                let parts =
                    std::iter::once((start, start_codes)).chain(rest.chunks_mut(*block).zip(rest_codes.chunks(*block)));
                for ((out, codes), nested) in parts.zip(nested) {
                    for (out, &code) in out.iter_mut().zip(codes) {
                        *out = codebook[usize::from(code)] * nested + offset;
                    }
                }
            }
        }
    }

    /// The scale of a block.
    #[inline]
    pub fn get(&self, index: usize) -> f32 {
        match self {
            Scales::Plain(scales) => scales[index],
            Scales::Double { codes, nested, codebook, offset, block } => {
                codebook[usize::from(codes[index])] * nested[index / block] + offset
            }
        }
    }
}

/// A matrix of 4-bit floats.
pub struct Nf4 {
    packed: Buffer<u8>,
    scales: Scales,
    codebook: [f32; 16],
    elements: usize,
    block: usize,
    source: DType,
}

impl Nf4 {
    /// Assembles a matrix of `elements` elements in blocks of `block`. `source` is the type the matrix had before: decoded
    /// values are rounded to it (`f32`, `bf16` or `f16`), as bitsandbytes does.
    ///
    /// # Errors
    /// When lengths do not fit or `source` is another type.
    pub fn new(
        packed: Buffer<u8>,
        scales: Scales,
        codebook: [f32; 16],
        [elements, block]: [usize; 2],
        source: DType,
    ) -> Result<Self> {
        let fail = |problem: String| Err(Error::invalid("nf4", problem));
        if block == 0 || block % 2 == 1 {
            return fail(format!("blocks of {block} elements; their size must be even"));
        }
        if packed.len() != elements.div_ceil(2) {
            return fail(format!("{} bytes of codes for {elements} elements", packed.len()));
        }
        if scales.len() != elements.div_ceil(block) {
            return fail(format!("{} scales for {elements} elements in blocks of {block}", scales.len()));
        }
        if let Scales::Double { codes, nested, block, .. } = &scales
            && (*block == 0 || nested.len() != codes.len().div_ceil(*block))
        {
            return fail(format!("{} nested scales for {} blocks of {block}", nested.len(), codes.len()));
        }
        if !matches!(source, DType::F32 | DType::BF16 | DType::F16) {
            return fail(format!("values cannot be rounded to {source}"));
        }
        Ok(Nf4 { packed, scales, codebook, elements, block, source })
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Elements that share a scale.
    pub fn block(&self) -> usize {
        self.block
    }

    /// The type that decoded values are rounded to.
    pub fn source(&self) -> DType {
        self.source
    }

    /// Two codes to a byte.
    pub fn packed(&self) -> &[u8] {
        &self.packed
    }

    /// The blocks' scales.
    pub fn scales(&self) -> &Scales {
        &self.scales
    }

    /// The values of the codes.
    pub fn codebook(&self) -> &[f32; 16] {
        &self.codebook
    }

    /// Bytes of codes and scales.
    pub fn bytes(&self) -> usize {
        let scales = match &self.scales {
            Scales::Plain(scales) => 4 * scales.len(),
            Scales::Double { codes, nested, .. } => codes.len() + 4 * nested.len() + 4 * 256,
        };
        self.packed.len() + scales
    }

    /// Whether the codes belong to a shared owner, such as a memory-mapped file.
    pub fn is_borrowed(&self) -> bool {
        self.packed.is_borrowed()
    }

    /// Whether every scale is finite. With double quantisation, whether every scale that codes could stand for is: the
    /// codes, hundreds of times as many as nested scales, are not read for it.
    pub fn is_finite(&self) -> bool {
        match &self.scales {
            Scales::Plain(scales) => scales.iter().all(|scale| scale.is_finite()),
            Scales::Double { nested, codebook, offset, .. } => {
                let largest = codebook.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
                codebook.iter().all(|x| x.is_finite())
                    && nested.iter().all(|scale| (largest * scale.abs() + offset.abs()).is_finite())
            }
        }
    }

    /// The values of the 16 codes in a block.
    #[inline(always)]
    pub fn values<T: Float>(&self, block: usize) -> [T; 16] {
        let scale = self.scales.get(block);
        let exact = self.codebook.map(|code| code * scale);
        let rounded = match self.source {
            DType::BF16 => exact.map(to_bf16),
            DType::F16 => exact.map(|x| f16::from_f32(x).to_f32()),
            _ => exact,
        };
        rounded.map(|x| T::of(f64::from(x)))
    }

    /// Decodes the elements `range` of the flattened matrix into `out`.
    ///
    /// # Panics
    /// When the range goes beyond the end or `out` has another length.
    #[inline(always)]
    pub fn decode<T: Float>(&self, range: Range<usize>, out: &mut [T]) {
        assert!(range.end <= self.elements && out.len() == range.len(), "elements {range:?} of {}", self.elements);
        let mut rest = out;
        let mut next = range.start;
        while next < range.end {
            let block = next / self.block;
            let end = range.end.min((block + 1) * self.block);
            let values = self.values::<T>(block);
            let (out, after) = rest.split_at_mut(end - next);
            self.decode_block(next, &values, out);
            (rest, next) = (after, end);
        }
    }

    /// Elements from `first` on, all of one block.
    #[inline(always)]
    fn decode_block<T: Float>(&self, first: usize, values: &[T; 16], out: &mut [T]) {
        let mut out = out;
        let mut first = first;
        if first % 2 == 1 {
            out[0] = values[usize::from(self.packed[first / 2] & 15)];
            (out, first) = (&mut out[1..], first + 1);
        }
        let bytes = &self.packed[first / 2..];
        let (pairs, last) = out.as_chunks_mut::<2>();
        for (pair, &byte) in pairs.iter_mut().zip(bytes) {
            *pair = [values[usize::from(byte >> 4)], values[usize::from(byte & 15)]];
        }
        if let [last] = last {
            *last = values[usize::from(bytes[pairs.len()] >> 4)];
        }
    }

    /// Every element.
    pub fn to_vec<T: Float>(&self) -> Vec<T> {
        let mut out = vec![T::zero(); self.elements];
        self.decode(0..self.elements, &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    fn matrix(elements: usize, block: usize, source: DType) -> Result<Nf4> {
        let packed: Vec<u8> = (0..elements.div_ceil(2)).map(|i| (i * 37 + 11) as u8).collect();
        let scales: Vec<f32> = (0..elements.div_ceil(block.max(1))).map(|i| 0.3 + i as f32).collect();
        let codebook = std::array::from_fn(|i| i as f32 / 15.0 - 0.4);
        Nf4::new(packed.into(), Scales::Plain(scales.into()), codebook, [elements, block], source)
    }

    #[test]
    fn any_range_decodes_to_the_elements_one_by_one() {
        for source in [DType::F32, DType::BF16, DType::F16] {
            let matrix = matrix(151, 8, source).unwrap();
            let element = |i: usize| {
                let byte = matrix.packed[i / 2];
                let code = if i.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
                let value = matrix.codebook[usize::from(code)] * matrix.scales.get(i / 8);
                match source {
                    DType::BF16 => bf16::from_f32(value).to_f32(),
                    DType::F16 => f16::from_f32(value).to_f32(),
                    _ => value,
                }
            };
            for (start, end) in [(0, 151), (3, 4), (5, 150), (8, 16), (7, 9), (151, 151)] {
                let mut out = vec![0.0_f32; end - start];
                matrix.decode(start..end, &mut out);
                let expected: Vec<f32> = (start..end).map(element).collect();
                assert_eq!(out, expected, "{start}..{end} {source}");
            }
        }
    }

    #[test]
    fn scales_that_are_not_finite_are_found() {
        let double = |value: f32, nested: f32, offset: f32| {
            let mut codebook = Box::new([0.5; 256]);
            codebook[77] = value;
            let scales = Scales::Double {
                codes: vec![0; 3].into(),
                nested: vec![1.0, nested].into(),
                codebook,
                offset,
                block: 2,
            };
            Nf4::new(vec![0; 5].into(), scales, [0.0; 16], [10, 4], DType::F32).unwrap().is_finite()
        };
        assert!(double(1.0, 2.0, 3.0) && double(-1.0, 0.0, -3.0));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!double(bad, 1.0, 0.0) && !double(1.0, bad, 0.0) && !double(1.0, 1.0, bad), "{bad}");
            let plain = Scales::Plain(vec![1.0, bad, 1.0].into());
            assert!(!Nf4::new(vec![0; 5].into(), plain, [0.0; 16], [10, 4], DType::F32).unwrap().is_finite());
        }
    }

    #[test]
    fn scales_of_a_run_are_those_one_by_one() {
        for block in [1, 3, 4, 256] {
            let scales = Scales::Double {
                codes: (0..10_u8).map(|i| i.wrapping_mul(77)).collect::<Vec<u8>>().into(),
                nested: (0..10_usize.div_ceil(block)).map(|i| 1.5 + i as f32).collect::<Vec<f32>>().into(),
                codebook: Box::new(std::array::from_fn(|i| i as f32 / 256.0 - 0.3)),
                offset: 0.25,
                block,
            };
            for (first, end) in (0..=10).flat_map(|first| (first..=10).map(move |end| (first, end))) {
                let mut found = vec![0.0; end - first];
                scales.read(first, &mut found);
                assert!(found.iter().zip(first..).all(|(&x, i)| x == scales.get(i)), "{first}..{end} in {block}");
            }
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        assert!(matrix(10, 3, DType::F32).is_err());
        assert!(matrix(10, 0, DType::F32).is_err());
        assert!(matrix(10, 4, DType::F64).is_err());
        let scales = |n: usize| Scales::Plain(vec![1.0; n].into());
        let build = |bytes: usize, scales| Nf4::new(vec![0; bytes].into(), scales, [0.0; 16], [10, 4], DType::F32);
        assert!(build(5, scales(3)).is_ok());
        assert!(build(4, scales(3)).is_err());
        assert!(build(5, scales(2)).is_err());
        let nested = Scales::Double {
            codes: vec![0; 3].into(),
            nested: vec![1.0; 2].into(),
            codebook: Box::new([0.0; 256]),
            offset: 0.0,
            block: 256,
        };
        assert!(build(5, nested).is_err());
    }
}
