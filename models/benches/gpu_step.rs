//! Whole training steps on a GPU, as `train fit` runs them: forward, backward, gradient norm and AdamW, nothing read back
//! between steps. TinyGPT with HRM and LoRA at equal parameters, and one layer of Mistral-7B's size in 4 bits with recompute.
//!
//! `cargo bench -p hankel-models --bench gpu_step`. Arguments behind `--`: parts of the names of cases (`T=512`, `mistral`);
//! `--batch N` for batches of another size than 32 (TinyGPT) and 1 (Mistral) and `--length T` for sequences of another length, as
//! a software driver needs them; `--precision f16` for that of products (f32 if not given); `--device NAME`.
//!
//! The share of the ceiling counts the operations of the frozen matrices, forward and for gradients of inputs, of the causal half
//! of attention, and of recompute where there is any, against multiply-adds in `f32` measured at the start; elementwise passes are
//! not counted.

// Criterion's part is for the other benchmarks.
#[allow(dead_code)]
#[path = "../../ops/benches/ceiling/mod.rs"]
mod ceiling;

use ceiling::Ceiling;
use hankel_core::gpu::Gpu;
use hankel_core::{Device, Precision, Random, Tensor, with_precision};
use hankel_models::adapters::{Hrm, HrmConfig, HrmPreset, Lora, LoraConfig};
use hankel_models::decoder::{InitType, LoadOptions, init_model};
use hankel_models::{
    AdapterConfig, AdapterSet, Backbone, Decoder, DecoderConfig, Parameter, Pass, Role, StepKey, TinyGpt, TinyGptConfig,
};
use hankel_ops::Targets;
use hankel_ops::linear::check_precision;
use hankel_ops::optimizer::{AdamW, Moments, Rate, Scale, gradient_norm};
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error>;

/// Steps before the clock runs: kernels are compiled and the pool fills.
const WARM_UP: u64 = 3;
/// The clock runs for about so long.
const ENOUGH: Duration = Duration::from_secs(3);

struct Arguments {
    names: Vec<String>,
    batch: Option<usize>,
    length: Option<usize>,
    precision: Precision,
    device: String,
}

impl Arguments {
    fn read() -> Result<Self, Error> {
        let mut arguments = Arguments {
            names: Vec::new(),
            batch: None,
            length: None,
            precision: Precision::F32,
            device: "gpu".to_owned(),
        };
        let mut given = std::env::args().skip(1);
        while let Some(argument) = given.next() {
            match &argument[..] {
                // What cargo adds.
                "--bench" => {}
                "--batch" => arguments.batch = Some(given.next().ok_or("--batch takes a number")?.parse()?),
                "--length" => arguments.length = Some(given.next().ok_or("--length takes a number")?.parse()?),
                "--precision" => {
                    arguments.precision = match given.next().as_deref() {
                        Some("f32") => Precision::F32,
                        Some("f16") => Precision::F16,
                        _ => return Err("--precision takes f32 or f16".into()),
                    };
                }
                "--device" => arguments.device = given.next().ok_or("--device takes a name")?,
                _ => arguments.names.push(argument),
            }
        }
        Ok(arguments)
    }

    fn lengths(&self, usual: &[usize]) -> Vec<usize> {
        self.length.map_or_else(|| usual.to_vec(), |length| vec![length])
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|part| name.contains(part.as_str()))
    }
}

fn adapters(width: usize, length: usize, rank: usize) -> [(&'static str, AdapterConfig); 2] {
    [
        ("hrm", AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 32, width, length))),
        ("lora", AdapterConfig::linear::<Lora>(&LoraConfig::new(rank))),
    ]
}

/// Seconds a step, and the most bytes of tensors at once.
fn measure(
    gpu: &'static Gpu,
    backbone: &dyn Backbone,
    adapters: &AdapterSet,
    [batch, length]: [usize; 2],
    recompute: bool,
) -> Result<(f64, u64), Error> {
    let random = Random::new(0, "tokens", 0);
    let draw = |i| random.below(i, backbone.vocabulary()) as u32;
    let tokens = Tensor::from_vec((0..(batch * length) as u64).map(draw).collect(), [batch, length])?;
    let weights = Tensor::full([batch, length], 1.0_f32);
    let trained: Vec<Parameter> = adapters.parameters();
    let mut moments = trained.iter().map(|p| Moments::new(&p.tensor())).collect::<Result<Vec<_>, _>>()?;
    let optimizer = AdamW { betas: [0.9, 0.999], eps: 1e-8 };
    let mut step = |number: u64| -> Result<(), Error> {
        let mut pass = Pass { recompute, ..Pass::training(StepKey { seed: 0, step: number }) };
        let normalizer = (batch * length) as f64;
        let targets = Targets { tokens: &tokens, weights: &weights, smoothing: 0.0, normalizer };
        let gradients = backbone.loss(&tokens, targets, adapters, &mut pass)?.backward()?;
        let leaves: Vec<Tensor> = trained.iter().filter_map(|p| gradients.get(&p.tensor()).cloned()).collect();
        let norm = gradient_norm(&leaves)?;
        let scale = Scale::Clip { norm: &norm, limit: 1.0 };
        for ((parameter, gradient), moments) in trained.iter().zip(&leaves).zip(&mut moments) {
            let rate = Rate { lr: 1e-4, weight_decay: 0.01 };
            parameter.update(|value| optimizer.update(value, gradient, moments, number, scale, rate))?;
        }
        Ok(())
    };
    (1..=WARM_UP).try_for_each(&mut step)?;
    gpu.synchronize()?;
    gpu.reset_peak();
    let begun = Instant::now();
    let mut done = 0;
    // In rounds, so that a fast card is never without work.
    let mut round = 1;
    while begun.elapsed() < ENOUGH {
        (0..round).try_for_each(|i| step(WARM_UP + 1 + done + i))?;
        gpu.synchronize()?;
        done += round;
        round = (2 * round).min(32);
    }
    Ok((begun.elapsed().as_secs_f64() / done as f64, gpu.memory().peak))
}

/// Operations of a step, a multiplication and an addition as two.
fn operations(
    backbone: &dyn Backbone,
    adapters: &AdapterSet,
    [batch, length]: [usize; 2],
    heads_width: usize,
    recompute: bool,
) -> f64 {
    let embeddings: Vec<String> = backbone.embeddings().iter().map(|p| p.name().to_owned()).collect();
    let frozen = backbone.parameters().into_iter().filter(|p| {
        // A head of its own is counted below with those that are tied to the embedding.
        p.role() == Role::Matrix
            && !embeddings.iter().any(|name| name == p.name())
            && p.name() != backbone.head().name()
    });
    let (inner, head) = (frozen.map(|p| p.elements()).sum::<usize>() as f64, backbone.head().elements() as f64);
    let own: usize = adapters.parameters().iter().map(Parameter::elements).sum();
    let again = f64::from(u8::from(recompute));
    let tokens = (batch * length) as f64;
    let products = 2.0 * tokens * ((2.0 + again) * inner + 2.0 * head + (3.0 + again) * own as f64);
    // Two products forward, five backward, over half of T x T.
    let pairs = batch as f64 * (length * length) as f64 / 2.0;
    let attention = 2.0 * pairs * heads_width as f64 * (2.0 * (1.0 + again) + 5.0);
    products + attention * backbone.placement().layers as f64
}

fn report(name: &str, (seconds, peak): (f64, u64), tokens: usize, operations: f64, ceiling: &Ceiling) {
    let (per_second, mebibytes) = (tokens as f64 / seconds, peak as f64 / f64::from(1 << 20));
    let rate = operations / seconds;
    println!(
        "{name:<40} {seconds:>9.4} s/step {per_second:>12.0} tokens/s {:>10.1} GFLOP/s, {:>5.1} % of the ceiling   peak {mebibytes:>9.1} MiB",
        rate * 1e-9,
        100.0 * rate / ceiling.flops
    );
}

fn main() -> Result<(), Error> {
    let arguments = Arguments::read()?;
    let gpu = Gpu::open(&arguments.device)?;
    let ceiling = Ceiling::measure(gpu);
    check_precision(Device::Gpu(gpu), arguments.precision)?;
    let batch = arguments.batch.unwrap_or(32);
    for length in arguments.lengths(&[512, 1024, 2048]) {
        for (kind, config) in adapters(128, length, 16) {
            let name = format!("tiny_gpt {kind} T={length} B={batch}");
            if arguments.wants(&name) {
                let model = TinyGpt::new(&TinyGptConfig { context: length, ..TinyGptConfig::default() }, 0)?;
                let adapters = AdapterSet::new(&config, &model.placement(), 0)?;
                model.to_device(Device::Gpu(gpu))?;
                adapters.to_device(Device::Gpu(gpu))?;
                let measured =
                    with_precision(arguments.precision, || measure(gpu, &model, &adapters, [batch, length], false))?;
                let operations = operations(&model, &adapters, [batch, length], 128, false);
                report(&name, measured, batch * length, operations, &ceiling);
            }
        }
    }
    let batch = arguments.batch.unwrap_or(1);
    let sizes = DecoderConfig { layers: 1, vocabulary: 1024, ..DecoderConfig::mistral_7b() };
    let mut model: Option<Decoder> = None;
    for length in arguments.lengths(&[512, 4096]) {
        for (kind, config) in adapters(sizes.d_model, length, 16) {
            let name = format!("mistral block nf4 {kind} T={length} B={batch}");
            if arguments.wants(&name) {
                if model.is_none() {
                    let folder = tempfile::tempdir()?;
                    let path = folder.path().join("block");
                    init_model(&sizes, 0, InitType::Bf16, &path)?;
                    model = Some(Decoder::load(&path, LoadOptions { quantize: true, device: Device::Gpu(gpu) })?);
                }
                let Some(model) = &model else { continue };
                let adapters = AdapterSet::new(&config, &model.placement(), 0)?;
                adapters.to_device(Device::Gpu(gpu))?;
                let measured =
                    with_precision(arguments.precision, || measure(gpu, model, &adapters, [batch, length], true))?;
                let width = sizes.heads * sizes.head_dim;
                let operations = operations(model, &adapters, [batch, length], width, true);
                report(&name, measured, batch * length, operations, &ceiling);
            }
        }
    }
    Ok(())
}
