//! Types of tensors.

use hankel_core::BlockFormat;
use hankel_core::block_formats::GGML_FORMATS;
use std::fmt;

/// How the elements of a tensor are stored: a row is a whole number of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TensorType {
    F32,
    F16,
    Bf16,
    /// In a block format.
    Blocks(&'static dyn BlockFormat),
}

/// Number in the file and type of those that have no blocks.
const PLAIN: [(u32, TensorType); 3] = [(0, TensorType::F32), (1, TensorType::F16), (30, TensorType::Bf16)];

/// Types that exist and are not read.
const OTHERS: [(u32, &str); 29] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
    (42, "Q2_0"),
    (4, "Q4_2, which was removed from the format"),
    (5, "Q4_3, which was removed from the format"),
    (31, "Q4_0_4_4, which was removed from the format"),
    (32, "Q4_0_4_8, which was removed from the format"),
    (33, "Q4_0_8_8, which was removed from the format"),
    (36, "IQ4_NL_4_4, which was removed from the format"),
    (37, "IQ4_NL_4_8, which was removed from the format"),
    (38, "IQ4_NL_8_8, which was removed from the format"),
];

impl TensorType {
    /// All types with their numbers in files.
    fn all() -> impl Iterator<Item = (u32, Self)> {
        let blocks = GGML_FORMATS.iter().map(|(number, format)| (*number, TensorType::Blocks(*format)));
        PLAIN.into_iter().chain(blocks)
    }

    /// The type of this name, in small letters: `bf16`, `q4_k`.
    pub(super) fn named(name: &str) -> Option<Self> {
        let plain = PLAIN.into_iter().map(|(_, dtype)| dtype).find(|dtype| dtype.to_string().to_lowercase() == name);
        plain.or_else(|| <dyn BlockFormat>::from_name(name).map(TensorType::Blocks))
    }

    /// The type of this number in the file.
    pub(super) fn of(number: u32) -> Result<Self, String> {
        if let Some((_, dtype)) = Self::all().find(|row| row.0 == number) {
            return Ok(dtype);
        }
        let supported: Vec<String> = Self::all().map(|(_, dtype)| dtype.to_string()).collect();
        let supported = supported.join(", ");
        Err(match OTHERS.iter().find(|row| row.0 == number) {
            Some((_, name)) => format!("its type is {name}; supported are {supported}"),
            None => format!("there is no tensor type {number}; supported are {supported}"),
        })
    }

    /// Its number in files.
    pub(super) fn number(self) -> u32 {
        Self::all().find(|(_, dtype)| *dtype == self).map(|(number, _)| number).expect("every type has a number")
    }

    /// Elements of a block.
    pub fn block(self) -> usize {
        if let TensorType::Blocks(format) = self { format.block_size() } else { 1 }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            TensorType::F32 => 4,
            TensorType::F16 | TensorType::Bf16 => 2,
            TensorType::Blocks(format) => format.block_bytes(),
        }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorType::F32 => f.write_str("F32"),
            TensorType::F16 => f.write_str("F16"),
            TensorType::Bf16 => f.write_str("BF16"),
            TensorType::Blocks(format) => f.write_str(&format.name().to_uppercase()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_are_not_read_are_named() {
        for (number, name) in [(31, "Q4_0_4_4"), (38, "IQ4_NL_8_8"), (39, "MXFP4"), (40, "NVFP4"), (41, "Q1_0")] {
            let message = TensorType::of(number).unwrap_err();
            assert!(message.contains(&format!("its type is {name}")), "{number}: {message}");
        }
        assert!(TensorType::of(1000).unwrap_err().contains("no tensor type 1000"));
    }
}
