//! Inspection and certified reduction of an adapter of the size of Mistral-7B: 32 layers, 32 states, width 4096.
//!
//! `cargo bench -p hankel-reduce --bench truncation`. The goal is an inspection in less than 1 s and a reduction with its
//! certificate in less than 10 s on two cores.

use criterion::{Criterion, criterion_group, criterion_main};
use hankel_files::arrays::Precision;
use hankel_files::{HrmAdapterFile, HrmConfigFile, HrmDynamics, HrmLayerFile, HrmPreset, StreamSite};
use hankel_lti::OrderRule;
use hankel_reduce::{LayerWeights, OrderChoice, ReduceOptions, analyse, reduce_adapter, verify};

const LAYERS: usize = 32;
const STATES: usize = 32;
const WIDTH: usize = 4096;

fn adapter() -> HrmAdapterFile {
    let layer = |layer: usize| {
        // Independent values of the size of a trained matrix, the same in every run.
        let noise = |seed: u64| -> Vec<f64> {
            let mut state = (layer as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed;
            let mut uniform = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 11) as f64 / (1_u64 << 53) as f64
            };
            (0..STATES * WIDTH).map(|_| 0.07 * (uniform() - 0.5)).collect()
        };
        // Time constants from 1.4 steps to 4096, as at the start of training.
        let rate = |i: usize| (0.7f64.ln() + (1.0f64 / 4096.0 / 0.7).ln() * i as f64 / (STATES - 1) as f64) as f32;
        HrmLayerFile {
            layer,
            site: StreamSite::Mlp,
            state_dim: STATES,
            width: WIDTH,
            b: noise(1).into(),
            c: noise(2).into(),
            gate: 0.1,
            dynamics: HrmDynamics::Diagonal {
                log_a: (0..STATES).map(|i| f64::from(rate(i))).collect(),
                log_dt: vec![0.0; STATES],
            },
        }
    };
    HrmAdapterFile {
        config: HrmConfigFile::new(HrmPreset::Paper, STATES),
        layers: (0..LAYERS).map(layer).collect(),
        precision: Precision::F32,
    }
}

fn truncation(criterion: &mut Criterion) {
    let full = adapter();
    let folder = std::env::temp_dir().join(format!("hankel-bench-{}", std::process::id()));
    full.save(&folder).expect("a temporary folder");
    let mut group = criterion.benchmark_group("truncation");
    group.sample_size(10);
    group.bench_function("inspect, with reading", |bench| {
        bench.iter(|| analyse(&HrmAdapterFile::load(&folder).expect("it was saved")).expect("a stable adapter"));
    });
    for epsilon in [0.1, 0.01] {
        let orders = OrderChoice::PerLayer(OrderRule::Epsilon(epsilon));
        let options = ReduceOptions { orders, ..ReduceOptions::default() };
        group.bench_function(format!("reduce with certificate, epsilon {epsilon}"), |bench| {
            bench.iter(|| reduce_adapter(&full, &options).expect("a stable adapter"));
        });
    }
    let reduction = reduce_adapter(&full, &ReduceOptions::default()).expect("a stable adapter");
    group.bench_function("verify", |bench| {
        bench.iter(|| {
            verify(&full, &reduction.adapter, Some(&reduction.certificate), &LayerWeights::default())
                .expect("they belong together")
        });
    });
    group.finish();
    let _ = std::fs::remove_dir_all(folder); // a leftover in the temporary folder is harmless
}

criterion_group!(benches, truncation);
criterion_main!(benches);
