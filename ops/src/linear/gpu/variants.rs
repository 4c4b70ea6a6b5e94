//! Products by a given kernel, whatever the shape would choose: for benchmarks.

pub use super::kernels::Tile;

use super::gemm::{Left, Plan, Right, Sizes, planned, whole};
use super::{Epilogue, cooperative};
use crate::gpu::{Output, floats, stored};
use hankel_core::{DType, Error, Precision, Result, Tensor};

const NAME: &str = "product";

/// How a product is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// As products in this precision are.
    Chosen(Precision),
    /// In these tiles; a 4-bit weight is decoded in them.
    Tiles(Tile),
    /// In these tiles, with the right factor decoded to f32 beforehand.
    Decoded(Tile),
}

/// `a b` of two matrices on a GPU, or of those of which they are the transposes.
///
/// # Errors
/// When the factors are not matrices, are on different devices, or the card has no such variant.
pub fn product(
    variant: Variant,
    (a, transposed_a): (&Tensor, bool),
    (b, transposed_b): (&Tensor, bool),
) -> Result<Tensor> {
    let (&[rows, cols], &[right_rows, right_cols]) = (&a.shape()[..], &b.shape()[..]) else {
        return Err(Error::shape(NAME, "the factors are not matrices"));
    };
    let Some(gpu) = a.gpu() else {
        return Err(Error::Placement { operator: NAME, problem: "the left factor is not on a GPU".to_owned() });
    };
    let left = Left { data: floats(NAME, "a", a, gpu)?, first: 0, rows, cols, transposed: transposed_a, tensor: None };
    let storage = stored(NAME, "b", b, gpu)?;
    let right = Right { storage, first: 0, rows: right_rows, cols: right_cols, transposed: transposed_b };
    let sizes @ Sizes { m, n, k } = Sizes::of(left, right);
    if k != if transposed_b { right_cols } else { right_rows } {
        return Err(Error::shape(NAME, format!("{} and {} do not fit", a.shape(), b.shape())));
    }
    let out = Output::new(gpu, m * n)?;
    let how = Epilogue::default();
    match variant {
        Variant::Chosen(Precision::F16) => {
            if !cooperative::gemm(gpu, left, right, how, out.buffer())? {
                let problem = format!("{} has no matrix units for {sizes:?}", gpu.facts().name);
                return Err(Error::Placement { operator: NAME, problem });
            }
        }
        Variant::Chosen(_) => super::gemm(gpu, left, right, how, out.buffer())?,
        Variant::Tiles(tile) => planned(gpu, left, right, how, out.buffer(), Plan::Tiles(tile, 1))?,
        Variant::Decoded(tile) => {
            let decoded = whole(gpu, storage, DType::F32)?;
            let right = Right { storage: decoded.as_ref().unwrap_or(storage), ..right };
            planned(gpu, left, right, how, out.buffer(), Plan::Tiles(tile, 1))?;
        }
    }
    out.finish([m, n])
}
