//! Products of matrices on a GPU at the sizes of TinyGPT and Mistral, each variant beside the others and beside what the card can do:
//! `cargo bench --bench gpu_matmul`, with a filter of names if wanted. What would take a card long is left out, so a software
//! driver runs the small sizes.

// Work in bytes is for the other benchmarks.
#[allow(dead_code)]
mod ceiling;

use ceiling::{Ceiling, Work};
use criterion::{Criterion, criterion_group, criterion_main};
use hankel_core::gpu::for_tests;
use hankel_core::{DType, Device, Precision, Result, Tensor};
use hankel_ops::linear::variants::{Tile, Variant, product};
use hankel_ops::linear::{check_precision, nf4};
use std::cell::OnceCell;
use std::time::Duration;

/// (what, rows of the result, its columns, steps of the sum).
const SHAPES: &[(&str, usize, usize, usize)] = &[
    ("small", 128, 128, 128),
    ("small", 256, 256, 256),
    ("square", 1024, 1024, 1024),
    ("square", 4096, 4096, 4096),
    ("TinyGPT projection", 16384, 128, 128),
    ("TinyGPT up", 16384, 512, 128),
    ("TinyGPT down", 16384, 128, 512),
    ("Mistral q", 256, 4096, 4096),
    ("Mistral q", 1024, 4096, 4096),
    ("Mistral k", 1024, 1024, 4096),
    ("Mistral up", 256, 14336, 4096),
    ("Mistral up", 1024, 14336, 4096),
    ("Mistral up", 4096, 14336, 4096),
    ("Mistral down", 1024, 4096, 14336),
    ("LoRA in", 4096, 16, 4096),
    ("LoRA out", 4096, 4096, 16),
    ("one token", 1, 4096, 4096),
    ("one token", 1, 14336, 4096),
];

/// How the factors are stored: the forward pass, the gradients of the input and of the weight.
const FORMS: &[(&str, bool, bool)] = &[("NT", false, true), ("NN", false, false), ("TN", true, false)];

const VARIANTS: &[(&str, Variant)] = &[
    ("f32, as chosen", Variant::Chosen(Precision::F32)),
    ("f32, 64 x 64", Variant::Tiles(Tile::Small)),
    ("f32, 128 x 128", Variant::Tiles(Tile::Large)),
    ("f32, 128 x 128, decoded before", Variant::Decoded(Tile::Large)),
    ("f16, cooperative", Variant::Chosen(Precision::F16)),
];

/// The right factor, quantised in main memory.
fn stored(card: &Ceiling, shape: &[usize], dtype: DType) -> Result<Tensor> {
    let plain = card.tensor(shape);
    if dtype != DType::Nf4 {
        return plain.to_dtype(dtype);
    }
    nf4::quantize(&plain.to_device(Device::Cpu)?.to_dtype(DType::BF16)?, true)?.to_device(plain.device())
}

fn all(c: &mut Criterion) {
    let Some(gpu) = for_tests() else { return };
    let card = Ceiling::measure(gpu);
    let half = check_precision(Device::Gpu(gpu), Precision::F16);
    if let Err(lack) = &half {
        println!("{lack}");
    }
    for &(what, m, n, k) in SHAPES {
        let work = Work::Flops(2.0 * (m * n * k) as f64);
        let label = format!("{what} {m} x {n} x {k}");
        if !card.can(work) {
            println!("{label}: left out, too much for this card");
            continue;
        }
        for &(form, turned_a, turned_b) in FORMS {
            let mut group = c.benchmark_group(format!("{label} {form}"));
            let a = OnceCell::new();
            // A weight's gradient has two factors in f32.
            let formats = [DType::F32, DType::BF16, DType::F16, DType::Nf4];
            for &dtype in if turned_a { &formats[..1] } else { &formats[..] } {
                let b = OnceCell::new();
                for &(name, variant) in VARIANTS {
                    let half_suits = half.is_ok() && !turned_a && m.min(n).min(k) >= 64;
                    if matches!(variant, Variant::Decoded(_)) && dtype != DType::Nf4
                        || variant == Variant::Chosen(Precision::F16) && !half_suits
                    {
                        continue;
                    }
                    // Made in the first call, so that what is filtered out costs nothing.
                    card.bench(&mut group, (name, &format!("{label} {form} {dtype}")), work, || {
                        let a = a.get_or_init(|| card.tensor(&if turned_a { [k, m] } else { [m, k] }));
                        let shape = if turned_b { [n, k] } else { [k, n] };
                        let b = b.get_or_init(|| stored(&card, &shape, dtype).expect("room for a weight"));
                        product(variant, (a, turned_a), (b, turned_b))
                    });
                }
            }
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(200));
    targets = all
}
criterion_main!(benches);
