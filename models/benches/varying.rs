//! What truncating an adapter that varies in time costs beside running it: 16 or 32 states on a stream of
//! width 128, 8 sequences of 512.
//!
//! `cargo bench -p hankel-models --bench varying`. Milliseconds in one run, release build, on two busy cores of an AVX-512 EPYC:
//!
//! | states | a pass of the adapter | a scan by FFT | its own scan | both Gramians |
//! | --- | --- | --- | --- | --- |
//! | 16 | 2.14 | 0.30 | 0.16 | 0.45 |
//! | 32 | 3.95 | 0.54 | 0.13 | 1.10 |
//!
//! The adapter grows with the width of the stream, the Gramians do not. They are d^2 / 2 numbers a step where a scan has d: they
//! cost less than the adapter but about twice what a scan by FFT does. Larger windows (8 steps) do not change that; the
//! covariance of simulated noise would cost as little as a scan, but of a memory of 1000 steps 4,096 tokens hold four
//! independent samples.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hankel_core::{Random, Tensor, no_grad};
use hankel_models::SiteInput;
use hankel_models::adapters::stream::Calibration;
use hankel_models::adapters::{AdapterConfig, AdapterSet, Placement, StreamSite};
use hankel_models::adapters::{Selective, selective};
use hankel_models::lti::OrderRule;
use hankel_models::lti::varying::{Coefficients, Controllability, VaryingGramians};
use hankel_ops::{Poles, ScanPath, multiply, scan, varying_scan};

const WIDTH: usize = 128;
const SHAPE: [usize; 3] = [8, 512, WIDTH];

fn varying(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("varying");
    group.sample_size(10).throughput(Throughput::Elements((SHAPE[0] * SHAPE[1]) as u64));
    let placement = Placement { layers: 1, d_model: WIDTH, linear: Vec::new(), stream: vec![StreamSite::Mlp] };
    let x = Random::new(0, "x", 0).normal_vec::<f32>(SHAPE.iter().product(), 1.0);
    let x = Tensor::from_vec(x, SHAPE).expect("a batch");
    for d in [16, 32] {
        let settings = selective::Settings { state_dim: d, ..Default::default() };
        let config = AdapterConfig::stream::<Selective>(&settings).for_length(SHAPE[1]);
        let set = AdapterSet::new(&config, &placement, 0).expect("adapters");
        let Some(attached) = set.layer(0).stream(StreamSite::Mlp) else { return };
        group.bench_function(format!("the adapter, {d} states"), |bench| {
            bench.iter(|| no_grad(|| attached.adapter().forward(&x, None)).expect("a pass"));
        });
        let u = Random::new(0, "u", 0).normal_vec::<f32>(SHAPE[0] * SHAPE[1] * d, 1.0);
        let u = Tensor::from_vec(u, [SHAPE[0], SHAPE[1], d]).expect("a drive");
        let a: Vec<f32> = (0..d).map(|i| 0.5 + 0.499 * i as f32 / d as f32).collect();
        let poles = Poles::Diagonal(Tensor::from_vec(a, [d]).expect("poles"));
        group.bench_function(format!("a scan by FFT, {d} states"), |bench| {
            bench.iter(|| scan(&u, &poles, None, ScanPath::Fft).expect("states"));
        });
        let values = |value: f32| Tensor::from_vec(vec![value; u.elements()], u.shape()).expect("coefficients");
        let (a, gain) = (values(0.9), values(1.0));
        group.bench_function(format!("a varying scan, {d} states"), |bench| {
            bench.iter(|| {
                let driven = multiply(&gain, &u).expect("a drive");
                multiply(&gain, &varying_scan(&a, &driven, None, ScanPath::Sequential).expect("states"))
                    .expect("outputs")
            });
        });
        let n = SHAPE[1] * d;
        let rate: Vec<f64> = (0..n).map(|i| 0.01 + 0.1 * (i % 7) as f64).collect();
        let gain = vec![1.0; n];
        group.bench_function(format!("both Gramians, {d} states"), |bench| {
            bench.iter(|| {
                let along = vec![Coefficients { rate: &rate, input: &gain, output: &gain }; SHAPE[0]];
                let mut sums = VaryingGramians::new(d);
                sums.add(&along).expect("finite");
                sums
            });
        });
        let inputs = [SiteInput { layer: 0, site: StreamSite::Mlp, x: x.clone() }];
        group.bench_function(format!("calibration and truncation, {d} states"), |bench| {
            bench.iter(|| {
                let mut calibration = Calibration::new(&set, Controllability::White).expect("a kind with a system");
                calibration.add(&inputs).expect("finite");
                calibration.truncate(OrderRule::Order(4)).expect("four states")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, varying);
criterion_main!(benches);
