//! Types of tensors.

use std::fmt;

/// How the elements of a tensor are stored: a row is a whole number of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum TensorType {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
}

/// Number in the file, type, name, elements and bytes of a block.
const TYPES: [(u32, TensorType, &str, usize, usize); 14] = [
    (0, TensorType::F32, "F32", 1, 4),
    (1, TensorType::F16, "F16", 1, 2),
    (2, TensorType::Q4_0, "Q4_0", 32, 18),
    (3, TensorType::Q4_1, "Q4_1", 32, 20),
    (6, TensorType::Q5_0, "Q5_0", 32, 22),
    (7, TensorType::Q5_1, "Q5_1", 32, 24),
    (8, TensorType::Q8_0, "Q8_0", 32, 34),
    (10, TensorType::Q2K, "Q2_K", 256, 84),
    (11, TensorType::Q3K, "Q3_K", 256, 110),
    (12, TensorType::Q4K, "Q4_K", 256, 144),
    (13, TensorType::Q5K, "Q5_K", 256, 176),
    (14, TensorType::Q6K, "Q6_K", 256, 210),
    (20, TensorType::Iq4Nl, "IQ4_NL", 32, 18),
    (30, TensorType::Bf16, "BF16", 1, 2),
];

/// Types that exist and are not read.
const OTHERS: [(u32, &str); 20] = [
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
    (4, "Q4_2, which was removed from the format"),
    (5, "Q4_3, which was removed from the format"),
];

impl TensorType {
    /// The type of this number in the file.
    pub(super) fn of(number: u32) -> Result<Self, String> {
        if let Some((_, dtype, ..)) = TYPES.iter().find(|row| row.0 == number) {
            return Ok(*dtype);
        }
        let supported = TYPES.map(|row| row.2).join(", ");
        Err(match OTHERS.iter().find(|row| row.0 == number) {
            Some((_, name)) => format!("its type is {name}; supported are {supported}"),
            None => format!("there is no tensor type {number}; supported are {supported}"),
        })
    }

    fn row(self) -> &'static (u32, TensorType, &'static str, usize, usize) {
        TYPES.iter().find(|row| row.1 == self).expect("every type is listed")
    }

    /// Elements of a block.
    pub fn block(self) -> usize {
        self.row().3
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.row().4
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().2)
    }
}
