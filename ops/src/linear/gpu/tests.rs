//! Every kernel of products against sums in doubles.

use super::gemm::{Plan, Sizes, decode, planned};
use super::kernels::Tile;
use super::{Epilogue, Left, Right};
use crate::gpu::{Output, floats, stored};
use crate::linear::nf4;
use hankel_core::gpu::{Gpu, for_tests};
use hankel_core::{DType, Device, Random, Tensor};

/// A random matrix in main memory, stored in `dtype`.
fn matrix(name: &str, rows: usize, cols: usize, dtype: DType) -> Tensor {
    let values = Random::new(3, name, 0).normal_vec::<f32>(rows * cols, 1.0);
    let plain = Tensor::from_vec(values, [rows, cols]).unwrap();
    match dtype {
        DType::Nf4 => nf4::quantize(&plain.to_dtype(DType::BF16).unwrap(), true).unwrap(),
        dtype => plain.to_dtype(dtype).unwrap(),
    }
}

/// `a b` of `[m, k]` and `[k, n]`, or of what they are the transposes of.
fn product(a: &[f64], b: &[f64], Sizes { m, n, k }: Sizes, [turned_a, turned_b]: [bool; 2]) -> Vec<f64> {
    let a = |i: usize, s: usize| if turned_a { a[s * m + i] } else { a[i * k + s] };
    let b = |s: usize, j: usize| if turned_b { b[j * k + s] } else { b[s * n + j] };
    (0..m * n).map(|at| (0..k).map(|s| a(at / n, s) * b(s, at % n)).sum()).collect()
}

fn close(name: &str, tolerance: f64, found: &Tensor, expected: &[f64]) {
    let scale = expected.iter().fold(1e-30, |m: f64, x| m.max(x.abs()));
    for (i, (found, expected)) in found.to_f64_vec().iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance * scale, "{name}: element {i} is {found}, expected {expected}");
    }
}

fn check(gpu: &'static Gpu, plan: Plan, sizes: Sizes, dtype: DType, turned: [bool; 2]) {
    let name = format!("{plan:?} {sizes:?} {dtype} {turned:?}");
    let Sizes { m, n, k } = sizes;
    let shape = |turned: bool, rows, cols| if turned { (cols, rows) } else { (rows, cols) };
    // Both factors begin in the second row of what is stored.
    let ((rows_a, cols_a), (rows_b, cols_b)) = (shape(turned[0], m, k), shape(turned[1], k, n));
    let (a, b) = (matrix("a", rows_a + 1, cols_a, DType::F32), matrix("b", rows_b + 1, cols_b, dtype));
    let expected = product(&a.to_f64_vec()[cols_a..], &b.to_f64_vec()[cols_b..], sizes, turned);
    let (base, bias, gate) = (matrix("base", m, n, DType::F32), matrix("bias", 1, n, DType::F32), [0.75_f32]);
    let (bases, biases) = (base.to_f64_vec(), bias.to_f64_vec());
    let added = (0..m * n).map(|i| bases[i] - 0.5 * 0.75 * expected[i] + biases[i % n]).collect();
    let there = |x: &Tensor| x.to_device(Device::Gpu(gpu)).unwrap();
    let (a, b, base, bias) = (there(&a), there(&b), there(&base), there(&bias));
    let gate = there(&Tensor::from_vec(gate.to_vec(), [1]).unwrap());
    let left =
        Left { data: floats("a", "a", &a, gpu).unwrap(), first: 1, rows: rows_a, cols: cols_a, transposed: turned[0] };
    let storage = stored("b", "b", &b, gpu).unwrap();
    let right = Right { storage, first: 1, rows: rows_b, cols: cols_b, transposed: turned[1] };
    let all = Epilogue {
        factor: -0.5,
        gate: Some(floats("gate", "gate", &gate, gpu).unwrap()),
        base: Some(floats("base", "base", &base, gpu).unwrap()),
        bias: Some(floats("bias", "bias", &bias, gpu).unwrap()),
        first: 0,
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
        for turned in [[false, false], [false, true], [true, false]] {
            // Some edge is within a tile, rows can be read in fours or cannot.
            for (m, n, k) in [(rows + 4, columns + 12, 52), (rows - 3, columns + 1, 37)] {
                check(gpu, Plan::Tiles(tile, if turned[0] { 3 } else { 1 }), Sizes { m, n, k }, DType::F32, turned);
            }
        }
        for (turned, dtype) in [(false, DType::BF16), (true, DType::F16), (tile == Tile::Small, DType::Nf4)] {
            check(gpu, Plan::Tiles(tile, 1), Sizes { m: rows, n: columns + 64, k: 64 }, dtype, [false, turned]);
            check(gpu, Plan::Tiles(tile, 1), Sizes { m: 5, n: 6, k: 7 }, dtype, [false, !turned]);
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
            let decoded = decode(gpu, stored("weight", "weight", &there, gpu).unwrap(), to, None).unwrap().unwrap();
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
    let half = decode(gpu, stored("x", "x", &there, gpu).unwrap(), DType::F16, None).unwrap().unwrap();
    let half = Tensor::from_gpu(half, [8]).unwrap().to_device(Device::Cpu).unwrap().to_f64_vec();
    assert_eq!([half[0], half[1], half[7]], [65504.0, -65504.0, 1.0]);
    assert!(half[2..7].iter().all(|x| !x.is_finite()), "{half:?}");
}
