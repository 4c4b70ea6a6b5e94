//! Every kernel of products against sums in doubles.

use super::gemm::{Plan, Sizes, planned, whole};
use super::kernels::Tile;
use super::{Epilogue, Left, Right};
use super::{blocks, cooperative};
use crate::gpu::{Output, compiles, floats, stored};
use crate::linear::block_tests::random_blocks;
use crate::linear::{Gate, add_linear, check_precision, default_precision, linear, nf4};
use crate::{Head, Targets, cross_entropy, embedding};
use hankel_core::block_formats::GGML_FORMATS;
use hankel_core::gpu::{Gpu, GpuStorage, for_tests};
use hankel_core::{DType, Device, Precision, Random, Tensor, scope, with_precision};

/// A random matrix in main memory, stored in `dtype`.
fn matrix(name: &str, rows: usize, cols: usize, dtype: DType) -> Tensor {
    let values = Random::new(3, name, 0).normal_vec::<f32>(rows * cols, 1.0);
    let plain = Tensor::from_vec(values, [rows, cols]).unwrap();
    match dtype {
        DType::Nf4 => of_nf4(&plain, DType::BF16),
        dtype => plain.to_dtype(dtype).unwrap(),
    }
}

/// `plain`, quantized from a checkpoint in `source`.
fn of_nf4(plain: &Tensor, source: DType) -> Tensor {
    nf4::quantize(&plain.to_dtype(source).unwrap(), true).unwrap()
}

/// `a b` of `[m, k]` and `[k, n]`, or of what they are the transposes of.
fn product(a: &[f64], b: &[f64], Sizes { m, n, k }: Sizes, [transposed_a, transposed_b]: [bool; 2]) -> Vec<f64> {
    let a = |i: usize, s: usize| if transposed_a { a[s * m + i] } else { a[i * k + s] };
    let b = |s: usize, j: usize| if transposed_b { b[j * k + s] } else { b[s * n + j] };
    (0..m * n).map(|at| (0..k).map(|s| a(at / n, s) * b(s, at % n)).sum()).collect()
}

fn close(name: &str, tolerance: f64, found: &Tensor, expected: &[f64]) {
    let scale = expected.iter().fold(1e-30, |m: f64, x| m.max(x.abs()));
    for (i, (found, expected)) in found.to_f64_vec().iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance * scale, "{name}: element {i} is {found}, expected {expected}");
    }
}

fn check(gpu: &'static Gpu, plan: Plan, sizes: Sizes, dtype: DType, transposed: [bool; 2]) {
    let name = format!("{plan:?} {sizes:?} {dtype} {transposed:?}");
    let Sizes { m, n, k } = sizes;
    let shape = |transposed: bool, rows, cols| if transposed { (cols, rows) } else { (rows, cols) };
    // Both factors begin in the second row of what is stored.
    let ((rows_a, cols_a), (rows_b, cols_b)) = (shape(transposed[0], m, k), shape(transposed[1], k, n));
    let (a, b) = (matrix("a", rows_a + 1, cols_a, DType::F32), matrix("b", rows_b + 1, cols_b, dtype));
    let expected = product(&a.to_f64_vec()[cols_a..], &b.to_f64_vec()[cols_b..], sizes, transposed);
    let (base, bias, gate) = (matrix("base", m, n, DType::F32), matrix("bias", 1, n, DType::F32), [0.75_f32]);
    let (bases, biases) = (base.to_f64_vec(), bias.to_f64_vec());
    let added = (0..m * n).map(|i| bases[i] - 0.5 * 0.75 * expected[i] + biases[i % n]).collect();
    let there = |x: &Tensor| x.to_device(Device::Gpu(gpu)).unwrap();
    let (a, b, base, bias) = (there(&a), there(&b), there(&base), there(&bias));
    let gate = there(&Tensor::from_vec(gate.to_vec(), [1]).unwrap());
    let left = Left {
        data: floats("a", "a", &a, gpu).unwrap(),
        first: 1,
        rows: rows_a,
        cols: cols_a,
        transposed: transposed[0],
        tensor: None,
    };
    let storage = stored("b", "b", &b, gpu).unwrap();
    let right = Right { storage, first: 1, rows: rows_b, cols: cols_b, transposed: transposed[1] };
    let all = Epilogue {
        factor: -0.5,
        gate: Some(floats("gate", "gate", &gate, gpu).unwrap()),
        base: Some(floats("base", "base", &base, gpu).unwrap()),
        bias: Some(floats("bias", "bias", &bias, gpu).unwrap()),
        ..Epilogue::default()
    };
    for (how, expected) in [(Epilogue::default(), &expected), (all, &added)] {
        let out = Output::new(gpu, m * n).unwrap();
        planned(gpu, left, right, how, out.buffer(), plan).unwrap();
        close(&name, 1e-5, &out.finish([m, n]).unwrap(), expected);
    }
}

#[test]
fn products_in_tiles_of_every_kind() {
    let Some(gpu) = for_tests() else { return };
    for tile in [Tile::Small, Tile::Large, Tile::Tall, Tile::Wide] {
        let [rows, columns] = tile.size();
        for transposed in [[false, false], [false, true], [true, false]] {
            // Some edge is within a tile, rows can be read in fours or cannot.
            for (m, n, k) in [(rows + 4, columns + 12, 52), (rows - 3, columns + 1, 37)] {
                check(
                    gpu,
                    Plan::Tiles(tile, if transposed[0] { 3 } else { 1 }),
                    Sizes { m, n, k },
                    DType::F32,
                    transposed,
                );
            }
        }
        for (transposed, dtype) in [(false, DType::BF16), (true, DType::F16), (tile == Tile::Small, DType::Nf4)] {
            check(gpu, Plan::Tiles(tile, 1), Sizes { m: rows, n: columns + 64, k: 64 }, dtype, [false, transposed]);
            check(gpu, Plan::Tiles(tile, 1), Sizes { m: 5, n: 6, k: 7 }, dtype, [false, !transposed]);
        }
    }
}

#[test]
fn products_row_by_row() {
    let Some(gpu) = for_tests() else { return };
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::Nf4] {
        for (m, n, k) in [(1, 68, 260), (3, 7, 33), (1, 1, 1)] {
            check(gpu, Plan::Rows, Sizes { m, n, k }, dtype, [false, true]);
        }
    }
}

/// What the values of nf4 are rounded to, that of the checkpoint, is the same as on the CPU.
#[test]
fn nf4_is_rounded_as_on_the_cpu() {
    let Some(gpu) = for_tests() else { return };
    let (n, k) = (96, 128);
    let mut units = vec![0.0_f32; k * k];
    (0..k).for_each(|i| units[i * k + i] = 1.0);
    let x = Tensor::from_vec(units, [k, k]).unwrap().to_device(Device::Gpu(gpu)).unwrap();
    for source in [DType::F32, DType::BF16, DType::F16] {
        let weight = of_nf4(&matrix("w", n, k, DType::F32), source);
        let expected = weight.to_f64_vec();
        let weight = weight.to_device(Device::Gpu(gpu)).unwrap();
        // Products with a unit matrix are exact.
        let found = linear(&x, &weight, None).unwrap().to_f64_vec();
        assert!((0..n * k).all(|at| found[at % k * n + at / k] == expected[at]), "{source}");
    }
}

/// More tiles than a grid has room for in one dimension, so that it is folded.
#[test]
fn more_tiles_than_one_dimension_of_a_grid() {
    let Some(gpu) = for_tests() else { return };
    let (m, n, k) = (64 * 65_600 + 3, 2, 1);
    let a = Tensor::from_gpu(GpuStorage::filled(gpu, m, 1.5).unwrap(), [m, k]).unwrap();
    let b = Tensor::from_vec(vec![2.0_f32, -4.0], [n, k]).unwrap().to_device(Device::Gpu(gpu)).unwrap();
    let left =
        Left { data: floats("a", "a", &a, gpu).unwrap(), first: 0, rows: m, cols: k, transposed: false, tensor: None };
    let right = Right { storage: stored("b", "b", &b, gpu).unwrap(), first: 0, rows: n, cols: k, transposed: true };
    let out = Output::new(gpu, m * n).unwrap();
    planned(gpu, left, right, Epilogue::default(), out.buffer(), Plan::Tiles(Tile::Small, 1)).unwrap();
    let found = out.finish([m, n]).unwrap().to_device(Device::Cpu).unwrap();
    assert!(found.data::<f32>().unwrap().chunks(2).all(|row| row == [3.0, -6.0]));
}

/// A result over what a kernel can see is refused before anything is launched, with its place, and later work goes on.
#[test]
fn results_over_the_limit_of_a_binding_are_refused() {
    let Some(gpu) = for_tests() else { return };
    let limit = gpu.facts().max_binding as usize / 4;
    let rows = 1 << 14;
    let outputs = limit / rows + 1;
    let device = Device::Gpu(gpu);
    let x = Tensor::zeros::<f32>([rows, 1]).to_device(device).unwrap();
    let weight = Tensor::zeros::<f32>([outputs, 1]).to_device(device).unwrap();
    let refused = scope("layers.3.mlp", || linear(&x, &weight, None)).unwrap_err().to_string();
    let bytes = (4 * rows * outputs).to_string();
    for part in ["layers.3.mlp", &bytes, &gpu.facts().max_binding.to_string(), "smaller"] {
        assert!(refused.contains(part), "{refused}");
    }
    let few = Tensor::full([2, 1], 1.0_f32).to_device(device).unwrap();
    assert_eq!(linear(&few, &few, None).unwrap().to_f64_vec(), [1.0; 4]);
}

/// Bands of 8 rows of tiles and a last one that is lower.
#[test]
fn many_tiles() {
    let Some(gpu) = for_tests() else { return };
    check(gpu, Plan::Tiles(Tile::Small, 1), Sizes { m: 19 * 64 + 5, n: 3 * 64, k: 4 }, DType::F32, [false, true]);
}

#[test]
fn weights_are_decoded_to_plain_floats() {
    let Some(gpu) = for_tests() else { return };
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::Nf4] {
        let weight = matrix("weight", 6, 130, dtype);
        let there = weight.to_device(Device::Gpu(gpu)).unwrap();
        for (to, tolerance) in [(DType::F32, 0.0), (DType::F16, 5e-4)] {
            let decoded = whole(gpu, stored("weight", "weight", &there, gpu).unwrap(), to).unwrap().unwrap();
            let decoded = Tensor::from_gpu(decoded, [6, 130]).unwrap();
            close(&format!("{dtype} to {to}"), tolerance, &decoded, &weight.to_f64_vec());
        }
    }
}

/// What f16 cannot hold is never clipped to what it can.
#[test]
fn overflow_in_16_bits_is_not_a_number() {
    let Some(gpu) = for_tests() else { return };
    let values = vec![65504.0, -65504.0, 65536.0, -1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1.0];
    let there = Tensor::from_vec(values, [8]).unwrap().to_device(Device::Gpu(gpu)).unwrap();
    let half = whole(gpu, stored("x", "x", &there, gpu).unwrap(), DType::F16).unwrap().unwrap();
    let half = Tensor::from_gpu(half, [8]).unwrap().to_device(Device::Cpu).unwrap().to_f64_vec();
    assert_eq!([half[0], half[1], half[7]], [65504.0, -65504.0, 1.0]);
    assert!(half[2..7].iter().all(|x| !x.is_finite()), "{half:?}");
}

/// Products in f16 against sums in doubles; `None` where the card has no matrix units for it.
fn in_half(sizes: Sizes, transposed: bool, dtype: DType, left: &dyn Fn(f32) -> f32) -> Option<(Tensor, Vec<f64>)> {
    let gpu = for_tests()?;
    if let Some(lack) = cooperative::lacks(gpu.facts()) {
        eprintln!("SKIPPED: {} lacks {lack}", gpu.facts().name);
        return None;
    }
    let Sizes { m, n, k } = sizes;
    let a: Vec<f32> = Random::new(3, "a", 0).normal_vec::<f32>((m + 1) * k, 1.0).into_iter().map(left).collect();
    let (rows, cols) = if transposed { (n, k) } else { (k, n) };
    let (a, b) = (Tensor::from_vec(a, [m + 1, k]).unwrap(), matrix("b", rows + 1, cols, dtype));
    let expected = product(&a.to_f64_vec()[k..], &b.to_f64_vec()[cols..], sizes, [false, transposed]);
    let (a, b) = (a.to_device(Device::Gpu(gpu)).unwrap(), b.to_device(Device::Gpu(gpu)).unwrap());
    let left =
        Left { data: floats("a", "a", &a, gpu).unwrap(), first: 1, rows: m, cols: k, transposed: false, tensor: None };
    let right = Right { storage: stored("b", "b", &b, gpu).unwrap(), first: 1, rows, cols, transposed };
    let out = Output::new(gpu, m * n).unwrap();
    assert!(cooperative::gemm(gpu, left, right, Epilogue::default(), out.buffer()).unwrap(), "{sizes:?}");
    Some((out.finish([m, n]).unwrap(), expected))
}

#[test]
fn products_by_cooperative_matrices() {
    for (transposed, dtype) in
        [(true, DType::F16), (false, DType::F16), (true, DType::Nf4), (false, DType::BF16), (true, DType::F32)]
    {
        // Of whole tiles, and with edges inside.
        for sizes in [Sizes { m: 256, n: 128, k: 68 }, Sizes { m: 141, n: 172, k: 100 }] {
            let Some((found, expected)) = in_half(sizes, transposed, dtype, &|x| x) else { return };
            close(&format!("{sizes:?} {dtype} {transposed}"), 2e-3, &found, &expected);
        }
    }
}

/// What is added to a product and where it goes: of whole tiles, which go to the result directly, and of parts.
#[test]
fn results_of_cooperative_matrices_are_scaled_and_added() {
    let Some(gpu) = for_tests() else { return };
    if cooperative::lacks(gpu.facts()).is_some() {
        return;
    }
    for (m, biased) in [(128, false), (128, true), (100, false)] {
        let Sizes { m, n, k } = Sizes { m, n: 256, k: 64 };
        let there = |name: &str, rows, cols| matrix(name, rows, cols, DType::F32).to_device(Device::Gpu(gpu)).unwrap();
        let [a, b, base, bias, gate] =
            [there("a", m, k), there("b", n, k), there("base", m, n), there("bias", 1, n), there("gate", 1, 1)];
        let buffer = |x| floats("a product", "an operand", x, gpu).unwrap();
        let left = Left { data: buffer(&a), first: 0, rows: m, cols: k, transposed: false, tensor: None };
        let right = Right { storage: stored("b", "b", &b, gpu).unwrap(), first: 0, rows: n, cols: k, transposed: true };
        let how = Epilogue {
            factor: 0.5,
            gate: Some(buffer(&gate)),
            base: Some(buffer(&base)),
            bias: biased.then(|| buffer(&bias)),
            first: 2 * n,
            ..Epilogue::default()
        };
        let out = Output::new(gpu, (m + 2) * n).unwrap();
        // In launches of one tile.
        let usual = gpu.set_longest_launch(1e4);
        assert!(cooperative::gemm(gpu, left, right, how, out.buffer()).unwrap());
        gpu.set_longest_launch(usual);
        let found = out.finish([m + 2, n]).unwrap().to_f64_vec().split_off(2 * n);
        let product = product(&a.to_f64_vec(), &b.to_f64_vec(), Sizes { m, n, k }, [false, true]);
        let [base, bias, gate] = [base, bias, gate].map(|x| x.to_f64_vec());
        let expected: Vec<f64> = (0..m * n)
            .map(|at| base[at] + 0.5 * gate[0] * product[at] + if biased { bias[at % n] } else { 0.0 })
            .collect();
        let found = Tensor::from_vec(found, [m, n]).unwrap();
        close(&format!("{m} rows, bias: {biased}"), 2e-3, &found, &expected);
    }
}

/// The input of several products is converted once where it is asked to keep that, to the same results.
#[test]
fn conversions_are_made_once() {
    let Some(gpu) = for_tests() else { return };
    if cooperative::lacks(gpu.facts()).is_some() {
        return;
    }
    let there = |name: &str| matrix(name, 68, 128, DType::F32).to_device(Device::Gpu(gpu)).unwrap();
    let (x, weights) = (there("x"), [there("w"), there("v")]);
    let run = |x: &Tensor| {
        weights.each_ref().map(|w| with_precision(Precision::F16, || linear(x, w, None)).unwrap().to_f64_vec())
    };
    let kept = x.keep_conversion();
    assert_eq!(run(&kept), run(&x));
    kept.converted::<Option<cooperative::Halves>>(|| unreachable!("it was kept")).unwrap();
}

/// The left factor is brought into the range of f16, however small or large it is.
#[test]
fn tiny_and_huge_gradients_keep_their_digits() {
    let sizes = Sizes { m: 70, n: 64, k: 64 };
    for size in [1e-38, 1e-12, 6e-5, 1e8, 1e37] {
        let Some((found, expected)) = in_half(sizes, false, DType::F16, &|x| x * size) else { return };
        close(&format!("size {size:e}"), 2e-3, &found, &expected);
    }
    let Some((found, _)) = in_half(sizes, false, DType::F16, &|_| 0.0) else { return };
    assert!(found.to_f64_vec().iter().all(|&x| x == 0.0));
}

/// A row with a value that is not finite has a result that is not; the other rows have theirs.
#[test]
fn what_is_not_finite_stays_so() {
    let sizes = Sizes { m: 70, n: 64, k: 64 };
    for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        // Drawn values that are this large are rare: a few rows have one.
        let Some((found, expected)) = in_half(sizes, false, DType::F16, &|x| if x > 3.0 { broken } else { x * 1e-9 })
        else {
            return;
        };
        let (found, mut rows) = (found.to_f64_vec(), [0, 0]);
        for (found, expected) in found.chunks(64).zip(expected.chunks(64)) {
            let finite = expected.iter().all(|x| x.is_finite());
            rows[usize::from(finite)] += 1;
            assert!(found.iter().all(|x| x.is_finite() == finite));
        }
        assert!(rows[0] > 0 && rows[1] > 0, "{rows:?}");
    }
}

#[test]
fn cooperative_kernels_compile() {
    for kernel in cooperative::KERNELS {
        for transposed in [0.0, 1.0] {
            for [direct, bias] in [[1.0, 0.0], [0.0, 1.0]] {
                let constants =
                    [("DIRECT", direct), ("B_TRANSPOSED", transposed), ("BASE", 1.0), ("BIAS", bias), ("GATED", 1.0)];
                compiles(kernel, &constants);
            }
        }
    }
}

#[test]
fn kernels_of_every_block_format_compile() {
    for (_, format) in GGML_FORMATS {
        assert!(blocks::kernels(format).is_ok(), "{}", format.name());
    }
    for kernel in blocks::all() {
        compiles(kernel, &[]);
    }
}

/// Products, gradients and rows of a table in blocks, beside the CPU's.
#[test]
fn block_formats_agree_with_the_cpu() {
    let Some(gpu) = for_tests() else { return };
    for (_, format) in GGML_FORMATS {
        let weight = random_blocks(format, 40, 2 * format.block_size());
        for rows in [1, 3, 70] {
            let (x, g) = (matrix("x", rows, weight.shape()[1], DType::F32), matrix("g", rows, 40, DType::F32));
            let ids = Tensor::from_vec(vec![3_u32, 39, 0], [3]).unwrap();
            let run = |device: Device| {
                let [x, g, weight] = [&x, &g, &weight].map(|tensor| tensor.to_device(device).unwrap());
                let x = x.parameter().unwrap();
                let y = linear(&x, &weight, None).unwrap();
                let gradient = y.backward_with(g).unwrap().take(&x).unwrap();
                [y, gradient, embedding(&ids, &weight).unwrap()]
            };
            let expected = run(Device::Cpu);
            for (found, expected) in run(Device::Gpu(gpu)).iter().zip(&expected) {
                close(&format!("{} of {rows} rows", format.name()), 1e-5, found, &expected.to_f64_vec());
            }
        }
    }
}

/// The choice is made once, and only where products in f16 can be made.
#[test]
fn the_default_precision_is_measured_once() {
    let Some(gpu) = for_tests() else { return };
    let device = Device::Gpu(gpu);
    let chosen = default_precision(device);
    assert!(chosen == Precision::F32 || check_precision(device, Precision::F16).is_ok());
    assert_eq!(default_precision(device), chosen);
}

/// Linear maps and the head of the loss with frozen weights: outputs and gradients, beside the CPU's.
#[test]
fn operators_in_16_bits_agree_with_the_cpu() {
    let Some(gpu) = for_tests() else { return };
    if let Some(lack) = cooperative::lacks(gpu.facts()) {
        return eprintln!("SKIPPED: {} lacks {lack}", gpu.facts().name);
    }
    let (rows, width, outputs) = (96, 72, 104);
    let [x, base, bias] = [(rows, width), (rows, outputs), (1, outputs)].map(|(m, n)| matrix("x", m, n, DType::F32));
    let bias = bias.reshape([outputs]).unwrap();
    let weight = matrix("w", outputs, width, DType::BF16);
    let tokens = Tensor::from_vec((0..rows as u32).map(|i| i % outputs as u32).collect(), [rows]).unwrap();
    let run = |device: Device, precision: Precision| {
        let [x, base, bias, weight] = [&x, &base, &bias, &weight].map(|tensor| tensor.to_device(device).unwrap());
        let x = x.parameter().unwrap();
        let weights = Tensor::full([rows], 1.0_f32);
        let targets = Targets { tokens: &tokens, weights: &weights, smoothing: 0.0, normalizer: 1e6 };
        let [sum, loss] = with_precision(precision, || {
            let sum = add_linear(&base, &x, &weight, Some(&bias), Gate::Fixed(-0.5)).unwrap();
            [sum, cross_entropy(&x, Head { bias: Some(&bias), ..Head::new(&weight) }, targets).unwrap()]
        });
        let seed = base.to_device(device).unwrap();
        let gradients = [sum.backward_with(seed).unwrap(), loss.backward().unwrap()];
        let [of_sum, of_loss] = gradients.map(|mut gradients| gradients.take(&x).unwrap());
        [sum, loss, of_sum, of_loss]
    };
    let expected = run(Device::Cpu, Precision::F32);
    for (i, (found, expected)) in run(Device::Gpu(gpu), Precision::F16).iter().zip(&expected).enumerate() {
        close(&format!("result {i}"), 2e-3, found, &expected.to_f64_vec());
    }
}
