//! What kernels ask of a driver's cooperative matrices, each thing alone. Where a driver gets one wrong, this says which; kernels
//! that need it are refused there by their own trials.

use super::{Form, form};
use crate::gpu::{Output, compiles, stored};
use hankel_core::gpu::{Kernel, for_tests};
use hankel_core::{DType, Device, Tensor};

/// Kernels of the forms of 16 x 16 in 32 lanes and of 8 x 8 in 8. Each has two matrices in `halves` and their product in `c`, and leaves
/// what is asked for in `y`.
macro_rules! fragments {
    ($(($name:literal, $expected:expr, $outside:literal, $inside:literal)),* $(,)?) => {
        /// Name, forms, and the expected element of `y` from the product's and the place.
        static CASES: &[(&str, [Kernel; 2], fn(&dyn Fn(usize, usize) -> f32, usize, usize) -> f32)] = &[
            $(($name, [
                fragments!(@kernel $name, "const T = 16u; const WG = 32u; alias FA = coop_mat16x16<f16, A>; \
                    alias FB = coop_mat16x16<f16, B>; alias FC = coop_mat16x16<f32, C>;", $outside, $inside),
                fragments!(@kernel $name, "const T = 8u; const WG = 8u; alias FA = coop_mat8x8<f16, A>; \
                    alias FB = coop_mat8x8<f16, B>; alias FC = coop_mat8x8<f32, C>;", $outside, $inside),
            ], $expected)),*
        ];
    };
    (@kernel $name:literal, $head:literal, $outside:literal, $inside:literal) => {
        Kernel {
            name: $name,
            source: concat!(
                "enable f16; enable wgpu_cooperative_matrix;", $head,
                "
                // Times that something is done for nothing.
                var<immediate> turns: u32;
                @group(0) @binding(0) var<storage, read> x: array<vec4<f16>>;
                @group(0) @binding(1) var<storage, read_write> y: array<f32>;
                var<workgroup> halves: array<vec4<f16>, T * T / 2u>;
                var<workgroup> floats: array<f32, 2u * T * T>;
                // Of 16 bytes, as everything beside what fragments are loaded from must be.
                var<workgroup> flag: vec4<u32>;

                // What stands in `floats`, rows of it `stride` apart, to y.
                fn leave(lane: u32, stride: u32) {
                    workgroupBarrier();
                    for (var at = lane; at < T * T; at += WG) { y[at] = floats[at / T * stride + at % T]; }
                }
                fn left() -> FA { return coopLoadT<FA>(&halves[0], T / 4u); }
                fn right() -> FB { return coopLoadT<FB>(&halves[T * T / 4u], T / 4u); }
                ",
                $outside,
                "
                @compute @workgroup_size(WG)
                fn main(@builtin(local_invocation_index) lane: u32) {
                    for (var at = lane; at < T * T / 2u; at += WG) { halves[at] = x[at]; }
                    workgroupBarrier();
                    let a = coopLoadT<FA>(&halves[0], T / 4u);
                    let b = coopLoadT<FB>(&halves[T * T / 4u], T / 4u);
                    var c: FC;
                    c = coopMultiplyAdd(a, b, c);
                ",
                $inside,
                "
                }"
            ),
            bindings: "rw",
        }
    };
}

fragments! {
    ("product", |c, i, j| c(i, j), "", "coopStoreT(c, &floats[0], T); leave(lane, T);"),
    ("columns", |c, i, j| c(j, i), "", "coopStore(c, &floats[0], T); leave(lane, T);"),
    ("longer rows in a workgroup's memory", |c, i, j| c(i, j), "", "coopStoreT(c, &floats[0], 2u * T); leave(lane, 2u * T);"),
    ("to a buffer", |c, i, j| c(i, j), "", "coopStoreT(c, &y[0], T);"),
    ("longer rows in a buffer", |c, i, j| if i % 2 == 0 { c(i / 2, j) } else { 0.0 }, "", "
        for (var at = lane; at < T * T; at += WG) { y[at] = 0.0; }
        storageBarrier();
        let stride = 2u * T * min(turns, 1u);
        if turns == 0u { return; }
        coopStoreT(c, &y[0], stride);
        storageBarrier();"),
    ("times a number", |c, i, j| 0.5 * c(i, j), "", "
        let half = c * (0.5 * f32(min(turns, 1u)));
        coopStoreT(half, &floats[0], T);
        leave(lane, T);"),
    ("loaded and added", |c, i, j| c(i, j) + (i % 3) as f32, "", "
        for (var at = lane; at < T * T; at += WG) { floats[at] = f32(at / T % 3u); }
        workgroupBarrier();
        let sum = c + coopLoadT<FC>(&floats[0], T);
        workgroupBarrier();
        coopStoreT(sum, &floats[0], T);
        leave(lane, T);"),
    ("as the argument of a function", |c, i, j| c(i, j), "
        fn show(c: FC, lane: u32) { coopStoreT(c, &floats[0], T); leave(lane, T); }", "show(c, lane);"),
    ("as the result of a function", |c, i, j| 2.0 * c(i, j), "
        fn more(a: FA, b: FB, c: FC) -> FC { return coopMultiplyAdd(a, b, c); }", "
        c = more(left(), right(), c);
        coopStoreT(c, &floats[0], T);
        leave(lane, T);"),
    ("set to zero in each call", |c, i, j| c(i, j), "
        fn again() {
            var c: FC;
            c = coopMultiplyAdd(left(), right(), c);
            coopStoreT(c, &floats[0], T);
        }", "
        for (var i = 0u; i < 3u; i++) { again(); workgroupBarrier(); }
        leave(lane, T);"),
    ("after lanes went different ways", |c, i, j| c(i, j), "", "
        var sum = 1.0;
        if lane % 3u == 1u {
            for (var i = 0u; i < turns * (lane + 1u); i++) { sum = fract(1.7 * sum + y[i % T]); }
            y[lane] = sum;
        }
        c = FC();
        c = coopMultiplyAdd(left(), right(), c);
        coopStoreT(c, &floats[0], T);
        leave(lane, T);"),
    ("where a workgroup's flag says so", |c, i, j| c(i, j), "", "
        if lane == 0u { flag = vec4(min(turns, 1u)); }
        if workgroupUniformLoad(&flag).x != 0u {
            c = coopMultiplyAdd(left(), right(), c);
            c = c + coopMultiplyAdd(left(), right(), FC());
            c = FC();
            c = coopMultiplyAdd(left(), right(), c);
        }
        coopStoreT(c, &floats[0], T);
        leave(lane, T);"),
    ("written by other lanes in turn", |c, i, j| c(i, j), "", "
        for (var turn = 0u; turn < 4u; turn++) {
            workgroupBarrier();
            for (var at = lane; at < T * T / 2u; at += WG) { halves[at] = f16(turn == 3u) * x[at]; }
            workgroupBarrier();
            c = coopMultiplyAdd(left(), right(), FC());
            workgroupBarrier();
            coopStoreT(c, &floats[0], T);
            workgroupBarrier();
            for (var at = lane; at < T * T; at += WG) { y[at] += floats[at]; }
        }
        leave(lane, T);"),
}

#[test]
fn kernels_compile() {
    CASES.iter().flat_map(|(_, kernels, _)| kernels).for_each(|kernel| compiles(kernel, &[]));
}

#[test]
fn what_a_driver_gets_right() {
    let Some(gpu) = for_tests() else { return };
    let (which, edge) = match form(gpu.facts()) {
        Ok(Form::Square16) => (0, 16),
        Ok(Form::Square8Narrow) => (1, 8),
        _ => return eprintln!("SKIPPED: {} has no such cooperative matrices", gpu.facts().name),
    };
    let whole = |i: usize, step: usize| (i * step % 13) as f32 - 6.0;
    let (a, b) = (|i: usize, s: usize| whole(i * edge + s, 7), |s: usize, j: usize| whole(s * edge + j, 5));
    let product = |i: usize, j: usize| (0..edge).map(|s| a(i, s) * b(s, j)).sum::<f32>();
    let values = [7, 5].iter().flat_map(|&step| (0..edge * edge).map(move |i| whole(i, step))).collect();
    let x = Tensor::from_vec(values, [2, edge * edge]).and_then(|x: Tensor| x.to_dtype(DType::F16)).unwrap();
    let x = x.to_device(Device::Gpu(gpu)).unwrap();
    let mut wrong = Vec::new();
    for (name, kernels, expected) in CASES {
        let out = Output::new(gpu, 2 * edge * edge).unwrap();
        let buffers = [&stored("fragments", "x", &x, gpu).unwrap().buffer, out.buffer()];
        let launched = gpu.launch(&kernels[which], &[], &buffers, &[1_u32], [1; 3]);
        let found = launched.and_then(|()| out.finish([2 * edge * edge])).and_then(|y| y.to_device(Device::Cpu));
        let found = found.map(|y| y.to_f64_vec());
        let expected = |at: usize| f64::from(expected(&product, at / edge, at % edge));
        match found {
            Err(error) => wrong.push(format!("{name}: {error}")),
            Ok(found) => {
                if let Some(at) = (0..edge * edge).find(|&at| found[at] != expected(at)) {
                    wrong.push(format!("{name}: element {at} is {}, expected {}", found[at], expected(at)));
                }
            }
        }
    }
    wrong.iter().for_each(|problem| eprintln!("{} ({}): {problem}", gpu.facts().name, gpu.facts().driver));
    assert!(gpu.facts().kind != "software" || wrong.is_empty());
}
