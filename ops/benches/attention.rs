//! Causal attention at the shapes of a training step. Operations counted: the causal half only, 2 products forward and
//! 5 backward.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hankel_core::{Precision, Tensor};
use hankel_ops::KeyValues;
use hankel_ops::attention::cpu::tiles::{Gradients, Heads, Shape, backward, forward};

fn all(c: &mut Criterion) {
    let mut group = c.benchmark_group("attention");
    for (batch, tokens, heads, kv_heads, head_dim) in
        [(32, 512, 4, 4, 32), (8, 1024, 4, 4, 32), (4, 2048, 4, 4, 32), (1, 1024, 8, 2, 128)]
    {
        let shape = Shape { kv_heads, ..Shape::causal(batch, tokens, heads, head_dim) };
        let values = |n: usize, step: f32| -> Vec<f32> { (0..n).map(|i| (i as f32 * step).sin()).collect() };
        let n = batch * tokens * heads * head_dim;
        let n_k = batch * tokens * kv_heads * head_dim;
        let (q, k, v, d_out) = (values(n, 0.7), values(n_k, 1.3), values(n_k, 0.9), values(n, 0.3));
        let (mut out, mut lse) = (vec![0.0; n], vec![0.0; batch * heads * tokens]);
        let (mut d_q, mut d_k, mut d_v) = (vec![0.0; n], vec![0.0; n_k], vec![0.0; n_k]);
        let scale = 1.0 / (head_dim as f32).sqrt();
        let product = (batch * heads * head_dim * tokens * (tokens + 1)) as u64;
        let label = format!("{batch} x {tokens} tokens, {heads}/{kv_heads} heads of {head_dim}");
        for precision in [Precision::F32, Precision::Bf16] {
            let queries = |data| Heads::contiguous(data, tokens, heads, head_dim);
            let keys = |data| Heads::contiguous(data, tokens, kv_heads, head_dim);
            group.throughput(Throughput::Elements(2 * product));
            group.bench_function(BenchmarkId::new(format!("forward, {precision}"), &label), |bench| {
                bench.iter(|| forward(precision, shape, scale, queries(&q), keys(&k), keys(&v), &mut out, &mut lse));
            });
            group.throughput(Throughput::Elements(5 * product));
            group.bench_function(BenchmarkId::new(format!("backward, {precision}"), &label), |bench| {
                bench.iter(|| {
                    let (q, k, v) = (queries(&q), keys(&k), keys(&v));
                    let gradients = Gradients { q: Some(&mut d_q), k: Some(&mut d_k), v: Some(&mut d_v) };
                    backward(precision, shape, scale, [q, k, v, queries(&out), queries(&d_out)], &lse, gradients);
                });
            });
        }
    }
    group.finish();
}

/// One token after a context of 4,096: bytes of keys and values per second.
fn one_token(c: &mut Criterion) {
    const CONTEXT: usize = 4096;
    let mut group = c.benchmark_group("one token after 4096");
    for (query, key_value, dim) in [(9, 3, 64), (32, 8, 128)] {
        let heads = hankel_ops::Heads { query, key_value };
        let rows = |steps: usize, heads: usize| {
            let values = (0..steps * heads * dim).map(|i| (i as f32 * 0.7).sin()).collect();
            Tensor::from_vec(values, [1, steps, heads * dim]).expect("a matrix")
        };
        let (keys, one) = (rows(CONTEXT, key_value), rows(1, key_value));
        let mut seen = KeyValues::default();
        seen.attention(&rows(CONTEXT, query), &keys, &keys, heads, None).expect("shapes fit");
        let q = rows(1, query);
        group.throughput(Throughput::Bytes(2 * keys.bytes() as u64));
        group.bench_function(BenchmarkId::new("forward", format!("{query}/{key_value} heads of {dim}")), |bench| {
            // A clone, or the context would grow; it copies the last block only.
            bench.iter(|| seen.clone().attention(&q, &one, &one, heads, None).expect("shapes fit"));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = all, one_token
}
criterion_main!(benches);
