//! Quantising to 4 bits (bytes of bf16 input per second), products with a 4-bit weight beside f32 and bf16 ones in
//! both precisions, and products of one and of eight rows with weights in every type (bytes of weights per second, beside a copy:
//! bytes read and written).

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hankel_core::block_formats::{BlockMatrix, GGML_FORMATS};
use hankel_core::{Buffer, DType, Precision, Random, Tensor, parallel, with_precision};
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

    few_rows(c);
    mistral(c);
}

/// Steps of generation: the largest product of a Mistral block.
fn few_rows(c: &mut Criterion) {
    const OUTPUTS: usize = 14336;
    let plain = matrix(OUTPUTS, SIZE);
    let half = plain.to_dtype(DType::BF16).expect("a float");
    let mut weights = vec![quantize(&half, true).expect("finite"), half, plain.to_dtype(DType::F16).expect("a float")];
    for (_, format) in GGML_FORMATS {
        let bytes = OUTPUTS * SIZE / format.block_size() * format.block_bytes();
        // Random codes; the mask leaves every half-precision scale below 1.
        let bytes: Vec<u8> = (0..bytes).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 16) as u8 & 0x3b).collect();
        let blocks = BlockMatrix::new(format, Buffer::from(bytes), OUTPUTS * SIZE).expect("whole blocks");
        weights.push(Tensor::from_blocks(blocks, [OUTPUTS, SIZE]).expect("a matrix"));
    }
    weights.push(plain);
    let source = vec![1_u8; 256 << 20];
    let mut target = vec![0_u8; source.len()];
    let mut group = c.benchmark_group("copy");
    group.throughput(Throughput::Bytes(2 * source.len() as u64));
    group.bench_function("256 MiB", |bench| {
        bench.iter(|| {
            parallel::for_row_blocks(&mut target, 1, 1 << 20, |first, piece| {
                piece.copy_from_slice(&source[first..first + piece.len()]);
            });
        });
    });
    group.finish();
    for rows in [1, 8] {
        let x = matrix(rows, SIZE);
        let mut group = c.benchmark_group(format!("{rows} rows of {SIZE} to {OUTPUTS}"));
        for weight in &weights {
            group.throughput(Throughput::Bytes(weight.bytes() as u64));
            group.bench_function(BenchmarkId::new("forward", weight.dtype()), |bench| {
                bench.iter(|| linear(black_box(&x), weight, None).expect("shapes fit"));
            });
        }
        group.finish();
    }
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
