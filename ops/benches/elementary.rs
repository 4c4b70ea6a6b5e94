//! Exponential and normal distribution over slices that stay in the cache.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hankel_ops::kernels::{Real, simd::vectorized};
use std::hint::black_box;

fn map<T: Real>(y: &mut [T], x: &[T], f: impl Fn(T) -> T) {
    vectorized(
        #[inline(always)]
        || {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = f(x);
            }
        },
    );
}

#[inline(always)]
fn cdf<T: Real>(x: T) -> T {
    x.gaussian().0
}

fn functions<T: Real>(c: &mut Criterion, name: &str) {
    const LEN: usize = 2048;
    let x: Vec<T> = (0..LEN).map(|i| T::of(-8.0 + i as f64 / 256.0)).collect();
    let mut y = x.clone();
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Elements(LEN as u64));
    group.bench_function("exp", |bench| {
        bench.iter(|| map(&mut y, black_box(&x), T::vexp));
    });
    group.bench_function("exp of the standard library", |bench| {
        bench.iter(|| y.iter_mut().zip(black_box(&x)).for_each(|(y, x)| *y = x.exp()));
    });
    group.bench_function("normal distribution", |bench| {
        bench.iter(|| map(&mut y, black_box(&x), cdf));
    });
    group.finish();
}

fn all(c: &mut Criterion) {
    functions::<f32>(c, "f32");
    functions::<f64>(c, "f64");
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(500));
    targets = all
}
criterion_main!(benches);
