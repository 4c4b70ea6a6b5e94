use super::*;
use crate::kernels::gemm;
use crate::linear::block_tests::random_blocks;
use crate::linear::nf4;
use hankel_core::block_formats::GGML_FORMATS;
use hankel_core::nf4::Scales;
use hankel_core::{DType, Nf4, Precision, Random, Tensor};
use proptest::prelude::*;
use pulp::Arch;

fn values(len: usize, name: &str) -> Vec<f64> {
    let random = Random::new(1, name, 0);
    (0..len as u64).map(|i| random.normal(i)).collect()
}

/// The same product by tiles, on the same elements.
fn matches<T: Real>(weight: &Tensor, n: usize, how: u8) -> Result<(), TestCaseError> {
    let (rows, cols) = (weight.shape()[0], weight.shape()[1]);
    let vector = |len, name| -> Vec<T> { values(len, name).into_iter().map(T::of).collect() };
    let (x, bias) = (vector(n * cols, "x"), vector(rows, "bias"));
    let [base, before] = ["base", "before"].map(|name| vector(n * rows, name));
    let how = match how {
        0 => Accumulate::Overwrite,
        1 => Accumulate::Add,
        2 => Accumulate::Bias(&bias),
        3 => Accumulate::Onto(Mat::new(&base, n, rows), None),
        _ => Accumulate::Onto(Mat::new(&base, n, rows), Some(&bias)),
    };
    let alpha = T::of(0.75);
    let (mut found, mut expected) = (before.clone(), before);
    let x = Mat::new(&x, n, cols);
    few_rows(alpha, x, &Weight::new(weight, Precision::F32).unwrap(), how, &mut found);
    gemm(alpha, x, &Weight::new(weight, Precision::F32).unwrap().t(), how, &mut expected, rows);
    let tolerance = 4.0 * T::epsilon().f64() * (cols as f64 + 4.0);
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let error = (found.f64() - expected.f64()).abs();
        prop_assert!(
            error <= tolerance * (1.0 + expected.f64().abs()),
            "{}, {i}: {found} for {expected}",
            weight.dtype()
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn equals_the_product_by_tiles(n in 1..=MOST_ROWS, rows in 1_usize..40, cols in 1_usize..300, how in 0_u8..5) {
        let weight = Tensor::from_vec(values(rows * cols, "w"), [rows, cols]).unwrap();
        matches::<f64>(&weight, n, how)?;
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let weight = weight.to_dtype(dtype).unwrap();
            matches::<f32>(&weight, n, how)?;
            let quantized = nf4::quantize(&weight, true).unwrap();
            matches::<f32>(&quantized, n, how)?;
            if dtype != DType::F32 {
                matches::<f64>(&weight, n, how)?;
                matches::<f64>(&quantized, n, how)?;
            }
        }
    }

    #[test]
    fn whole_blocks_equal_the_product_by_tiles(n in 1..=MOST_ROWS, rows in 1_usize..12, blocks in 1_usize..6) {
        for (_, format) in GGML_FORMATS {
            let weight = random_blocks(format, rows, blocks * format.block_size());
            matches::<f32>(&weight, n, 0)?;
            matches::<f64>(&weight, n, 1)?;
        }
        let weight = Tensor::from_vec(values(rows * blocks * 64, "w"), [rows, blocks * 64]).unwrap();
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let weight = weight.to_dtype(dtype).unwrap();
            matches::<f32>(&weight, n, 0)?;
            for double in [false, true] {
                matches::<f32>(&nf4::quantize(&weight, double).unwrap(), n, 2)?;
            }
        }
    }
}

#[test]
fn many_rows_are_cut_into_tasks() {
    let weight = Tensor::from_vec(values(700 * 512, "w"), [700, 512]).unwrap().to_dtype(DType::BF16).unwrap();
    for n in [1, 3] {
        matches::<f32>(&weight, n, 2).unwrap();
        matches::<f32>(&nf4::quantize(&weight, true).unwrap(), n, 1).unwrap();
    }
}

/// 4-bit floats with blocks of every size that is read in registers, and one that is not.
#[test]
fn blocks_of_4_bit_floats_may_have_any_size() {
    let random = Random::new(3, "codes", 0);
    let cols = 1536;
    for block in [32, 64, 128, 256, 512, 768, 96] {
        for source in [DType::F32, DType::BF16, DType::F16] {
            let packed: Vec<u8> = (0..5 * cols as u64 / 2).map(|i| random.below(i, 256) as u8).collect();
            let scales: Vec<f32> = (0..5 * cols / block).map(|i| 0.3 + i as f32 / 50.0).collect();
            let codebook = std::array::from_fn(|i| i as f32 / 15.0 - 0.4);
            let matrix =
                Nf4::new(packed.into(), Scales::Plain(scales.into()), codebook, [5 * cols, block], source).unwrap();
            let weight = Tensor::from_nf4(matrix, [5, cols]).unwrap();
            matches::<f32>(&weight, 1, 0).unwrap();
            matches::<f32>(&weight, 4, 0).unwrap();
        }
    }
}

/// One row of every compact type with the instructions of lesser processors; values that are not finite go where they do in
/// exact arithmetic.
#[test]
fn every_instruction_set_agrees() {
    let mut sets = vec![Arch::Scalar];
    #[cfg(target_arch = "x86_64")]
    {
        sets.extend(pulp::x86::V3::try_new().map(Arch::V3));
        sets.extend(pulp::x86::V4::try_new().map(Arch::V4));
    }
    let (rows, cols) = (6, 1024);
    let plain = Tensor::from_vec(values(rows * cols, "w"), [rows, cols]).unwrap().to_dtype(DType::F32).unwrap();
    let mut weights: Vec<Tensor> = GGML_FORMATS.iter().map(|(_, format)| random_blocks(*format, rows, cols)).collect();
    weights.extend([DType::BF16, DType::F16].map(|dtype| plain.to_dtype(dtype).unwrap()));
    weights.extend([plain.clone(), nf4::quantize(&plain, true).unwrap()]);
    let x: Vec<f32> = values(cols, "x").into_iter().map(|x| x as f32).collect();
    for weight in &weights {
        let decoded = weight.to_f64_vec();
        for bad in [None, Some(f32::NAN), Some(f32::INFINITY)] {
            let mut x = x.clone();
            if let Some(bad) = bad {
                x[777] = bad;
            }
            let view = Weight::new(weight, Precision::F32).unwrap();
            let ordered = Ordered::new(&view, &x).expect("whole blocks of f32");
            for &arch in &sets {
                let mut sums = vec![0.0; rows];
                ordered.products(arch, 0, &mut sums);
                for (row, &found) in decoded.chunks(cols).zip(&sums) {
                    let terms = || row.iter().zip(&x).map(|(w, &x)| w * f64::from(x));
                    let (expected, size): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
                    let same = if expected.is_finite() {
                        (f64::from(found) - expected).abs() <= 2e-6 * size
                    } else {
                        f64::from(found).to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan()
                    };
                    assert!(same, "{} with {arch:?}: {found} for {expected}", weight.dtype());
                }
            }
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let plain = Tensor::from_vec(values(600 * 256, "w"), [600, 256]).unwrap().to_dtype(DType::F32).unwrap();
    let weight = nf4::quantize(&plain, true).unwrap();
    for n in [1, 5] {
        let x: Vec<f32> = values(n * 256, "x").into_iter().map(|x| x as f32).collect();
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut out = vec![0.0; n * 600];
            let weight = Weight::new(&weight, Precision::F32).unwrap();
            pool.install(|| few_rows(1.0, Mat::new(&x, n, 256), &weight, Accumulate::Overwrite, &mut out));
            out
        };
        assert!(run(1) == run(2) && run(1) == run(5));
    }
}
