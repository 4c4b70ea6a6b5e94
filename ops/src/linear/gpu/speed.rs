//! Whether products in f16 save time on a card: measured, as a feature of a driver says nothing of its speed.

use super::gemm::{Epilogue, Left, Right, gemm};
use crate::gpu::Answers;
use hankel_core::gpu::{Gpu, GpuStorage};
use hankel_core::{Error, Precision, Result};
use std::time::{Duration, Instant};

/// Seconds that a product has to take to be compared, unless it is as large as will be tried.
pub(crate) const LONG_ENOUGH: f64 = 1e-3;
/// Edges of the matrices, the first and the last that are tried.
const EDGES: [usize; 2] = [128, 2048];
/// The share of the time in f32 that f16 has to stay below: what saves little is not worth the digits, and the choice does not
/// change from run to run.
pub(crate) const WORTH: f64 = 0.8;
/// Work before times are taken.
const WARM_UP: Duration = Duration::from_millis(20);

static MEASURED: Answers<()> = Answers::new();

/// Whether products in f16 on `gpu`, which are right, take clearly less time than those in f32, conversions included. It takes
/// some hundredths of a second, once for each card.
///
/// # Errors
/// When they cannot be run.
pub(crate) fn f16_is_faster(gpu: &'static Gpu) -> Result<bool> {
    MEASURED.get(gpu, (), || {
        let [mut edge, last] = EDGES;
        while seconds(gpu, edge, [Precision::F32])?[0] < LONG_ENOUGH && edge < last {
            edge *= 2;
        }
        let [single, half] = seconds(gpu, edge, [Precision::F32, Precision::F16])?;
        Ok(half < WORTH * single)
    })
}

/// The least of three times that a product of two square matrices takes in each precision.
fn seconds<const N: usize>(gpu: &'static Gpu, edge: usize, precisions: [Precision; N]) -> Result<[f64; N]> {
    let square = || GpuStorage::filled(gpu, edge * edge, 0.5);
    let (a, b, out) = (square()?, square()?, square()?);
    let left = Left { data: &a.buffer, first: 0, rows: edge, cols: edge, transposed: false, tensor: None };
    let right = Right { storage: &b, first: 0, rows: edge, cols: edge, transposed: true };
    let launches = precisions.map(|precision| {
        let out = &out.buffer;
        move || gemm(gpu, left, right, Epilogue { precision, ..Epilogue::default() }, out)
    });
    least_seconds(gpu, launches.each_ref().map(|launch| launch as &dyn Fn() -> Result<()>))
}

/// The least of three times that each of `launches` takes, one after another, compiled before. The clock of a card rises under load: without a
/// time of work before, what is measured first would seem slower.
pub(crate) fn least_seconds<const N: usize>(
    gpu: &'static Gpu,
    launches: [&dyn Fn() -> Result<()>; N],
) -> Result<[f64; N]> {
    let run = |launch: &dyn Fn() -> Result<()>| {
        let begun = Instant::now();
        launch()?;
        gpu.synchronize()?;
        Ok::<_, Error>(begun.elapsed())
    };
    let begun = Instant::now();
    loop {
        launches.iter().try_for_each(|launch| run(launch).map(|_| ()))?;
        // One by itself is compared with nothing.
        if N == 1 || begun.elapsed() >= WARM_UP {
            break;
        }
    }
    let mut least = [f64::INFINITY; N];
    for _ in 0..3 {
        for (launch, least) in launches.iter().zip(&mut least) {
            *least = least.min(run(launch)?.as_secs_f64());
        }
    }
    Ok(least)
}
