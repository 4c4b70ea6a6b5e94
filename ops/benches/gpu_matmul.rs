//! Products of matrices on a GPU at the sizes of TinyGPT and Mistral, each way beside the others and beside the card's ceiling.
//!
//! Arguments are parts of names: only lines that contain one of them are measured. On a software driver the larger shapes are
//! left out; `all` asks for them.

#[path = "common/mod.rs"]
mod common;

use common::{Ceiling, gpu, is_software, matrix, seconds};
use hankel_core::gpu::Gpu;
use hankel_core::{DType, Device, Precision, Result, Tensor};
use hankel_ops::linear::nf4;
use hankel_ops::linear::ways::{Tile, Way, product};

/// Operations that a software driver does in some seconds.
const SOFTWARE: f64 = 6e8;

/// (what, rows of the result, its columns, steps).
const SHAPES: &[(&str, usize, usize, usize)] = &[
    ("TinyGPT projection", 16384, 128, 128),
    ("TinyGPT up", 16384, 512, 128),
    ("TinyGPT down", 16384, 128, 512),
    ("square", 512, 512, 512),
    ("square", 1024, 1024, 1024),
    ("square", 4096, 4096, 4096),
    ("Mistral q", 256, 4096, 4096),
    ("Mistral q", 1024, 4096, 4096),
    ("Mistral q", 4096, 4096, 4096),
    ("Mistral k", 1024, 1024, 4096),
    ("Mistral up", 256, 14336, 4096),
    ("Mistral up", 1024, 14336, 4096),
    ("Mistral up", 4096, 14336, 4096),
    ("Mistral down", 1024, 4096, 14336),
    ("LoRA in", 4096, 16, 4096),
    ("LoRA out", 4096, 4096, 16),
    ("one token q", 1, 4096, 4096),
    ("one token up", 1, 14336, 4096),
    ("small", 128, 128, 128),
    ("small", 256, 256, 256),
];

/// How the factors are stored: the forward pass, the gradients of the input and of the weight.
const FORMS: &[(&str, bool, bool)] = &[("NT", false, true), ("NN", false, false), ("TN", true, false)];

const WAYS: &[(&str, Way)] = &[
    ("f32, chosen", Way::Chosen(Precision::F32)),
    ("f32, 64 x 64", Way::Tiles(Tile::Small)),
    ("f32, 128 x 128", Way::Tiles(Tile::Large)),
    ("f32, 128 x 128, decoded first", Way::Decoded(Tile::Large)),
    ("f16, cooperative", Way::Chosen(Precision::F16)),
];

fn stored(gpu: &'static Gpu, rows: usize, cols: usize, dtype: DType) -> Result<Tensor> {
    let plain = matrix(gpu, rows, cols)?.to_device(Device::Cpu)?;
    let stored = match dtype {
        DType::Nf4 => nf4::quantize(&plain.to_dtype(DType::BF16)?, true)?,
        dtype => plain.to_dtype(dtype)?,
    };
    stored.to_device(Device::Gpu(gpu))
}

fn run(gpu: &'static Gpu, wanted: &[String]) -> Result<()> {
    let ceiling = Ceiling::measure(gpu)?;
    ceiling.print(gpu);
    println!(
        "{:<24} {:>18}  {:<4} {:<5} {:<30} {:>10} {:>10} {:>9}",
        "", "m x n x k", "", "b", "way", "ms", "GFLOP/s", "ceiling"
    );
    let all = wanted.iter().any(|word| word == "all");
    for &(what, m, n, k) in SHAPES {
        let flops = 2.0 * (m * n * k) as f64;
        if is_software(gpu) && flops > SOFTWARE && !all {
            continue;
        }
        for &(form, turned_a, turned_b) in FORMS {
            let a = if turned_a { matrix(gpu, k, m)? } else { matrix(gpu, m, k)? };
            // A weight's gradient has two factors in f32.
            let formats: &[DType] =
                if turned_a { &[DType::F32] } else { &[DType::F32, DType::BF16, DType::F16, DType::Nf4] };
            for &dtype in formats {
                let mut b = None;
                for &(name, way) in WAYS {
                    let line = format!(
                        "{what:<24} {:>18}  {form:<4} {:<5} {name:<30}",
                        format!("{m} x {n} x {k}"),
                        dtype.name()
                    );
                    let asked = wanted.iter().all(|word| word == "all" || line.contains(word.as_str()));
                    let useless = matches!(way, Way::Decoded(_)) && dtype != DType::Nf4;
                    if !asked || useless {
                        continue;
                    }
                    if b.is_none() {
                        b = Some(if turned_b { stored(gpu, n, k, dtype)? } else { stored(gpu, k, n, dtype)? });
                    }
                    let Some(b) = &b else { continue };
                    match product(way, (&a, turned_a), (b, turned_b)) {
                        Ok(_) => {}
                        // No matrix units, or a shape that is not for them.
                        Err(hankel_core::Error::Placement { .. }) => continue,
                        Err(problem) => return Err(problem),
                    }
                    let once = seconds(gpu, || product(way, (&a, turned_a), (b, turned_b)))?;
                    println!(
                        "{line} {:>10.3} {:>10.1} {:>8.1}%",
                        1e3 * once,
                        flops / once / 1e9,
                        100.0 * flops / once / ceiling.flops
                    );
                }
            }
        }
    }
    Ok(())
}

fn main() {
    // cargo passes `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let Some(gpu) = gpu()
        && let Err(problem) = run(gpu, &wanted)
    {
        println!("{problem}");
        std::process::exit(1);
    }
}
