//! Matrix products at the shapes of a training step: ours (in f64 those of matrixmultiply, cut in panels), and matrixmultiply cut in
//! blocks of rows over the same threads.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hankel_ops::kernels::{Accumulate, Mat, Real, gemm};
use rayon::prelude::*;
use std::hint::black_box;

/// (what, m, k, n, transpose the left factor, transpose the right one).
const SHAPES: &[(&str, usize, usize, usize, bool, bool)] = &[
    ("projection", 16384, 128, 128, false, true),
    ("up", 16384, 128, 512, false, true),
    ("down", 16384, 512, 128, false, true),
    ("up, input gradient", 16384, 512, 128, false, false),
    ("adapter in r=32", 16384, 128, 32, false, true),
    ("adapter in r=16", 16384, 128, 16, false, true),
    ("adapter in r=8", 16384, 128, 8, false, true),
    ("adapter out r=32", 16384, 32, 128, false, true),
    ("adapter out r=16", 16384, 16, 128, false, true),
    ("adapter gradient", 128, 16384, 32, true, false),
    ("adapter gradient, transposed", 32, 16384, 128, true, false),
    ("weight gradient", 512, 16384, 128, true, false),
    ("square", 1024, 1024, 1024, false, false),
    ("wide", 256, 4096, 4096, false, true),
];

fn strides(rows: usize, cols: usize, transposed: bool) -> (isize, isize) {
    if transposed { (1, rows as isize) } else { (cols as isize, 1) }
}

struct Pointers<T>(*const T, *const T, *mut T);
// SAFETY: the tasks below write disjoint rows.
unsafe impl<T> Sync for Pointers<T> {}

type Product<T> =
    unsafe fn(usize, usize, usize, T, *const T, isize, isize, *const T, isize, isize, T, *mut T, isize, isize);

fn products<T: Real>(c: &mut Criterion, name: &str, matrixmultiply: Product<T>) {
    let mut group = c.benchmark_group(name);
    for &(what, m, k, n, ta, tb) in SHAPES {
        let label = format!("{what} {m}x{k}x{n}");
        let (a, b, mut out) = (vec![T::of(0.5); m * k], vec![T::of(0.25); k * n], vec![T::zero(); m * n]);
        // criterion prints elements per second: these are floating-point operations.
        group.throughput(Throughput::Elements(2 * (m * k * n) as u64));
        group.bench_function(BenchmarkId::new("ours", &label), |bench| {
            let a = if ta { Mat::new(&a, k, m).t() } else { Mat::new(&a, m, k) };
            let b = if tb { Mat::new(&b, n, k).t() } else { Mat::new(&b, k, n) };
            bench.iter(|| gemm(T::one(), black_box(a), &b, Accumulate::Overwrite, black_box(&mut out), n));
        });
        group.bench_function(BenchmarkId::new("matrixmultiply", &label), |bench| {
            let ((rsa, csa), (rsb, csb)) = (strides(m, k, ta), strides(k, n, tb));
            let pointers = Pointers(a.as_ptr(), b.as_ptr(), out.as_mut_ptr());
            let panel = m.div_ceil(2).min(512);
            bench.iter(|| {
                (0..m.div_ceil(panel)).into_par_iter().for_each(|i| {
                    let (first, pointers) = (i * panel, &pointers);
                    // SAFETY: the vectors hold the matrices, each task writes its own rows.
                    unsafe {
                        matrixmultiply(
                            panel.min(m - first),
                            k,
                            n,
                            T::one(),
                            pointers.0.offset(first as isize * rsa),
                            rsa,
                            csa,
                            pointers.1,
                            rsb,
                            csb,
                            T::zero(),
                            pointers.2.add(first * n),
                            n as isize,
                            1,
                        );
                    }
                });
            });
        });
    }
    group.finish();
}

fn all(c: &mut Criterion) {
    products::<f32>(c, "gemm f32", matrixmultiply::sgemm);
    products::<f64>(c, "gemm f64", matrixmultiply::dgemm);
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = all
}
criterion_main!(benches);
