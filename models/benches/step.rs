//! A training step (forward, backward) of TinyGPT with a frozen backbone: HRM by each evaluation of the recurrence, and
//! LoRA, at equal parameters (33,028 and 32,768).
//!
//! `cargo bench -p hankel-models --bench step`; `-- 512` for one length. Ratios of one run mean more than seconds.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hankel_core::{Random, Tensor};
use hankel_models::adapters::{Hrm, HrmConfig, HrmPreset, Lora, LoraConfig};
use hankel_models::{AdapterConfig, AdapterSet, Backbone, Pass, StepKey, TinyGpt, TinyGptConfig};
use hankel_ops::{ScanPath, Targets};

fn hrm(steps: usize, scan: ScanPath) -> AdapterConfig {
    AdapterConfig::stream::<Hrm>(&HrmConfig { scan, ..HrmConfig::new(HrmPreset::Paper, 32, 128, steps) })
}

fn steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("step");
    group.sample_size(10);
    for (batch, length) in [(32, 512), (32, 1024), (32, 2048)] {
        let config = TinyGptConfig { context: length, ..TinyGptConfig::default() };
        let model = TinyGpt::new(&config, 0).expect("the standard sizes");
        let random = Random::new(0, "tokens", 0);
        let ids: Vec<u32> = (0..(batch * length) as u64).map(|i| random.below(i, 256) as u32).collect();
        let tokens = Tensor::from_vec(ids, [batch, length]).expect("a batch");
        let weights = Tensor::full([batch, length], 1.0_f32);
        group.throughput(Throughput::Elements((batch * length) as u64));
        let adapters = [
            ("lora", AdapterConfig::linear::<Lora>(&LoraConfig::new(16))),
            ("hrm-sequential", hrm(length, ScanPath::Sequential)),
            ("hrm-chunked", hrm(length, ScanPath::Chunked)),
            ("hrm-fft", hrm(length, ScanPath::Fft)),
        ];
        for (name, adapter) in adapters {
            let adapters = AdapterSet::new(&adapter, &model.placement(), 0).expect("adapters");
            let step = || {
                let normalizer = (batch * length) as f64;
                let targets = Targets { tokens: &tokens, weights: &weights, smoothing: 0.0, normalizer };
                let mut pass = Pass::training(StepKey { seed: 0, step: 0 });
                let loss = model.loss(&tokens, targets, &adapters, &mut pass).expect("a loss");
                loss.backward().expect("gradients")
            };
            group.bench_function(BenchmarkId::new(name, format!("T{length}-B{batch}")), |bencher| {
                bencher.iter_batched(|| (), |()| step(), BatchSize::PerIteration);
            });
        }
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
