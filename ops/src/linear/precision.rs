//! The precision of products with frozen weights: what a device has, and the rounding of operands on the CPU.
//!
//! On the CPU `bf16` is 1.7 to 1.9 times as fast as `f32` where the processor has dot products of `bf16` (`avx512_bf16`: AMD from Zen 4
//! on, Intel Cooper Lake and from Sapphire Rapids on). Elsewhere it saves no time: operands are rounded, and as products of two
//! `bf16` are exact in `f32`, results are those of the instructions up to the rounding of the sum. So the same product may
//! differ in its last bits from one processor to another.

use super::gpu::{f16_is_faster, f16_is_right, lacks_f16};
#[cfg(target_arch = "x86_64")]
use crate::kernels::gemm::bf16::DotProducts;
use hankel_core::gpu::GpuFacts;
use hankel_core::{DType, Device, Error, Precision, Result, Tensor, precision};

/// Whether products on `device` can be made in `precision`.
///
/// # Errors
/// When they cannot: says what is missing.
pub fn check_precision(device: Device, precision: Precision) -> Result<()> {
    let refuse = |problem: String| Err(Error::Placement { operator: "precision", problem });
    match (device, precision) {
        (_, Precision::F32) | (Device::Cpu, Precision::Bf16) => Ok(()),
        (Device::Cpu, Precision::F16) => {
            refuse("f16 is for GPUs with cooperative matrices; the CPU has f32 and bf16".to_owned())
        }
        (Device::Gpu(gpu), Precision::Bf16) => {
            let name = &gpu.facts().name;
            refuse(format!("bf16 is for the CPU, GPU kernels have no such type; {name} has f32{}", and_f16(device)))
        }
        (Device::Gpu(gpu), Precision::F16) => match lacks_f16(gpu.facts()) {
            None if f16_is_right(gpu)? => Ok(()),
            None => refuse(format!(
                "f16 is not for {}, whose driver ({}) gives no products by cooperative matrices, or wrong ones; it has f32",
                gpu.facts().name,
                gpu.facts().driver
            )),
            Some(lack) => refuse(format!("f16 needs {lack}, which {} lacks; it has f32", gpu.facts().name)),
        },
    }
}

fn and_f16(device: Device) -> &'static str {
    if check_precision(device, Precision::F16).is_ok() { " and f16" } else { "" }
}

/// The precisions of products on a GPU.
pub fn gpu_precisions(facts: &GpuFacts) -> Vec<Precision> {
    let half = lacks_f16(facts).is_none().then_some(Precision::F16);
    [Precision::F32].into_iter().chain(half).collect()
}

/// The precision that suits `device` best: `f16` on GPUs that have it and on which a short measurement finds it clearly faster,
/// otherwise `f32`.
pub fn default_precision(device: Device) -> Precision {
    match device {
        Device::Gpu(gpu) if check_precision(device, Precision::F16).is_ok() && f16_is_faster(gpu).unwrap_or(false) => {
            Precision::F16
        }
        _ => Precision::F32,
    }
}

/// The fastest precision of `device`: 16 bits where they save time, otherwise `f32`.
pub fn fastest_precision(device: Device) -> Precision {
    #[cfg(target_arch = "x86_64")]
    if device == Device::Cpu && DotProducts::detect().is_some() {
        return Precision::Bf16;
    }
    default_precision(device)
}

/// The precision of a product of `x` with `weight`: as the thread has it, if the weight is frozen.
///
/// # Errors
/// When the device of `x` has none such.
pub(crate) fn of_product(x: &Tensor, weight: &Tensor) -> Result<Precision> {
    let wanted = precision();
    if wanted == Precision::F32 || weight.is_tracked() || x.dtype() != DType::F32 {
        return Ok(Precision::F32);
    }
    check_precision(x.device(), wanted)?;
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::product::rounded;
    use crate::linear::{linear, nf4};
    use half::bf16;
    use hankel_core::{Random, checkpoint, with_precision};

    #[test]
    fn rounding_is_that_of_the_type() {
        let random = Random::new(1, "bits", 0);
        let mut values: Vec<f32> = (0..10_000).map(|i| f32::from_bits(random.below(i, 1 << 32) as u32)).collect();
        values.extend([0.0, -0.0, 1.0, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE]);
        for (found, x) in rounded(&values).iter().zip(&values) {
            let expected = bf16::from_f32(*x).to_f32();
            assert!(*found == expected || found.is_nan() && expected.is_nan(), "{x:e}: {found:e}, {expected:e}");
        }
    }

    fn matrix(name: &str, rows: usize, cols: usize) -> Tensor {
        Tensor::from_vec(Random::new(1, name, 0).normal_vec::<f32>(rows * cols, 1.0), [rows, cols]).unwrap()
    }

    /// Products, forwards and backwards, equal those of rounded operands; learned weights are not rounded.
    #[test]
    fn products_of_rounded_operands() {
        let round = |x: &Tensor| x.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
        let plain = matrix("w", 40, 96);
        let weights = [
            plain.clone(),
            plain.to_dtype(DType::BF16).unwrap(),
            plain.to_dtype(DType::F16).unwrap(),
            nf4::quantize(&plain, false).unwrap(),
        ];
        for rows in [9, 17] {
            let (x, g) = (matrix("x", rows, 96), matrix("g", rows, 40));
            for weight in &weights {
                let run = |precision, x: &Tensor, w: &Tensor, g: &Tensor| {
                    let (x, w) = (x.parameter().unwrap(), w.clone());
                    let again = x.clone();
                    // The gradient belongs to the forward pass, also through recomputed regions.
                    let y = with_precision(precision, || checkpoint(None, &[&again], move |x| linear(&x[0], &w, None)));
                    let y = y.unwrap();
                    let gradient = y.backward_with(g.clone()).unwrap().take(&x).unwrap();
                    (y.to_f64_vec(), gradient.to_f64_vec())
                };
                let wide =
                    round(&Tensor::from_vec(weight.to_f64_vec(), [40, 96]).unwrap().to_dtype(DType::F32).unwrap());
                let found = run(Precision::Bf16, &x, weight, &g);
                let expected = run(Precision::F32, &round(&x), &wide, &round(&g));
                let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
                assert!(close(&found.0, &expected.0) && close(&found.1, &expected.1), "{rows} {}", weight.dtype());
                assert_ne!(found, run(Precision::F32, &x, weight, &g), "{rows} {}", weight.dtype());
            }
            // A few rows are multiplied in f32 forwards.
            let few = matrix("x", 8, 96);
            for weight in &weights {
                let [one, other] = [Precision::F32, Precision::Bf16]
                    .map(|precision| with_precision(precision, || linear(&few, weight, None).unwrap().to_f64_vec()));
                assert_eq!(one, other, "{}", weight.dtype());
            }
            let learned = plain.parameter().unwrap();
            let [one, other] = [Precision::F32, Precision::Bf16]
                .map(|precision| with_precision(precision, || linear(&x, &learned, None).unwrap().to_f64_vec()));
            assert_eq!(one, other);
        }
    }

    /// The input of several products is rounded once where it is asked to keep that, to the same results.
    #[test]
    fn conversions_are_made_once() {
        let (x, weights) = (matrix("x", 64, 96), [matrix("w", 40, 96), matrix("v", 24, 96)]);
        let run = |x: &Tensor| {
            weights.each_ref().map(|w| with_precision(Precision::Bf16, || linear(x, w, None)).unwrap().to_f64_vec())
        };
        let kept = x.keep_conversion();
        assert_eq!(run(&kept), run(&x));
        #[cfg(target_arch = "x86_64")]
        if DotProducts::detect().is_some() {
            kept.converted::<crate::kernels::gemm::bf16::Rounded>(|| unreachable!("it was kept")).unwrap();
            return;
        }
        kept.converted::<hankel_core::Buffer<f32>>(|| unreachable!("it was kept")).unwrap();
    }

    #[test]
    fn what_a_device_lacks_is_refused_by_name() {
        let (x, weight) = (matrix("x", 3, 8), matrix("w", 4, 8));
        let refused = with_precision(Precision::F16, || linear(&x, &weight, None)).unwrap_err().to_string();
        assert!(refused.contains("f16") && refused.contains("CPU has f32 and bf16"), "{refused}");
        let Some(gpu) = hankel_core::gpu::for_tests() else { return };
        let device = Device::Gpu(gpu);
        let (x, weight) = (x.to_device(device).unwrap(), weight.to_device(device).unwrap());
        let refused = with_precision(Precision::Bf16, || linear(&x, &weight, None)).unwrap_err().to_string();
        assert!(refused.contains("bf16 is for the CPU") && refused.contains(&gpu.facts().name), "{refused}");
        let half = with_precision(Precision::F16, || linear(&x, &weight, None));
        match lacks_f16(gpu.facts()) {
            None => assert!(half.is_ok()),
            Some(lack) => assert!(half.unwrap_err().to_string().contains(lack)),
        }
    }
}
