//! Operators on a GPU at the shapes of training steps, beside what the card can do: `cargo bench --bench gpu`, with a filter of
//! names if wanted. What would take a card long is left out, so a software driver runs the small sizes.
//!
//! Operations of attention: the causal half only, 2 products forward and 5 backward. Bytes: what has to be read and written at
//! least, whatever the kernels move beyond that.

mod ceiling;

use ceiling::{Ceiling, Work};
use criterion::{Criterion, criterion_group, criterion_main};
use hankel_core::gpu::for_tests;
use hankel_core::{Tensor, no_grad, with_precision};
use hankel_ops::linear::gpu_precisions;
use hankel_ops::optimizer::{AdamW, Moments, Rate, Scale, gradient_norm};
use hankel_ops::{Heads, Poles, ScanPath, add, attention, causal_conv, embedding, gelu, layer_norm, rms_norm, scan};

/// The gradients of a new evaluation.
fn differentiate(f: impl Fn() -> hankel_core::Result<Tensor>, seed: &Tensor) -> hankel_core::Result<()> {
    f()?.backward_with(seed.clone()).map(drop)
}

fn attentions(c: &mut Criterion, card: &Ceiling) {
    let mut group = c.benchmark_group("attention");
    // Heads of TinyGPT and of Mistral-7B.
    for (query, key_value, head_dim) in [(4, 4, 32), (32, 8, 128)] {
        for (batch, tokens) in [(1, 256), (8, 512), (4, 1024), (2, 2048), (1, 4096)] {
            let heads = Heads { query, key_value };
            let label = format!("{batch} x {tokens} tokens, {query}/{key_value} heads of {head_dim}");
            let product = (batch * query * head_dim * tokens * (tokens + 1)) as f64;
            if !card.can(Work::Flops(7.0 * product)) {
                println!("{label}: left out, too much for this card");
                continue;
            }
            let leaf = |heads: usize| card.tensor(&[batch, tokens, heads * head_dim]).parameter().expect("floats");
            let (q, k, v) = (leaf(query), leaf(key_value), leaf(key_value));
            let run = || attention(&q, &k, &v, heads, None);
            let seed = card.tensor(q.shape());
            for precision in gpu_precisions(card.gpu.facts()) {
                let label = format!("{label}, {precision}");
                card.bench(&mut group, ("forward", &label), Work::Flops(2.0 * product), || {
                    with_precision(precision, || no_grad(run))
                });
                card.bench(&mut group, ("forward and backward", &label), Work::Flops(7.0 * product), || {
                    with_precision(precision, || differentiate(run, &seed))
                });
            }
        }
    }
    group.finish();
}

fn recurrences(c: &mut Criterion, card: &Ceiling) {
    let mut group = c.benchmark_group("recurrence");
    let dim = 32;
    for (batch, tokens) in [(1, 512), (8, 512), (8, 1024), (8, 2048), (8, 4096)] {
        let u = card.tensor(&[batch, tokens, dim]).parameter().expect("floats");
        let poles: Vec<f32> = (0..dim).map(|i| 1.0 - 0.5_f32.powi(1 + i as i32 % 11)).collect();
        let poles = Tensor::from_vec(poles, [dim]).and_then(|a| a.to_device(u.device())).expect("room");
        let poles = Poles::Diagonal(poles.parameter().expect("floats"));
        let seed = card.tensor(u.shape());
        let bytes = 4.0 * u.elements() as f64;
        let label = format!("{batch} x {tokens} x {dim}");
        for (name, path) in [("chunked", ScanPath::Chunked), ("fft", ScanPath::Fft)] {
            let run = || scan(&u, &poles, None, path);
            card.bench(&mut group, (name, &label), Work::Bytes(2.0 * bytes), || no_grad(run));
            // Gradient and states read, the adjoint written.
            let name = format!("{name} and backward");
            card.bench(&mut group, (&name, &label), Work::Bytes(5.0 * bytes), || differentiate(run, &seed));
        }
    }
    group.finish();
}

fn convolutions(c: &mut Criterion, card: &Ceiling) {
    let mut group = c.benchmark_group("causal_conv");
    for (batch, tokens, channels) in [(2, 256, 8), (8, 1024, 32), (8, 4096, 32), (2, 16_384, 32), (1, 131_072, 32)] {
        let u = card.tensor(&[batch, tokens, channels]).parameter().expect("floats");
        let kernel = card.tensor(&[channels, tokens]).parameter().expect("floats");
        let seed = card.tensor(u.shape());
        // Transforms of twice the length, of the kernel and there and back of pairs of sequences; then as many again for each
        // gradient, the kernel's with one more.
        let n = (2 * tokens).next_power_of_two() as f64;
        let transform = 5.0 * n * n.log2() * channels as f64;
        let pairs = batch.div_ceil(2) as f64;
        let forward = (1.0 + 2.0 * pairs) * transform;
        let label = format!("{batch} x {tokens} x {channels}");
        let run = || causal_conv(&u, &kernel);
        card.bench(&mut group, ("forward", &label), Work::Flops(forward), || no_grad(run));
        card.bench(&mut group, ("forward and backward", &label), Work::Flops(3.0 * forward), || {
            differentiate(run, &seed)
        });
    }
    group.finish();
}

fn memory(c: &mut Criterion, card: &Ceiling) {
    let mut group = c.benchmark_group("memory");
    for (rows, width) in [(2048, 128), (4096, 4096)] {
        let (n, label) = (4.0 * (rows * width) as f64, format!("{rows} x {width}"));
        if !card.can(Work::Bytes(3.0 * n)) {
            println!("{label}: left out, too much for this card");
            continue;
        }
        let (x, w) = (card.tensor(&[rows, width]), card.tensor(&[width]));
        card.bench(&mut group, ("add", &label), Work::Bytes(3.0 * n), || add(&x, &x));
        card.bench(&mut group, ("gelu", &label), Work::Bytes(2.0 * n), || gelu(&x));
        card.bench(&mut group, ("rms_norm", &label), Work::Bytes(2.0 * n), || rms_norm(&x, &w, 1e-5));
        card.bench(&mut group, ("layer_norm", &label), Work::Bytes(2.0 * n), || layer_norm(&x, &w, Some(&w), 1e-5));
        let table = card.tensor(&[8192, width]);
        let ids = (0..rows as u32).map(|i| i.wrapping_mul(2_654_435_761) % 8192).collect();
        let ids = Tensor::from_vec(ids, [1, rows]).expect("as many as rows");
        card.bench(&mut group, ("embedding", &label), Work::Bytes(2.0 * n), || embedding(&ids, &table));
    }
    group.finish();
}

fn optimizer(c: &mut Criterion, card: &Ceiling) {
    let mut group = c.benchmark_group("optimizer");
    for n in [1 << 16, 1 << 22, 1 << 26] {
        if !card.can(Work::Bytes(28.0 * f64::from(n))) {
            println!("{n} parameters: left out, too much for this card");
            continue;
        }
        let n = n as usize;
        let (mut value, gradient) = (card.tensor(&[n]), card.tensor(&[n]));
        let mut moments = Moments::new(&value).expect("room");
        let label = format!("{n} parameters");
        let bytes = 4.0 * n as f64;
        card.bench(&mut group, ("gradient_norm", &label), Work::Bytes(bytes), || gradient_norm([&gradient]));
        let norm = gradient_norm([&gradient]).expect("the card works");
        let (optimizer, mut step) = (AdamW { betas: [0.9, 0.999], eps: 1e-8 }, 0);
        // Four arrays read, three written.
        card.bench(&mut group, ("adamw", &label), Work::Bytes(7.0 * bytes), || {
            step += 1;
            let (scale, rate) = (Scale::Clip { norm: &norm, limit: 1.0 }, Rate { lr: 1e-3, weight_decay: 0.01 });
            optimizer.update(&mut value, &gradient, &mut moments, step, scale, rate)
        });
    }
    group.finish();
}

fn all(c: &mut Criterion) {
    let Some(gpu) = for_tests() else { return };
    let card = Ceiling::measure(gpu);
    for part in [attentions, recurrences, convolutions, memory, optimizer] {
        part(c, &card);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = all
}
criterion_main!(benches);
