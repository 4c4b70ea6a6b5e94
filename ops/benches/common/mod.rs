//! What benchmarks on a GPU share: the card, timing, and the ceilings that results are compared with.

use hankel_core::gpu::{Gpu, Kernel, groups};
use hankel_core::{Device, Random, Result, Tensor};
use std::time::Instant;

/// The GPU that `HANKEL_BENCH_DEVICE` names, or the first; says so when there is none.
pub fn gpu() -> Option<&'static Gpu> {
    let name = std::env::var("HANKEL_BENCH_DEVICE").unwrap_or_else(|_| "gpu".to_owned());
    match Gpu::open(&name) {
        Ok(gpu) => Some(gpu),
        Err(problem) => {
            println!("skipped: {problem}");
            None
        }
    }
}

/// Whether shapes should be small: software takes minutes for what a card does in milliseconds.
pub fn is_software(gpu: &Gpu) -> bool {
    gpu.facts().kind == "software"
}

/// A random matrix on the GPU.
pub fn matrix(gpu: &'static Gpu, rows: usize, cols: usize) -> Result<Tensor> {
    let values = Random::new(0, "bench", 0).normal_vec::<f32>(rows * cols, 1.0);
    Tensor::from_vec(values, [rows, cols])?.to_device(Device::Gpu(gpu))
}

/// Seconds for one call of `f`, whose kernels are all on `gpu`: of enough calls to last a tenth of a second, after one that
/// compiles.
pub fn seconds<T>(gpu: &Gpu, mut f: impl FnMut() -> Result<T>) -> Result<f64> {
    let mut run = |calls: u32| -> Result<f64> {
        let begun = Instant::now();
        for _ in 0..calls {
            f()?;
        }
        gpu.synchronize()?;
        Ok(begun.elapsed().as_secs_f64())
    };
    run(1)?;
    let mut calls = 1;
    loop {
        let elapsed = run(calls)?;
        if elapsed > 0.1 {
            return Ok(elapsed / f64::from(calls));
        }
        calls = (calls * 2).max((f64::from(calls) * 0.15 / elapsed.max(1e-6)) as u32).min(1 << 16);
    }
}

static FMA: Kernel = Kernel { name: "fma ceiling", source: include_str!("fma.wgsl"), bindings: "w" };
static COPY: Kernel = Kernel { name: "copy ceiling", source: include_str!("copy.wgsl"), bindings: "rw" };

/// What the card reaches at best.
#[derive(Debug, Clone, Copy)]
pub struct Ceiling {
    /// f32 operations per second, two for each multiply-add, in registers alone.
    pub flops: f64,
    /// Bytes read and written per second by a copy.
    pub bytes: f64,
}

impl Ceiling {
    /// Measures both.
    ///
    /// # Errors
    /// When the card fails.
    pub fn measure(gpu: &'static Gpu) -> Result<Self> {
        let (lanes, turns, size) = if is_software(gpu) { (1 << 12, 64, 1 << 22) } else { (1 << 20, 1024, 1 << 28) };
        let out = gpu.allocate(4 * lanes as u64)?;
        let once = seconds(gpu, || gpu.launch(&FMA, &[], &[&out], &[turns, 0.999_f32.to_bits()], groups(lanes, 256)))?;
        // 8 vectors of 4, 4 multiply-adds of each in a turn.
        let flops = lanes as f64 * f64::from(turns) * 8.0 * 4.0 * 4.0 * 2.0 / once;
        let (from, to) = (gpu.allocate(size)?, gpu.allocate(size)?);
        let vectors = (size / 16) as usize;
        let once = seconds(gpu, || gpu.launch(&COPY, &[], &[&from, &to], &[vectors as u32], groups(vectors, 256)))?;
        Ok(Ceiling { flops, bytes: 2.0 * size as f64 / once })
    }

    /// What the card is and what it reaches.
    pub fn print(&self, gpu: &Gpu) {
        let facts = gpu.facts();
        println!(
            "{} ({}, {}): {:.2} TFLOP/s in f32 multiply-adds, {:.1} GB/s in copies",
            facts.name,
            facts.kind,
            facts.driver,
            self.flops / 1e12,
            self.bytes / 1e9
        );
    }
}
