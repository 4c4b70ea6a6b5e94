//! Recurrences and copies of the same arrays: bytes moved per second.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hankel_ops::causal_conv::cpu::convolution::{Spectra, convolve};
use hankel_ops::scan::cpu::recurrence::{Direction, Evaluation, Modes, scan};
use rayon::prelude::*;

fn all(c: &mut Criterion) {
    let mut group = c.benchmark_group("scan f32");
    for (batch, tokens, dim) in [(32, 2048, 32), (32, 512, 32), (1, 4096, 32), (32, 2048, 6)] {
        let len = batch * tokens * dim;
        let u: Vec<f32> = (0..len).map(|i| (i as f32).sin()).collect();
        let real: Vec<f32> = (0..dim).map(|i| 1.0 - 0.5_f32.powi(1 + i as i32 % 11)).collect();
        let pairs: Vec<[f32; 2]> = real.iter().take(dim / 2).map(|r| [r * 0.8, r * 0.6]).collect();
        let mut out = vec![0.0; len];
        let label = format!("{batch} x {tokens} x {dim}");
        // Read and written once.
        group.throughput(Throughput::Bytes(8 * len as u64));
        group.bench_function(BenchmarkId::new("copy", &label), |bench| {
            bench.iter(|| {
                out.par_chunks_mut(len / 32).zip(u.par_chunks(len / 32)).for_each(|(out, u)| out.copy_from_slice(u));
            });
        });
        for (name, evaluation, poles) in [
            ("sequential", Evaluation::Sequential, Modes::real(&real)),
            ("chunked", Evaluation::Chunked(64), Modes::real(&real)),
            ("sequential, pairs", Evaluation::Sequential, Modes { real: &[], pairs: &pairs }),
        ] {
            group.bench_function(BenchmarkId::new(name, &label), |bench| {
                bench.iter(|| scan(evaluation, Direction::Forward, poles, tokens, &u, None, &mut out));
            });
        }
        group.bench_function(BenchmarkId::new("convolution", &label), |bench| {
            bench.iter(|| {
                let spectra = Spectra::of_modes(Modes::real(&real), tokens, Direction::Forward);
                convolve(Direction::Forward, &spectra, &u, None, &mut out);
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = all
}
criterion_main!(benches);
