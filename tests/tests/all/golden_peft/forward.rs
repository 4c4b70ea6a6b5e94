//! Adapters at linear sites of Mistral against PEFT: logits, loss and the gradient of every adapter parameter, and merging.

use super::golden as golden_path;
use hankel_core::gpu::for_tests;
use hankel_core::{DType, Device, Tensor, no_grad};
use hankel_models::decoder::LoadOptions;
use hankel_models::{AdapterSet, Backbone, Decoder, Pass, StepKey};
use hankel_ops::{Targets, add};
use hankel_tests::golden::Golden;

const CASES: [&str; 6] = ["lora_qv", "lora_all", "rslora", "dora_qv", "adalora", "ia3"];

/// Mean cross entropy of the next token where its label is not -100.
fn loss_of(model: &Decoder, adapters: &AdapterSet, golden: &Golden, recompute: bool) -> Tensor {
    let tokens = golden.tokens("input_ids");
    let (labels, steps) = (golden.values("labels"), tokens.shape()[1]);
    let next = |i: usize| if (i + 1).is_multiple_of(steps) { -100.0 } else { labels[i + 1] };
    let weigh = |label: f64| if label < 0.0 { (0, 0.0) } else { (label as u32, 1.0) };
    let (targets, weights): (Vec<u32>, Vec<f32>) = (0..labels.len()).map(|i| weigh(next(i))).unzip();
    let normalizer = weights.iter().map(|&w| f64::from(w)).sum();
    let targets = Tensor::from_vec(targets, tokens.shape()).unwrap();
    let weights = Tensor::from_vec(weights, tokens.shape()).unwrap();
    let targets = Targets { tokens: &targets, weights: &weights, smoothing: 0.0, normalizer };
    let mut pass = Pass { recompute, ..Pass::training(StepKey { seed: 0, step: 0 }) };
    model.loss(&tokens, targets, adapters, &mut pass).unwrap()
}

#[test]
fn logits_loss_and_gradients() {
    for case in CASES {
        let golden = Golden::read(&format!("peft/{case}/io"));
        let cpu = [(DType::F32, false), (DType::F64, false), (DType::F32, true)].map(|(d, r)| (d, r, Device::Cpu));
        let gpu = for_tests().map(|gpu| (DType::F32, true, Device::Gpu(gpu)));
        for (dtype, recompute, device) in cpu.into_iter().chain(gpu) {
            let options = LoadOptions { device, ..LoadOptions::default() };
            let model = Decoder::load(&golden_path("mistral/window/hf"), options).unwrap();
            model.to_dtype(dtype).unwrap();
            let adapters =
                AdapterSet::load(&golden_path(&format!("peft/{case}/adapter")), &model.placement(), 24).unwrap();
            adapters.to_dtype(dtype).unwrap();
            adapters.to_device(device).unwrap();
            let expected = golden.fact("trainable_parameters").as_u64().unwrap() as usize;
            assert_eq!(adapters.trainable_count(), expected, "{case}");
            let count = adapters.config().unwrap().parameter_count(&model.placement()).unwrap() as usize;
            assert_eq!(count, expected, "{case}");

            let tokens = golden.tokens("input_ids");
            let logits = no_grad(|| model.logits(&tokens, &adapters, &mut Pass::evaluation())).unwrap();
            // The reference was rounded to single precision.
            golden.check("logits", DType::F32, &logits.to_f64_vec());
            let mut loss = loss_of(&model, &adapters, &golden, recompute);
            if golden.has("loss_lm") {
                golden.check("loss_lm", dtype, &loss.to_f64_vec());
            }
            if let Some(penalty) = adapters.penalty().unwrap() {
                loss = add(&loss, &penalty).unwrap();
            }
            golden.check("loss", dtype, &loss.to_f64_vec());
            let gradients = loss.backward().unwrap();
            for parameter in adapters.parameters() {
                let gradient = gradients.get(&parameter.tensor()).unwrap().to_f64_vec();
                golden.check(&format!("grad.base_model.model.{}", parameter.name()), DType::F32, &gradient);
            }
        }
    }
}

#[test]
fn a_merged_mistral_computes_the_same() {
    for case in CASES {
        let golden = Golden::read(&format!("peft/{case}/io"));
        let model = Decoder::load(&golden_path("mistral/window/hf"), LoadOptions::default()).unwrap();
        let adapters = AdapterSet::load(&golden_path(&format!("peft/{case}/adapter")), &model.placement(), 24).unwrap();
        let report = adapters.merge(&model.parameters()).unwrap();
        let none = AdapterSet::none(&model.placement());
        let tokens = golden.tokens("input_ids");
        let logits = no_grad(|| model.logits(&tokens, &none, &mut Pass::evaluation())).unwrap();
        golden.check("logits", DType::F32, &logits.to_f64_vec());
        assert!(report.largest_drift().unwrap().relative_drift() < 1e-5, "{case}: {report:?}");
    }
}
