//! Whether products in f16 save time on a card: measured, as a feature of a driver says nothing of its speed.

use super::gemm::{Epilogue, Left, Right, gemm};
use crate::gpu::Answers;
use hankel_core::gpu::{Gpu, GpuStorage};
use hankel_core::{Precision, Result};
use std::time::Instant;

/// Seconds that a product has to take to be compared, unless it is as large as will be tried.
pub(crate) const LONG_ENOUGH: f64 = 1e-3;
/// Edges of the matrices, the first and the last that are tried.
const EDGES: [usize; 2] = [128, 2048];
/// The share of the time in f32 that f16 has to stay below: what saves little is not worth the digits, and the choice does not
/// change from run to run.
pub(crate) const WORTH: f64 = 0.8;

static MEASURED: Answers<()> = Answers::new();

/// Whether products in f16 on `gpu`, which are right, take clearly less time than those in f32, conversions included. It takes
/// some milliseconds, once for each card.
///
/// # Errors
/// When they cannot be run.
pub(crate) fn f16_is_faster(gpu: &'static Gpu) -> Result<bool> {
    MEASURED.get(gpu, (), || {
        let [mut edge, last] = EDGES;
        let mut single = seconds(gpu, edge, Precision::F32)?;
        while single < LONG_ENOUGH && edge < last {
            edge *= 2;
            single = seconds(gpu, edge, Precision::F32)?;
        }
        Ok(seconds(gpu, edge, Precision::F16)? < WORTH * single)
    })
}

/// The least of three times that a product of two square matrices takes.
fn seconds(gpu: &'static Gpu, edge: usize, precision: Precision) -> Result<f64> {
    let square = || GpuStorage::filled(gpu, edge * edge, 0.5);
    let (a, b, out) = (square()?, square()?, square()?);
    let left = Left { data: &a.buffer, first: 0, rows: edge, cols: edge, transposed: false, tensor: None };
    let right = Right { storage: &b, first: 0, rows: edge, cols: edge, transposed: true };
    least_seconds(gpu, || gemm(gpu, left, right, Epilogue { precision, ..Epilogue::default() }, &out.buffer))
}

/// The least of three times that `launch` takes, compiled before.
pub(crate) fn least_seconds(gpu: &'static Gpu, mut launch: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut run = || {
        launch()?;
        gpu.synchronize()
    };
    run()?;
    let mut least = f64::INFINITY;
    for _ in 0..3 {
        let begun = Instant::now();
        run()?;
        least = least.min(begun.elapsed().as_secs_f64());
    }
    Ok(least)
}
