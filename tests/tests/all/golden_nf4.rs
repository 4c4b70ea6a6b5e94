//! 4-bit quantisation against bitsandbytes.

use hankel_core::nf4::Scales;
use hankel_core::{DType, Tensor, no_grad};
use hankel_ops::linear;
use hankel_ops::linear::nf4::{CODEBOOK, dynamic_codebook, quantize_blocks};
use hankel_tests::golden::Golden;

const CASES: &[&str] = &["nf4_f32", "nf4_bf16", "nf4_bs128", "nf4_dq_f32", "nf4_dq_bf16", "nf4_edge", "nf4_ties"];

fn read(case: &str) -> Golden {
    Golden::read(&format!("quant4/{case}"))
}

fn is_double(golden: &Golden) -> bool {
    golden.fact("double_quant").as_bool().unwrap()
}

fn quantized(case: &str, golden: &Golden) -> Tensor {
    let source = if case.ends_with("bf16") { DType::BF16 } else { DType::F32 };
    let block = golden.fact("block_size").as_u64().unwrap() as usize;
    quantize_blocks(&golden.tensor("weight", source), is_double(golden), block).unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn bytes(values: &[u8]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

#[test]
fn codes_and_scales_are_those_of_bitsandbytes() {
    for case in CASES {
        let golden = read(case);
        let tensor = quantized(case, &golden);
        let matrix = tensor.nf4().unwrap();
        golden.check("packed", DType::F32, &bytes(matrix.packed()));
        let codebook: Vec<f32> = golden.values("code").iter().map(|&x| x as f32).collect();
        assert_eq!(bits(&CODEBOOK), bits(&codebook), "{case}");
        let blocks = matrix.elements().div_ceil(matrix.block());
        let scales: Vec<f64> = (0..blocks).map(|i| f64::from(matrix.scales().get(i))).collect();
        golden.check("absmax", DType::F32, &scales);
        assert_eq!(is_double(&golden), matches!(matrix.scales(), Scales::Double { .. }), "{case}");
        if let Scales::Double { codes, nested, codebook, offset, .. } = matrix.scales() {
            golden.check("absmax_q", DType::F32, &bytes(codes));
            golden.check("nested_absmax", DType::F32, &wide(nested));
            golden.check("offset", DType::F32, &[f64::from(*offset)]);
            let expected: Vec<f32> = golden.values("nested_code").iter().map(|&x| x as f32).collect();
            assert_eq!(bits(&codebook[..]), bits(&expected), "{case}: codebook");
            assert_eq!(bits(&dynamic_codebook()), bits(&expected), "{case}: codebook");
        }
        golden.check("dequant", DType::F32, &tensor.to_f64_vec());
    }
}

#[test]
fn products_decode_on_the_fly() {
    for case in CASES {
        let golden = read(case);
        let weight = quantized(case, &golden);
        for dtype in [DType::F32, DType::F64] {
            let x = golden.tensor("x", dtype).parameter().unwrap();
            let y = linear(&x, &weight, None).unwrap();
            // The scales of double quantisation are computed in single precision whatever the product is in.
            let precision = if is_double(&golden) { DType::F32 } else { dtype };
            golden.check("y", precision, &y.to_f64_vec());
            let gradients = y.backward_with(golden.tensor("gy", dtype)).unwrap();
            golden.check("gx", precision, &gradients.get(&x).unwrap().to_f64_vec());
        }
    }
}

#[test]
fn what_cannot_be_quantised_is_refused() {
    let mut values = vec![0.5_f32; 200];
    values[130] = f32::NAN;
    let message = quantize_blocks(&Tensor::from_vec(values, [2, 100]).unwrap(), true, 64).unwrap_err().to_string();
    assert!(message.contains("128..") && message.contains("not finite"), "{message}");
    let infinite = Tensor::from_vec(vec![1.0, f32::INFINITY], [1, 2]).unwrap();
    assert!(quantize_blocks(&infinite, false, 64).is_err());
    assert!(quantize_blocks(&Tensor::zeros::<f64>([2, 2]), false, 64).is_err());
    assert!(quantize_blocks(&Tensor::zeros::<f32>([2, 2]), false, 63).is_err());
}

#[test]
fn compact_weights_have_no_gradient() {
    let weight = quantize_blocks(&Tensor::full([4, 64], 0.1_f32), true, 64).unwrap();
    assert!(weight.parameter().is_err());
    assert!(weight.to_dtype(DType::BF16).unwrap().parameter().is_err());
    let x = Tensor::full([2, 64], 1.0_f32);
    assert!(!no_grad(|| linear(&x, &weight, None)).unwrap().is_tracked());
    let mut changed = weight.clone();
    assert!(changed.data_mut::<f32>().is_err());
}
