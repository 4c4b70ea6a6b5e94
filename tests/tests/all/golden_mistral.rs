//! Mistral against the library that defines its files: hidden states, logits, loss, gradients, generation, every layout of
//! the weights; with LoRA over 4-bit weights; with the recurrent adapter at each of its inputs, and truncated.

use hankel_core::{DType, Device, Gradients, Tensor, no_grad};
use hankel_models::adapters::{Hrm, HrmConfig, HrmPreset, Lora, LoraConfig, StreamInput};
use hankel_models::decoder::LoadOptions;
use hankel_models::lti::{GramianFactors, HankelSpectrum, StateMatrix, methods, reduce};
use hankel_models::reduce::hrm::linear_system;
use hankel_models::weights::HrmDynamics;
use hankel_models::{AdapterConfig, AdapterSet, Backbone, Decoder, Parameter, Pass, Role, StepKey};
use hankel_ops::optimizer::{AdamW, Moments, Rate, Scale, gradient_norm};
use hankel_tests::decoders::{devices, everywhere, greedy, loss_of, none, values};
use hankel_tests::golden::Golden;
use serde_json::json;
use std::path::PathBuf;

const MODELS: [&str; 2] = ["window", "headdim"];

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/golden")).join(name)
}

fn load(name: &str, device: Device) -> Decoder {
    Decoder::load(&path(name), LoadOptions { device, ..LoadOptions::default() }).unwrap()
}

#[test]
fn hidden_states_logits_and_loss() {
    for name in MODELS {
        let golden = Golden::read(&format!("mistral/{name}/io"));
        for (dtype, device) in everywhere() {
            let model = load(&format!("mistral/{name}/hf"), device);
            model.to_dtype(dtype).unwrap();
            let adapters = none(&model);
            let tokens = golden.tokens("input_ids");
            let mut trace = Vec::new();
            let mut pass = Pass { trace: Some(&mut trace), ..Pass::default() };
            let hidden = model.hidden(&tokens, &adapters, &mut pass).unwrap();
            // The library computed hidden states in single precision.
            for (layer, hidden) in trace.iter().enumerate() {
                golden.check(&format!("hidden.layer{layer}"), DType::F32, &values(hidden));
            }
            assert_eq!(trace.len(), model.config().layers);
            golden.check("hidden.final_norm", DType::F32, &values(&hidden));
            let logits = model.logits(&tokens, &adapters, &mut Pass::evaluation()).unwrap();
            golden.check("logits", dtype, &values(&logits));
            let x = model.embed(&tokens).unwrap();
            let loss = loss_of(&model, &adapters, &x, golden.values("input_ids"), &mut Pass::evaluation());
            golden.check("loss", dtype, &values(&loss));
        }
    }
}

#[test]
fn gradients_of_embeddings_and_every_weight() {
    for name in MODELS {
        for (recompute, device) in [false, true].into_iter().flat_map(|r| devices().into_iter().map(move |d| (r, d))) {
            let golden = Golden::read(&format!("mistral/{name}/io"));
            let model = load(&format!("mistral/{name}/hf"), device);
            model.parameters().iter().for_each(|p| p.set_trainable(true).unwrap());
            let adapters = none(&model);
            let key = StepKey { seed: 0, step: 0 };
            let pass = || Pass { recompute, ..Pass::training(key) };
            let tokens = golden.tokens("input_ids");
            let x = model.embed(&tokens).unwrap();
            let gradients = loss_of(&model, &adapters, &x, golden.values("input_ids"), &mut pass()).backward().unwrap();
            let mut checked = 0;
            for parameter in model.parameters() {
                let gradient = gradients.get(&parameter.tensor()).unwrap();
                golden.check(&format!("grad.{}", parameter.name()), DType::F32, &values(gradient));
                checked += 1;
            }
            assert_eq!(checked, golden.names().filter(|n| n.starts_with("grad.")).count() - 1);
            let x = x.detach().parameter().unwrap();
            let loss = loss_of(&model, &adapters, &x, golden.values("input_ids"), &mut pass());
            golden.check("grad.inputs_embeds", DType::F32, &values(loss.backward().unwrap().get(&x).unwrap()));
        }
    }
}

#[test]
fn padding_on_the_right_needs_no_mask() {
    for name in MODELS {
        let golden = Golden::read(&format!("mistral/{name}/io_padded"));
        for (dtype, device) in everywhere() {
            let model = load(&format!("mistral/{name}/hf"), device);
            model.to_dtype(dtype).unwrap();
            let adapters = none(&model);
            model.parameters().iter().for_each(|p| p.set_trainable(true).unwrap());
            let tokens = golden.tokens("input_ids");
            let logits = no_grad(|| model.logits(&tokens, &adapters, &mut Pass::evaluation())).unwrap();
            let (steps, vocabulary) = (tokens.shape()[1], model.vocabulary());
            let logits = values(&logits);
            let at: Vec<f64> = golden
                .values("positions")
                .iter()
                .enumerate()
                .flat_map(|(i, &t)| logits[(i / 2 * steps + t as usize) * vocabulary..][..vocabulary].to_vec())
                .collect();
            golden.check("logits_at", dtype, &at);
            let x = model.embed(&tokens).unwrap().detach().parameter().unwrap();
            let loss = loss_of(&model, &adapters, &x, golden.values("labels"), &mut Pass::evaluation());
            golden.check("loss", dtype, &values(&loss));
            let gradients = loss.backward().unwrap();
            let dx = values(gradients.get(&x).unwrap());
            golden.check("grad.inputs_embeds", DType::F32, &dx);
            let width = model.config().d_model;
            for (mask, dx) in golden.values("attention_mask").iter().zip(dx.chunks(width)) {
                assert!(*mask == 1.0 || dx.iter().all(|&g| g == 0.0), "{name}: a gradient at a padded position");
            }
            for parameter in model.parameters() {
                let key = format!("grad.{}", parameter.name());
                if golden.has(&key) {
                    golden.check(&key, DType::F32, &values(gradients.get(&parameter.tensor()).unwrap()));
                }
            }
        }
    }
}

#[test]
fn greedy_generation_past_the_window() {
    for (name, device) in MODELS.into_iter().flat_map(|name| devices().into_iter().map(move |d| (name, d))) {
        let golden = Golden::read(&format!("mistral/{name}/generate"));
        let model = load(&format!("mistral/{name}/hf"), device);
        let prompt = golden.values("prompt_ids");
        let steps = golden.values("output_ids").len() - prompt.len();
        let (ids, logits) = greedy(&model, &none(&model), prompt, steps);
        golden.check("output_ids", DType::F32, &ids);
        golden.check("step_logits", DType::F32, &logits);
    }
}

#[test]
fn half_precision_weights_are_widened_on_the_fly() {
    for (name, device) in MODELS.into_iter().flat_map(|name| devices().into_iter().map(move |d| (name, d))) {
        let golden = Golden::read(&format!("mistral/{name}/io_bf16"));
        let model = load(&format!("mistral/{name}/hf_bf16"), device);
        let tokens = golden.tokens("input_ids");
        let logits = model.logits(&tokens, &none(&model), &mut Pass::evaluation()).unwrap();
        golden.check("logits", DType::F32, &values(&logits));
        let x = model.embed(&tokens).unwrap();
        let loss = loss_of(&model, &none(&model), &x, golden.values("input_ids"), &mut Pass::evaluation());
        golden.check("loss", DType::F32, &values(&loss));
        for parameter in model.parameters().iter().filter(|p| p.tensor().shape().len() == 2) {
            assert_eq!(parameter.tensor().dtype(), DType::BF16, "{}", parameter.name());
            assert!(parameter.set_trainable(true).is_err(), "{} cannot be trained as it is", parameter.name());
        }
    }
}

/// What is kept in 16 bits between layers stays within what the library loses when it computes in 16 bits.
#[test]
fn inputs_of_layers_may_be_kept_in_bf16() {
    for (name, device) in MODELS.into_iter().flat_map(|name| devices().into_iter().map(move |d| (name, d))) {
        let golden = Golden::read(&format!("mistral/{name}/io_bf16"));
        let model = load(&format!("mistral/{name}/hf_bf16"), device);
        let lora = AdapterConfig::linear::<Lora>(&LoraConfig::new(4));
        let adapters = AdapterSet::new(&lora, &model.placement(), 1).unwrap();
        adapters.to_device(device).unwrap();
        let x = model.embed(&golden.tokens("input_ids")).unwrap();
        let step = |kept: Option<DType>| {
            let key = StepKey { seed: 0, step: 0 };
            let mut pass = Pass { recompute: true, kept, ..Pass::training(key) };
            let loss = loss_of(&model, &adapters, &x, golden.values("input_ids"), &mut pass);
            let gradients = loss.backward().unwrap();
            let mut all = Vec::new();
            for parameter in adapters.parameters() {
                let gradient = gradients.get(&parameter.tensor()).unwrap();
                assert_eq!(gradient.dtype(), DType::F32, "{}", parameter.name());
                all.extend(values(gradient));
            }
            (values(&loss)[0], all)
        };
        let (exact, rounded) = (step(None), step(Some(DType::BF16)));
        golden.check("loss", DType::F32, &[exact.0]);
        let lost = golden.fact("bf16_compute_rel_err").as_f64().unwrap();
        assert_ne!(exact.0, rounded.0);
        assert!((rounded.0 / exact.0 - 1.0).abs() < lost / 4.0, "{name}: loss {} for {}", rounded.0, exact.0);
        let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
        let error = norm(&mut exact.1.iter().zip(&rounded.1).map(|(a, b)| a - b)) / norm(&mut exact.1.iter().copied());
        assert!(error > 0.0 && error < lost, "{name}: gradients differ by {error}");
    }
}

#[test]
fn shards_are_the_same_model() {
    let tokens = Golden::read("mistral/window/io").tokens("input_ids");
    let logits = |name: &str| {
        let model = load(name, Device::Cpu);
        values(&model.logits(&tokens, &none(&model), &mut Pass::evaluation()).unwrap())
    };
    assert_eq!(logits("mistral/window/hf_sharded"), logits("mistral/window/hf"));
}

#[test]
fn lora_over_four_bits() {
    for device in devices() {
        let golden = Golden::read("peft/qlora/io");
        let model = Decoder::load(&path("mistral/window/hf"), LoadOptions { quantize: true, device }).unwrap();
        let adapters = AdapterSet::load(&path("peft/qlora/adapter"), &model.placement(), 32).unwrap();
        adapters.to_device(device).unwrap();
        let tokens = golden.tokens("input_ids");
        let logits = no_grad(|| model.logits(&tokens, &adapters, &mut Pass::evaluation())).unwrap();
        golden.check("logits", DType::F32, &values(&logits));
        let x = model.embed(&tokens).unwrap();
        let loss = loss_of(&model, &adapters, &x, golden.values("labels"), &mut Pass::evaluation());
        golden.check("loss", DType::F32, &values(&loss));
        let gradients = loss.backward().unwrap();
        for parameter in adapters.parameters() {
            let gradient = gradients.get(&parameter.tensor()).unwrap();
            golden.check(&format!("grad.base_model.model.{}", parameter.name()), DType::F32, &values(gradient));
        }
        assert!(!model.parameters().iter().any(Parameter::is_trainable));
    }
}

/// The branches of a golden case.
fn branches(model: &Decoder, golden: &Golden, input: StreamInput, prefix: &str) -> AdapterSet {
    let mut config = HrmConfig::new(HrmPreset::Paper, 6, model.config().d_model, 32);
    config.train_log_dt = golden.has(&format!("{prefix}layers.0.log_dt"));
    let trains_log_dt = config.train_log_dt;
    let config = AdapterConfig::stream::<Hrm>(&config).with("input", json!(input));
    let adapters = AdapterSet::new(&config, &model.placement(), 0).unwrap();
    for parameter in adapters.parameters() {
        let parts: Vec<&str> = parameter.name().split('.').collect();
        let (layer, entry) = (parts[2], parts[parts.len() - 1]);
        let value = match entry {
            "log_dt" if !trains_log_dt => Tensor::zeros::<f64>([6]),
            "gate" => golden.tensor(&format!("{prefix}layers.{layer}.alpha"), DType::F64),
            entry => golden.tensor(&format!("{prefix}layers.{layer}.{entry}"), DType::F64),
        };
        parameter.set(&value).unwrap();
    }
    adapters.to_device(model.device()).unwrap();
    adapters
}

#[test]
fn recurrent_branches_at_every_input() {
    let inputs = [
        ("site_residual", StreamInput::Residual),
        ("site_mlp_in", StreamInput::Norm),
        ("site_mlp_out", StreamInput::Sublayer),
    ];
    for (case, input) in inputs {
        let golden = Golden::read(&format!("hrm_mistral/{case}"));
        for (dtype, device) in everywhere() {
            let model = load("mistral/window/hf", device);
            let adapters = branches(&model, &golden, input, "");
            model.to_dtype(dtype).unwrap();
            adapters.to_dtype(dtype).unwrap();
            let tokens = golden.tokens("input_ids");
            let logits = no_grad(|| model.logits(&tokens, &adapters, &mut Pass::evaluation())).unwrap();
            golden.check("logits", dtype, &values(&logits));
            let x = model.embed(&tokens).unwrap();
            let loss = loss_of(&model, &adapters, &x, golden.values("input_ids"), &mut Pass::evaluation());
            golden.check("loss", dtype, &values(&loss));
            let gradients = loss.backward().unwrap();
            for parameter in adapters.parameters().iter().filter(|p| p.is_trainable()) {
                let parts: Vec<&str> = parameter.name().split('.').collect();
                let entry = if parts[parts.len() - 1] == "gate" { "alpha" } else { parts[parts.len() - 1] };
                let gradient = gradients.get(&parameter.tensor()).unwrap();
                golden.check(&format!("grad.layers.{}.{entry}", parts[2]), dtype, &values(gradient));
            }
        }
    }
}

#[test]
fn generation_carries_the_recurrent_state() {
    for device in devices() {
        let model = load("mistral/window/hf", device);
        let adapters = branches(&model, &Golden::read("hrm_mistral/site_residual"), StreamInput::Residual, "");
        let golden = Golden::read("hrm_mistral/generate");
        let prompt = golden.values("prompt_ids");
        let (ids, logits) = greedy(&model, &adapters, prompt, golden.values("output_ids").len() - prompt.len());
        golden.check("output_ids", DType::F32, &ids);
        golden.check("step_logits", DType::F32, &logits);
    }
}

#[test]
fn truncated_branches() {
    for device in devices() {
        let golden = Golden::read("hrm_mistral/truncated");
        let model = load("mistral/window/hf", device);
        let full = branches(&model, &Golden::read("hrm_mistral/site_residual"), StreamInput::Residual, "");
        let mut file = full.to_hrm_file(None).unwrap();
        let discretization = file.config.discretization;
        for layer in &mut file.layers {
            let system = linear_system(layer, discretization).unwrap();
            let spectrum = HankelSpectrum::new(&GramianFactors::analytic(&system).unwrap()).unwrap();
            golden.check(&format!("layers.{}.hsv", layer.layer), DType::F32, spectrum.values());
            let reduced = reduce(&system, &spectrum, methods::bt::METHOD, 3).unwrap().system;
            let StateMatrix::Dense(a) = reduced.a() else { panic!("truncation gives a dense matrix") };
            let rows = |m: &dyn Fn(usize, usize) -> f64, rows: usize, cols: usize| {
                (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))).map(|(i, j)| m(i, j)).collect::<Vec<f64>>()
            };
            layer.state_dim = 3;
            layer.b = rows(&|i, j| reduced.b()[(i, j)], 3, layer.width).into();
            layer.c = rows(&|i, j| reduced.c()[(i, j)], layer.width, 3).into();
            layer.dynamics = HrmDynamics::Dense(rows(&|i, j| a[(i, j)], 3, 3));
        }
        let adapters = AdapterSet::of_hrm_file(&file, &model.placement(), 32).unwrap();
        adapters.to_dtype(DType::F32).unwrap();
        adapters.to_device(device).unwrap();
        let tokens = golden.tokens("input_ids");
        let logits = no_grad(|| model.logits(&tokens, &adapters, &mut Pass::evaluation())).unwrap();
        golden.check("logits", DType::F32, &values(&logits));
        let x = model.embed(&tokens).unwrap();
        let loss = no_grad(|| loss_of(&model, &adapters, &x, golden.values("input_ids"), &mut Pass::evaluation()));
        golden.check("loss", DType::F32, &values(&loss));
    }
}

#[test]
fn twenty_steps_of_training() {
    for (case, device) in
        ["train_log_a", "train_log_a_dt"].into_iter().flat_map(|c| devices().into_iter().map(move |d| (c, d)))
    {
        let golden = Golden::read(&format!("hrm_mistral/{case}"));
        let model = load("mistral/window/hf", device);
        let adapters = branches(&model, &golden, StreamInput::Residual, "init.");
        let trained: Vec<_> = adapters.parameters().into_iter().filter(Parameter::is_trainable).collect();
        let mut moments: Vec<_> = trained.iter().map(|p| Moments::new(&p.tensor()).unwrap()).collect();
        let optimizer = AdamW { betas: [0.9, 0.999], eps: 1e-8 };
        let (data, part) = (golden.values("data"), 2 * 32);
        let (mut losses, mut norms) = (Vec::new(), Vec::new());
        for (step, data) in data.chunks(2 * part).enumerate() {
            let mut gradients = Gradients::default();
            for labels in data.chunks(part) {
                let tokens = Tensor::from_vec(labels.iter().map(|&id| id as u32).collect(), [2, 32]).unwrap();
                let x = model.embed(&tokens).unwrap();
                let loss = loss_of(&model, &adapters, &x, labels, &mut Pass::evaluation());
                losses.extend(values(&loss));
                gradients.accumulate(hankel_ops::scale(&loss, 0.5).unwrap().backward().unwrap()).unwrap();
            }
            let of = |p: &Parameter| gradients.get(&p.tensor()).unwrap().clone();
            let all: Vec<Tensor> = trained.iter().map(of).collect();
            let norm = gradient_norm(&all).unwrap();
            norms.push(norm.item().unwrap());
            let scale = Scale::Clip { norm: &norm, limit: 1.0 };
            for ((parameter, gradient), moments) in trained.iter().zip(&all).zip(&mut moments) {
                let weight_decay = if parameter.role() == Role::Gate { 0.0 } else { 0.01 };
                let rate = Rate { lr: 5e-4, weight_decay };
                let update = |p: &mut Tensor| optimizer.update(p, gradient, moments, step as u64 + 1, scale, rate);
                parameter.update(update).unwrap();
            }
        }
        golden.check("loss", DType::F32, &losses);
        golden.check("grad_norm", DType::F32, &norms);
        for parameter in &trained {
            let parts: Vec<&str> = parameter.name().split('.').collect();
            let entry = if parts[parts.len() - 1] == "gate" { "alpha" } else { parts[parts.len() - 1] };
            golden.check(&format!("final.layers.{}.{entry}", parts[2]), DType::F32, &values(&parameter.tensor()));
        }
    }
}
