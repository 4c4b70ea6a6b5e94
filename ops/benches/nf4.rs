//! Quantising to 4 bits (bytes of bf16 input per second), and products with a 4-bit weight beside f32 and bf16 ones in
//! both precisions.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hankel_core::{DType, Precision, Random, Tensor, with_precision};
use hankel_ops::linear;
use hankel_ops::linear::nf4::quantize;
use std::hint::black_box;

const SIZE: usize = 4096;

fn matrix(rows: usize, cols: usize) -> Tensor {
    let random = Random::new(0, "bench", 0);
    let values = (0..(rows * cols) as u64).map(|i| (random.uniform(i) - 0.5) as f32).collect();
    Tensor::from_vec(values, [rows, cols]).expect("a matrix")
}

fn all(c: &mut Criterion) {
    let weight = matrix(SIZE, SIZE);
    let half = weight.to_dtype(DType::BF16).expect("a float");
    let mut group = c.benchmark_group("quantize");
    group.throughput(Throughput::Bytes(half.bytes() as u64));
    for double in [false, true] {
        group.bench_function(BenchmarkId::new("bf16", if double { "double" } else { "plain" }), |bench| {
            bench.iter(|| quantize(black_box(&half), double).expect("finite"));
        });
    }
    group.finish();

    mistral(c);
}

/// The largest product of a Mistral block, with 256 tokens: operations per second.
fn mistral(c: &mut Criterion) {
    const ROWS: usize = 256;
    const OUTPUTS: usize = 14336;
    let weight = matrix(OUTPUTS, SIZE);
    let half = weight.to_dtype(DType::BF16).expect("a float");
    let quantized = quantize(&half, true).expect("finite");
    let (x, g) = (matrix(ROWS, SIZE).parameter().expect("a float"), matrix(ROWS, OUTPUTS));
    let mut group = c.benchmark_group(format!("linear {ROWS} x {SIZE} x {OUTPUTS}"));
    group.throughput(Throughput::Elements(2 * (ROWS * SIZE * OUTPUTS) as u64));
    for weight in [&weight, &half, &quantized] {
        for precision in [Precision::F32, Precision::Bf16] {
            let label = format!("{} in {precision}", weight.dtype());
            let forward = || with_precision(precision, || linear(black_box(&x), weight, None)).expect("shapes fit");
            group.bench_function(BenchmarkId::new("forward", &label), |bench| bench.iter(forward));
            group.bench_function(BenchmarkId::new("input gradient", &label), |bench| {
                bench.iter_batched(forward, |y| y.backward_with(g.clone()).expect("tracked"), BatchSize::PerIteration);
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(2));
    targets = all
}
criterion_main!(benches);
