//! Whether a card's cooperative matrices give the right products, tried once before they are relied on: the feature is
//! experimental, and a driver that got it wrong would train on noise.

use super::cooperative;
use super::gemm::{Epilogue, Left, Right, Sizes};
use crate::gpu::{Answers, Output, floats, stored, tried};
use hankel_core::gpu::Gpu;
use hankel_core::{DType, Device, Result, Tensor};

static TRIED: Answers<()> = Answers::new();

/// Whether products in f16 on `gpu`, which has the kernels for them, are right.
///
/// Where the driver does not compile them they are not.
///
/// # Errors
/// When the device fails.
pub(crate) fn f16_is_right(gpu: &'static Gpu) -> Result<bool> {
    TRIED.get(gpu, (), || {
        tried(gpu, product_is_right(gpu, false).and_then(|right| Ok(right && product_is_right(gpu, true)?)))
    })
}

/// A product of integers, exact in f16, that fills tiles and parts of them.
fn product_is_right(gpu: &'static Gpu, transposed: bool) -> Result<bool> {
    const NAME: &str = "self-test of products in f16";
    let Sizes { m, n, k } = Sizes { m: 140, n: 132, k: 72 };
    let integers = |count: usize, step: usize| (0..count).map(|i| (i * step % 13) as f32 - 6.0).collect::<Vec<f32>>();
    let (a, b) = (integers(m * k, 7), integers(k * n, 5));
    let (rows, cols) = if transposed { (n, k) } else { (k, n) };
    let left = Tensor::from_vec(a.clone(), [m, k])?.to_device(Device::Gpu(gpu))?;
    let right = Tensor::from_vec(b.clone(), [rows, cols])?.to_dtype(DType::F16)?.to_device(Device::Gpu(gpu))?;
    let left =
        Left { data: floats(NAME, "a", &left, gpu)?, first: 0, rows: m, cols: k, transposed: false, tensor: None };
    let right = Right { storage: stored(NAME, "b", &right, gpu)?, first: 0, rows, cols, transposed };
    let out = Output::new(gpu, m * n)?;
    if !cooperative::gemm(gpu, left, right, Epilogue::default(), out.buffer())? {
        return Ok(false);
    }
    let found = out.finish([m, n])?.to_device(Device::Cpu)?;
    let b = |s: usize, j: usize| if transposed { b[j * k + s] } else { b[s * n + j] };
    let expected = |at: usize| (0..k).map(|s| a[at / n * k + s] * b(s, at % n)).sum::<f32>();
    Ok(found.data::<f32>()?.iter().enumerate().all(|(at, &x)| x == expected(at)))
}
