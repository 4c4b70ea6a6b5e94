//! Quantising to 4 bits (bytes of bf16 input per second), products with a 4-bit weight beside f32 and bf16 ones, and the
//! product with one row (bytes of weights per second).

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hankel_core::{DType, Random, Tensor};
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

    let quantized = quantize(&half, true).expect("finite");
    let x = matrix(1, SIZE);
    for weight in [&weight, &half, &weight.to_dtype(DType::F16).expect("a float"), &quantized] {
        let mut group = c.benchmark_group("one row");
        group.throughput(Throughput::Bytes(weight.bytes() as u64));
        group.bench_function(BenchmarkId::new("forward", weight.dtype()), |bench| {
            bench.iter(|| linear(black_box(&x), weight, None).expect("shapes fit"));
        });
        group.finish();
    }
    for rows in [64, 512] {
        let mut group = c.benchmark_group(format!("linear {rows} x {SIZE} x {SIZE}"));
        group.throughput(Throughput::Elements(2 * (rows * SIZE * SIZE) as u64));
        let x = matrix(rows, SIZE);
        for weight in [&weight, &half, &quantized] {
            group.bench_function(BenchmarkId::new("forward", weight.dtype()), |bench| {
                bench.iter(|| linear(black_box(&x), weight, None).expect("shapes fit"));
            });
            group.bench_function(BenchmarkId::new("forward and input gradient", weight.dtype()), |bench| {
                let x = x.parameter().expect("a float");
                bench.iter(|| {
                    let y = linear(black_box(&x), weight, None).expect("shapes fit");
                    y.backward_with(Tensor::full([rows, SIZE], 1.0_f32)).expect("tracked")
                });
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(2));
    targets = all
}
criterion_main!(benches);
