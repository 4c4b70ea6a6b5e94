//! What a card can do at most, measured in the same run, and timing of work on it.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId};
use hankel_core::gpu::{Gpu, Kernel, groups};
use hankel_core::{Result, Tensor};
use std::time::{Duration, Instant};

/// Multiplications and additions in registers, 8 chains of 4 numbers to a lane.
static FMA: Kernel = Kernel {
    name: "fma",
    source: "
        struct Parameters { turns: u32, factor: f32 }
        var<immediate> p: Parameters;
        @group(0) @binding(0) var<storage, read_write> y: array<vec4<f32>>;
        @compute @workgroup_size(256)
        fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
            let i = flat(group, groups) * 256u + lane;
            let start = f32(i) * 1e-9;
            let m = vec4(p.factor);
            var a = vec4(start); var b = vec4(start + 0.1); var c = vec4(start + 0.2); var d = vec4(start + 0.3);
            var e = vec4(start + 0.4); var f = vec4(start + 0.5); var g = vec4(start + 0.6); var h = vec4(start + 0.7);
            for (var n = 0u; n < p.turns; n++) {
                a = fma(a, m, m); b = fma(b, m, m); c = fma(c, m, m); d = fma(d, m, m);
                e = fma(e, m, m); f = fma(f, m, m); g = fma(g, m, m); h = fma(h, m, m);
            }
            y[i] = a + b + c + d + e + f + g + h;
        }",
    bindings: "w",
};
static COPY: Kernel = Kernel {
    name: "copy",
    source: "
        var<immediate> elements: u32;
        @group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
        @group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
        @compute @workgroup_size(256)
        fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
            let i = flat(group, groups) * 256u + lane;
            if i < elements { y[i] = x[i]; }
        }",
    bindings: "rw",
};

/// Measured limits of a card.
#[derive(Clone, Copy)]
pub struct Ceiling {
    pub gpu: &'static Gpu,
    /// Operations in `f32` per second, a multiplication and an addition as two.
    pub flops: f64,
    /// Bytes read and written per second.
    pub bytes: f64,
}

/// What a piece of work consists of.
#[derive(Clone, Copy)]
pub enum Work {
    Flops(f64),
    Bytes(f64),
}

/// Seconds of `launches` calls of `launch`, from an idle card to an idle card.
fn seconds(gpu: &'static Gpu, launches: u64, mut launch: impl FnMut() -> Result<()>) -> f64 {
    gpu.synchronize().expect("the card works");
    let begun = Instant::now();
    for _ in 0..launches {
        launch().expect("the card works");
    }
    gpu.synchronize().expect("the card works");
    begun.elapsed().as_secs_f64()
}

/// The most work per second, of five tries of at least 50 ms.
fn fastest(gpu: &'static Gpu, work: f64, launch: impl Fn() -> Result<()>) -> f64 {
    let mut launches = 1;
    while seconds(gpu, launches, &launch) < 0.05 {
        launches *= 2;
    }
    (0..5).map(|_| launches as f64 * work / seconds(gpu, launches, &launch)).fold(0.0, f64::max)
}

impl Ceiling {
    /// Measures `gpu`, and prints what it found.
    pub fn measure(gpu: &'static Gpu) -> Self {
        let software = gpu.facts().kind == "software";
        let (lanes, turns) = if software { (1 << 14, 64) } else { (1 << 20, 512) };
        let bytes = if software { 32 << 20 } else { 512 << 20 }.min(gpu.facts().max_binding / 2);
        let room = |bytes| gpu.allocate(bytes).expect("room for a copy");
        let (x, y, elements) = (room(bytes), room(bytes), bytes as usize / 16);
        let flops = fastest(gpu, 64.0 * (lanes * turns) as f64, || {
            gpu.launch(&FMA, &[], &[&y], &[turns as u32, 0.5_f32.to_bits()], groups(lanes, 256))
        });
        let bytes = fastest(gpu, 2.0 * bytes as f64, || {
            gpu.launch(&COPY, &[], &[&x, &y], &[elements as u32], groups(elements, 256))
        });
        let found = Ceiling { gpu, flops, bytes };
        println!("{}: {:.3} TFLOP/s in f32, {:.1} GB/s", gpu.facts().name, flops * 1e-12, bytes * 1e-9);
        found
    }

    /// Whether the card does this in good time.
    pub fn can(&self, work: Work) -> bool {
        // So many seconds at the ceiling: more on a card, which comes nearer to it than a software driver.
        let seconds = if self.gpu.facts().kind == "software" { 0.002 } else { 0.02 };
        match work {
            Work::Flops(flops) => flops <= seconds * self.flops,
            Work::Bytes(bytes) => bytes <= seconds * self.bytes,
        }
    }

    /// Times `run`, unless it is too much for the card, and prints the rate of its fastest sample beside the ceiling.
    pub fn bench<R>(
        &self,
        group: &mut BenchmarkGroup<WallTime>,
        (name, label): (&str, &str),
        work: Work,
        mut run: impl FnMut() -> Result<R>,
    ) {
        let (amount, most, unit) = match work {
            Work::Flops(flops) => (flops, self.flops, "GFLOP/s"),
            Work::Bytes(bytes) => (bytes, self.bytes, "GB/s"),
        };
        if !self.can(work) {
            println!("{name} {label}: left out, too much for this card");
            return;
        }
        let mut least = f64::INFINITY;
        group.bench_function(BenchmarkId::new(name, label), |bench| {
            // What `run` makes in its first call would count as time of the work, and an idle card needs some work to reach its clock.
            for _ in 0..2 {
                seconds(self.gpu, 8, || run().map(drop));
            }
            bench.iter_custom(|n| {
                let seconds = seconds(self.gpu, n, || run().map(drop));
                least = least.min(seconds / n as f64);
                Duration::from_secs_f64(seconds)
            });
        });
        if least.is_finite() {
            let rate = amount / least;
            println!("{name} {label}: {:.2} {unit}, {:.1} % of the ceiling", rate * 1e-9, 100.0 * rate / most);
        }
    }

    /// A tensor of some numbers, there.
    pub fn tensor(&self, shape: &[usize]) -> Tensor {
        let n = shape.iter().product();
        let values: Vec<f32> = (0..n).map(|i: usize| (i as f32 * 0.7).sin()).collect();
        let here = Tensor::from_vec(values, shape).expect("as many as the shape has");
        here.to_device(hankel_core::Device::Gpu(self.gpu)).expect("room for it")
    }
}
