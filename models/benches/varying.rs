//! What truncating an adapter that varies in time costs beside running it: 16 or 32 states on a stream of
//! width 128, 8 sequences of 512.
//!
//! `cargo bench -p hankel-models --bench varying`. The averaged Gramians are to cost no more than one pass of the adapter over
//! the same tokens. Milliseconds on two cores of an AVX-512 EPYC, with optimisation level 2 (`--profile dev`):
//!
//! | states | the adapter | both Gramians | with the adapter's coefficients and the truncation itself |
//! | --- | --- | --- | --- |
//! | 16 | 2.15 | 1.20 | 4.8 |
//! | 32 | 3.45 | 3.39 | 17.3 |
//!
//! The adapter grows with the width of the stream, the Gramians do not; the truncation is done once, whatever the data.
//!
//! A scan by FFT alone is far cheaper, d numbers a step where the Gramians are d^2: in one run on busy cores 0.4 and 1.0 ms
//! beside 4.0 and 8.9 ms for both Gramians and 3.1 and 5.1 ms for the adapter. Averaging over fewer steps is the way below it.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hankel_core::{Random, Tensor, no_grad};
use hankel_models::SiteInput;
use hankel_models::adapters::stream::{Calibration, Stream, StreamConfig};
use hankel_models::adapters::{AdapterConfig, AdapterSet, Placement, StreamSite};
use hankel_models::lti::OrderRule;
use hankel_models::lti::varying::{Coefficients, Controllability, VaryingGramians};
use hankel_ops::{Poles, ScanPath, scan};

const WIDTH: usize = 128;
const SHAPE: [usize; 3] = [8, 512, WIDTH];

fn varying(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("varying");
    group.sample_size(10).throughput(Throughput::Elements((SHAPE[0] * SHAPE[1]) as u64));
    let placement = Placement { layers: 1, d_model: WIDTH, linear: Vec::new(), stream: vec![StreamSite::Mlp] };
    let x = Random::new(0, "x", 0).normal_vec::<f32>(SHAPE.iter().product(), 1.0);
    let x = Tensor::from_vec(x, SHAPE).expect("a batch");
    for d in [16, 32] {
        let config = AdapterConfig::Stream(StreamConfig::new("selective", SHAPE[1]).with("state_dim", d));
        let set = AdapterSet::new(&config, &placement, 0).expect("adapters");
        let Some(Stream::Attached(attached)) = set.layer(0).stream(StreamSite::Mlp) else { return };
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
