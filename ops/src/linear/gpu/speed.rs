//! Whether products in f16 save time on a card: measured, as a feature of a driver says nothing of its speed.

use super::gemm::{Epilogue, Left, Right, gemm};
use hankel_core::gpu::{Gpu, GpuStorage};
use hankel_core::{Precision, Result};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Seconds that a product has to take to be compared, unless it is as large as will be tried.
const LONG_ENOUGH: f64 = 1e-3;
/// Edges of the matrices, the first and the last that are tried.
const EDGES: [usize; 2] = [128, 2048];
/// The share of the time in f32 that f16 has to stay below: what saves little is not worth the digits, and the choice does not
/// change from run to run.
const WORTH: f64 = 0.8;

/// Cards measured so far, and what was found.
static MEASURED: Mutex<Vec<(&'static Gpu, bool)>> = Mutex::new(Vec::new());

/// Whether products in f16 on `gpu`, which are right, take clearly less time than those in f32, conversions included. It takes
/// some milliseconds, once for each card.
///
/// # Errors
/// When they cannot be run.
pub(crate) fn f16_is_faster(gpu: &'static Gpu) -> Result<bool> {
    // Held throughout: who asks meanwhile waits for the answer.
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, faster)) = measured.iter().find(|(other, _)| std::ptr::eq(*other, gpu)) {
        return Ok(*faster);
    }
    let [mut edge, last] = EDGES;
    let mut single = seconds(gpu, edge, Precision::F32)?;
    while single < LONG_ENOUGH && edge < last {
        edge *= 2;
        single = seconds(gpu, edge, Precision::F32)?;
    }
    let faster = seconds(gpu, edge, Precision::F16)? < WORTH * single;
    measured.push((gpu, faster));
    Ok(faster)
}

/// The least of three times that a product of two square matrices takes, compiled before.
fn seconds(gpu: &'static Gpu, edge: usize, precision: Precision) -> Result<f64> {
    let square = || GpuStorage::filled(gpu, edge * edge, 0.5);
    let (a, b, out) = (square()?, square()?, square()?);
    let left = Left { data: &a.buffer, first: 0, rows: edge, cols: edge, transposed: false };
    let right = Right { storage: &b, first: 0, rows: edge, cols: edge, transposed: true };
    let run = || {
        gemm(gpu, left, right, Epilogue { precision, ..Epilogue::default() }, &out.buffer)?;
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
