//! Twenty optimizer steps of LoRA, DoRA and AdaLoRA against PEFT with PyTorch's AdamW: the loss of every micro-batch, the
//! norm of every gradient, the parameters after one step and after all, AdaLoRA's budget and ranks, and the logits of the
//! saved adapter.

use super::golden as golden_path;
use hankel_core::gpu::for_tests;
use hankel_core::{DType, Device, Gradients, Tensor, no_grad};
use hankel_models::adapters::{AdaLora, AdaLoraConfig, AdapterConfig, Dora, Lora, LoraConfig, Schedule};
use hankel_models::decoder::LoadOptions;
use hankel_models::{AdapterSet, Backbone, Decoder, Parameter, Pass, StepKey};
use hankel_ops::optimizer::{AdamW, Moments, Rate, Scale, clip_factor, gradient_norm};
use hankel_ops::{Targets, add};
use hankel_tests::golden::Golden;
use serde_json::Value;
use std::path::Path;

/// Name in PEFT's files.
fn file_name(parameter: &Parameter) -> String {
    format!("base_model.model.{}", parameter.name())
}

fn config(golden: &Golden) -> AdapterConfig {
    let facts = golden.fact("hyperparameters");
    let size = |key: &str| facts[key].as_u64().unwrap() as usize;
    let number = |key: &str| facts[key].as_f64().unwrap();
    let targets = facts["target"].as_array().unwrap().iter().map(|t| t.as_str().unwrap().to_owned()).collect();
    if golden.fact("method") == "adalora" {
        let schedule = Schedule {
            tinit: size("tinit"),
            tfinal: size("tfinal"),
            delta_t: size("deltaT"),
            total_steps: size("total_step"),
        };
        return AdapterConfig::linear::<AdaLora>(&AdaLoraConfig {
            lora_alpha: number("alpha"),
            targets,
            schedule,
            beta1: number("beta1"),
            beta2: number("beta2"),
            orth_reg_weight: number("orth"),
            ..AdaLoraConfig::new(size("init_r"), size("target_r"), 20)
        });
    }
    let dora = facts["use_dora"].as_bool().unwrap_or(false);
    let settings = LoraConfig { lora_alpha: number("alpha"), targets, ..LoraConfig::new(size("r")) };
    if dora { AdapterConfig::linear::<Dora>(&settings) } else { AdapterConfig::linear::<Lora>(&settings) }
}

/// Mean next-token loss of `tokens` and what the adapters add to it.
fn loss_of(model: &Decoder, adapters: &AdapterSet, tokens: &Tensor) -> Tensor {
    let &[batch, steps] = &tokens.shape()[..] else { panic!("tokens {}", tokens.shape()) };
    let ids = tokens.data::<u32>().unwrap();
    let next = |i: usize| if (i + 1).is_multiple_of(steps) { (0, 0.0) } else { (ids[i + 1], 1.0) };
    let (targets, weights): (Vec<u32>, Vec<f32>) = (0..ids.len()).map(next).unzip();
    let targets = Tensor::from_vec(targets, [batch, steps]).unwrap();
    let weights = Tensor::from_vec(weights, [batch, steps]).unwrap();
    let normalizer = (batch * (steps - 1)) as f64;
    let targets = Targets { tokens: &targets, weights: &weights, smoothing: 0.0, normalizer };
    let mut pass = Pass::training(StepKey { seed: 0, step: 0 });
    let loss = model.loss(tokens, targets, adapters, &mut pass).unwrap();
    adapters.penalty().unwrap().map_or(loss.clone(), |penalty| add(&loss, &penalty).unwrap())
}

/// In both types on the CPU, and on a GPU if there is one.
fn follows(case: &str) {
    follows_on(case, DType::F64, Device::Cpu);
    follows_on(case, DType::F32, Device::Cpu);
    if let Some(gpu) = for_tests() {
        follows_on(case, DType::F32, Device::Gpu(gpu));
    }
}

fn follows_on(case: &str, dtype: DType, device: Device) {
    let golden = Golden::read(&format!("peft/{case}/train"));
    let options = LoadOptions { device, ..LoadOptions::default() };
    let model = Decoder::load(&golden_path("mistral/window/hf"), options).unwrap();
    model.to_dtype(dtype).unwrap();
    let adapters = AdapterSet::on(&config(&golden), &model.placement(), &model.parameters(), 0).unwrap();
    adapters.to_dtype(dtype).unwrap();
    adapters.to_device(device).unwrap();
    let parameters = adapters.parameters();
    for parameter in &parameters {
        parameter.set(&golden.tensor(&format!("init.{}", file_name(parameter)), DType::F64)).unwrap();
    }
    let facts = golden.fact("optimizer");
    let number = |key: &str| facts[key].as_f64().unwrap();
    let optimizer = AdamW { betas: [0, 1].map(|i| facts["betas"][i].as_f64().unwrap()), eps: number("eps") };
    let limit = facts["clip_global_norm"].as_f64().unwrap_or(0.0);
    let mut moments: Vec<Moments> = parameters.iter().map(|p| Moments::new(&p.tensor()).unwrap()).collect();
    let (rates, data) = (golden.values("lr"), golden.tokens("data"));
    let &[steps, accumulation, batch, length] = &data.shape()[..] else { panic!("data {}", data.shape()) };
    let (mut losses, mut norms, mut budgets, mut ranks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for step in 0..steps {
        let mut gradients = Gradients::default();
        for part in 0..accumulation {
            let first = (step * accumulation + part) * batch * length;
            let tokens = data.data::<u32>().unwrap()[first..first + batch * length].to_vec();
            let loss = loss_of(&model, &adapters, &Tensor::from_vec(tokens, [batch, length]).unwrap());
            losses.push(loss.item().unwrap());
            gradients.accumulate(loss.backward().unwrap()).unwrap();
        }
        let mean = 1.0 / accumulation as f64;
        let leaves: Vec<_> = parameters.iter().map(Parameter::tensor).collect();
        let norm = gradient_norm(leaves.iter().filter_map(|leaf| gradients.get(leaf))).unwrap();
        let norm = mean * norm.item().unwrap();
        norms.push(norm);
        let factor = mean * clip_factor(norm, limit);
        let rate = Rate { lr: rates[step], weight_decay: number("weight_decay") };
        for (parameter, moments) in parameters.iter().zip(&mut moments) {
            let gradient = gradients.get(&parameter.tensor()).unwrap().clone();
            parameter
                .update(|value| optimizer.update(value, &gradient, moments, step as u64 + 1, Scale::By(factor), rate))
                .unwrap();
        }
        if let Some(allocation) = adapters.allocate(step, &gradients, factor).unwrap() {
            budgets.push(allocation.budget as f64);
            ranks.extend(allocation.ranks.iter().map(|(_, rank)| *rank as f64));
        }
        for (after, at) in [("step1", 1), ("final", steps)] {
            if step + 1 == at {
                for parameter in &parameters {
                    golden.check(&format!("{after}.{}", file_name(parameter)), dtype, &parameter.tensor().to_f64_vec());
                }
            }
        }
    }
    golden.check("loss", dtype, &losses);
    golden.check("grad_norm", dtype, &norms);
    if golden.has("budget") {
        golden.check("budget", dtype, &budgets);
        golden.check("ranks", dtype, &ranks);
    }
    if dtype == DType::F32 {
        saved_like_theirs(case, &golden, &model, &adapters, &data);
    }
}

/// The directory that comes of it, beside the one that PEFT wrote.
fn saved_like_theirs(case: &str, golden: &Golden, model: &Decoder, adapters: &AdapterSet, data: &Tensor) {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("adapter");
    adapters.save(&saved, None).unwrap();
    let theirs = golden_path(&format!("peft/{case}/trained"));
    let json = |directory: &Path| -> Value {
        serde_json::from_slice(&std::fs::read(directory.join("adapter_config.json")).unwrap()).unwrap()
    };
    let (ours, expected) = (json(&saved), json(&theirs));
    for key in ["peft_type", "r", "init_r", "target_r", "use_dora"] {
        assert_eq!(ours.get(key), expected.get(key), "{case}: {key}");
    }
    if golden.fact("method") == "adalora" {
        assert_eq!(ours["rank_pattern"], expected["rank_pattern"], "{case}");
    }
    let &[.., batch, length] = &data.shape()[..] else { panic!("data {}", data.shape()) };
    let ids = data.data::<u32>().unwrap();
    let tokens = Tensor::from_vec(ids[ids.len() - batch * length..].to_vec(), [batch, length]).unwrap();
    for directory in [&saved, &theirs] {
        let loaded = AdapterSet::load(directory, &model.placement(), length).unwrap();
        loaded.to_device(model.device()).unwrap();
        let logits = no_grad(|| model.logits(&tokens, &loaded, &mut Pass::evaluation())).unwrap();
        golden.check("eval_logits", DType::F32, &logits.to_f64_vec());
    }
}

#[test]
fn lora() {
    follows("train_lora");
}

#[test]
fn lora_with_a_schedule_and_clipping() {
    follows("train_lora_sched");
}

#[test]
fn dora() {
    follows("train_dora");
}

#[test]
fn adalora() {
    follows("train_adalora");
}
