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
    // Parts of tiles are stored in another way than whole ones, and so is what has a bias.
    let (parts, whole) = (Sizes { m: 140, n: 132, k: 72 }, Sizes { m: 256, n: 128, k: 72 });
    let cases = [(parts, false, None), (parts, true, Some(false)), (whole, false, None), (whole, true, Some(true))];
    let all = || cases.into_iter().try_fold(true, |right, case| Ok(right && product_is_right(gpu, case)?));
    TRIED.get(gpu, (), || tried(gpu, all()))
}

/// A product of integers, exact in f16: its sizes, whether the right factor is transposed, and what is added, if anything: a bias, or a matrix
/// to what is multiplied by a gate of 2.
fn product_is_right(gpu: &'static Gpu, case: (Sizes, bool, Option<bool>)) -> Result<bool> {
    const NAME: &str = "self-test of products in f16";
    let (Sizes { m, n, k }, transposed, added) = case;
    let integers = |count: usize, step: usize| (0..count).map(|i| (i * step % 13) as f32 - 6.0).collect::<Vec<f32>>();
    let (a, b) = (integers(m * k, 7), integers(k * n, 5));
    let (rows, cols) = if transposed { (n, k) } else { (k, n) };
    let left = Tensor::from_vec(a.clone(), [m, k])?.to_device(Device::Gpu(gpu))?;
    let right = Tensor::from_vec(b.clone(), [rows, cols])?.to_dtype(DType::F16)?.to_device(Device::Gpu(gpu))?;
    let left =
        Left { data: floats(NAME, "a", &left, gpu)?, first: 0, rows: m, cols: k, transposed: false, tensor: None };
    let right = Right { storage: stored(NAME, "b", &right, gpu)?, first: 0, rows, cols, transposed };
    let out = Output::new(gpu, m * n)?;
    let on_card = |values: Vec<f32>| {
        let shape = [values.len()];
        Tensor::from_vec(values, shape)?.to_device(Device::Gpu(gpu))
    };
    let (bias, base, gate) = (integers(n, 3), integers(m * n, 11), 2.0);
    let held = [on_card(bias.clone())?, on_card(base.clone())?, on_card(vec![gate])?];
    let [on_bias, on_base, on_gate] = [0, 1, 2].map(|i| floats(NAME, "what is added", &held[i], gpu));
    let (on_bias, on_base, on_gate) = (on_bias?, on_base?, on_gate?);
    let how = match added {
        None => Epilogue::default(),
        Some(false) => Epilogue { bias: Some(on_bias), ..Epilogue::default() },
        Some(true) => Epilogue { base: Some(on_base), gate: Some(on_gate), ..Epilogue::default() },
    };
    if !cooperative::gemm(gpu, left, right, how, out.buffer())? {
        return Ok(false);
    }
    let found = out.finish([m, n])?.to_device(Device::Cpu)?;
    let b = |s: usize, j: usize| if transposed { b[j * k + s] } else { b[s * n + j] };
    let product = |at: usize| (0..k).map(|s| a[at / n * k + s] * b(s, at % n)).sum::<f32>();
    let expected = |at: usize| match added {
        None => product(at),
        Some(false) => product(at) + bias[at % n],
        Some(true) => base[at] + gate * product(at),
    };
    Ok(found.data::<f32>()?.iter().enumerate().all(|(at, &x)| x == expected(at)))
}
