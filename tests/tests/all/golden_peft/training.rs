//! Twenty optimizer steps of LoRA, LoRA+, PiSSA, LoftQ, DoRA and AdaLoRA against PEFT with PyTorch's AdamW: the loss of every micro-batch, the
//! norm of every gradient, the parameters after one step and after all, AdaLoRA's budget and ranks, and the logits of the
//! saved adapter.

use super::golden as golden_path;
use hankel_core::gpu::for_tests;
use hankel_core::{DType, Device, Gradients, Tensor, no_grad};
use hankel_models::adapters::{AdaLora, AdaLoraConfig, AdapterConfig, Dora, Lora, LoraConfig, LoraInit, Schedule};
use hankel_models::decoder::{LoadOptions, stored_weight};
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
    let settings = LoraConfig {
        lora_alpha: number("alpha"),
        targets,
        lora_plus_ratio: facts["lora_plus_ratio"].as_f64().unwrap_or(1.0),
        init: serde_json::from_value(facts.get("init").cloned().unwrap_or("zero".into())).unwrap(),
        loftq_iter: facts["loftq_iter"].as_u64().unwrap_or(1) as usize,
        ..LoraConfig::new(size("r"))
    };
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
    let golden = Golden::read(&format!("{case}/train"));
    let base = golden_path("mistral/window/hf");
    let options = LoadOptions { device, quantize: golden.fact("hyperparameters")["init"] == "loftq" };
    let model = Decoder::load(&base, options).unwrap();
    let stored = |name: &str| Ok(stored_weight(&base, name).unwrap());
    let adapters =
        AdapterSet::on_stored(&config(&golden), &model.placement(), (&model.parameters(), &stored), 0).unwrap();
    if dtype == DType::F64 {
        model.to_dtype(dtype).unwrap();
    }
    adapters.to_dtype(dtype).unwrap();
    adapters.to_device(device).unwrap();
    let parameters: Vec<Parameter> = adapters.parameters().into_iter().filter(Parameter::is_trainable).collect();
    for parameter in &parameters {
        let name = format!("init.{}", file_name(parameter));
        // Singular vectors have no sign of their own.
        if golden.has(&name) {
            parameter.set(&golden.tensor(&name, DType::F64)).unwrap();
        }
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
        for (parameter, moments) in parameters.iter().zip(&mut moments) {
            let rate = Rate { lr: rates[step] * parameter.rate(), weight_decay: number("weight_decay") };
            let gradient = gradients.get(&parameter.tensor()).unwrap().clone();
            parameter
                .update(|value| optimizer.update(value, &gradient, moments, step as u64 + 1, Scale::By(factor), rate))
                .unwrap();
        }
        if let Some(allocation) = adapters.allocate(step, &gradients, factor).unwrap() {
            budgets.push(allocation.budget as f64);
            ranks.extend(adapters.linears().filter_map(|(_, adapter)| adapter.rank()).map(|rank| rank as f64));
        }
        for (after, at) in [("step1", 1), ("final", steps)] {
            if step + 1 == at {
                for parameter in &parameters {
                    let name = format!("{after}.{}", file_name(parameter));
                    if golden.has(&name) {
                        golden.check(&name, dtype, &parameter.tensor().to_f64_vec());
                    }
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
    let theirs = golden_path(&format!("{case}/trained"));
    // LoftQ: theirs would be on weights of another quantiser.
    let directories = if theirs.is_dir() { vec![&saved, &theirs] } else { vec![&saved] };
    let json = |directory: &Path| -> Value {
        serde_json::from_slice(&std::fs::read(directory.join("adapter_config.json")).unwrap()).unwrap()
    };
    let expected = if theirs.is_dir() { json(&theirs) } else { json(&saved) };
    let ours = json(&saved);
    for key in ["peft_type", "r", "lora_alpha", "init_r", "target_r", "use_dora"] {
        assert_eq!(ours.get(key), expected.get(key), "{case}: {key}");
    }
    if golden.fact("method") == "adalora" {
        assert_eq!(ours["rank_pattern"], expected["rank_pattern"], "{case}");
    }
    let &[.., batch, length] = &data.shape()[..] else { panic!("data {}", data.shape()) };
    let ids = data.data::<u32>().unwrap();
    let tokens = Tensor::from_vec(ids[ids.len() - batch * length..].to_vec(), [batch, length]).unwrap();
    for directory in directories {
        let loaded = AdapterSet::load(directory, &model.placement(), length).unwrap();
        loaded.complete(&|name| Ok(stored_weight(&golden_path("mistral/window/hf"), name).unwrap())).unwrap();
        loaded.to_device(model.device()).unwrap();
        let logits = no_grad(|| model.logits(&tokens, &loaded, &mut Pass::evaluation())).unwrap();
        golden.check("eval_logits", DType::F32, &logits.to_f64_vec());
    }
}

#[test]
fn lora() {
    follows("peft/train_lora");
}

#[test]
fn lora_with_a_schedule_and_clipping() {
    follows("peft/train_lora_sched");
}

#[test]
fn dora() {
    follows("peft/train_dora");
}

#[test]
fn adalora() {
    follows("peft/train_adalora");
}

/// B has sixteen times the learning rate of A.
#[test]
fn lora_plus() {
    follows("tuning/loraplus");
}

/// The weight is not changed here and is in PEFT; the file is a LoRA of twice the rank in both.
#[test]
fn pissa() {
    follows("tuning/pissa");
}

#[test]
fn loftq() {
    follows("tuning/loftq");
}

/// Three rounds: every adapted projection has a quantised weight of its own.
#[test]
fn loftq_in_several_rounds() {
    follows("tuning/loftq_rounds");
}

/// Weight and factors of three rounds as PEFT's `loftq_init` finds them, from a directory, too; merging folds into that weight.
#[test]
fn rounds_of_loftq() {
    let golden = Golden::read("tuning/loftq_rounds/train");
    let base = golden_path("mistral/window/hf");
    let load = |quantize| Decoder::load(&base, LoadOptions { quantize, ..LoadOptions::default() }).unwrap();
    let (whole, quantized) = (load(false), load(true));
    let stored = |name: &str| Ok(stored_weight(&base, name).unwrap());
    let of = |config: &LoraConfig| {
        let config = AdapterConfig::linear::<Lora>(config);
        AdapterSet::on_stored(&config, &quantized.placement(), (&quantized.parameters(), &stored), 0).unwrap()
    };
    let settings: LoraConfig = config(&golden).read().unwrap();
    let adapters = of(&settings);
    let name = "model.layers.0.self_attn.q_proj.weight";
    let exact = whole.parameters().into_iter().find(|p| p.name() == name).unwrap().tensor();
    let merged =
        |adapters: &AdapterSet| adapters.merge_tensor(name, &exact, DType::F64).unwrap().unwrap().0.to_f64_vec();
    let sum = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x + y).collect::<Vec<_>>();
    let [weight, update] = ["start.weight", "start.update"].map(|name| golden.tensor(name, DType::F64).to_f64_vec());
    let differs = |x: &[f64], y: &[f64]| x.iter().zip(y).filter(|(x, y)| (*x - *y).abs() > 1e-5).count();
    assert_eq!(differs(&merged(&adapters), &sum(&weight, &update)), 0);
    // More than rounding apart from what one round gives, and nearer to the weight as it is stored; at another scale, too.
    let distance = |x: &[f64]| x.iter().zip(exact.to_f64_vec()).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
    for alpha in [settings.lora_alpha, 3.0 * settings.lora_alpha] {
        let settings = LoraConfig { lora_alpha: alpha, ..settings.clone() };
        let [one, three] = [1, 3].map(|loftq_iter| merged(&of(&LoraConfig { loftq_iter, ..settings.clone() })));
        assert!(distance(&three) < 0.98 * distance(&one), "{} {}", distance(&three), distance(&one));
    }
    // From a directory, whose factors are of no use without the weights as they are stored.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter");
    adapters.save(&path, None).unwrap();
    let loaded = AdapterSet::load(&path, &quantized.placement(), 20).unwrap();
    assert_eq!(loaded.config(), adapters.config());
    let tokens = Tensor::from_vec((3..23_u32).collect(), [1, 20]).unwrap();
    let logits = |adapters: &AdapterSet| no_grad(|| quantized.logits(&tokens, adapters, &mut Pass::evaluation()));
    let incomplete = logits(&loaded).unwrap_err().to_string();
    assert!(incomplete.contains("AdapterSet::complete"), "{incomplete}");
    loaded.complete(&stored).unwrap();
    assert_eq!(logits(&loaded).unwrap().to_f64_vec(), logits(&adapters).unwrap().to_f64_vec());
    assert_eq!(merged(&loaded), merged(&adapters));
    // From a checkpoint of a training that began elsewhere.
    let state = adapters.training_state().unwrap();
    let elsewhere = of(&LoraConfig { loftq_iter: 2, ..settings.clone() });
    let factors = |set: &AdapterSet| set.parameters().into_iter().filter(Parameter::is_trainable).collect::<Vec<_>>();
    factors(&elsewhere).iter().zip(factors(&adapters)).for_each(|(to, from)| to.set(&from.tensor()).unwrap());
    elsewhere.restore_training_state(&state).unwrap();
    elsewhere.complete(&stored).unwrap();
    assert_eq!(logits(&elsewhere).unwrap().to_f64_vec(), logits(&adapters).unwrap().to_f64_vec());
    // PEFT saves no second pair.
    let file = path.join("adapter_model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    let text = |bytes: &[u8]| bytes.windows(7).position(|window| window == b"loftq_A");
    let mut renamed = bytes.clone();
    while let Some(at) = text(&renamed) {
        renamed[at..at + 7].copy_from_slice(b"other_A");
    }
    std::fs::write(&file, renamed).unwrap();
    let refused = AdapterSet::load(&path, &quantized.placement(), 20).err().unwrap().to_string();
    assert!(refused.contains("3 rounds of LoftQ"), "{refused}");
}

/// It brings the quantised weight nearer to the stored one, at any scale, is merged into the quantised one, and is refused on others.
#[test]
fn loftq_is_for_quantised_weights() {
    let base = golden_path("mistral/window/hf");
    let load = |quantize| Decoder::load(&base, LoadOptions { quantize, ..LoadOptions::default() }).unwrap();
    let (whole, quantized) = (load(false), load(true));
    let config = AdapterConfig::linear::<Lora>(&LoraConfig {
        init: LoraInit::Loftq,
        lora_alpha: 24.0,
        targets: vec!["all-linear".into()],
        ..LoraConfig::new(8)
    });
    let stored = |name: &str| Ok(stored_weight(&base, name).unwrap());
    let on = |model: &Decoder| AdapterSet::on_stored(&config, &model.placement(), (&model.parameters(), &stored), 0);
    let refused = on(&whole).err().unwrap().to_string();
    assert!(refused.contains("backbone.quantize = \"nf4\""), "{refused}");
    let blind = AdapterSet::on(&config, &quantized.placement(), &quantized.parameters(), 0).err().unwrap().to_string();
    assert!(blind.contains("on_stored"), "{blind}");
    let adapters = on(&quantized).unwrap();
    let distance = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
    for name in adapters.merged_names() {
        let of = |model: &Decoder| model.parameters().into_iter().find(|p| p.name() == name).unwrap().tensor();
        let (exact, rounded) = (of(&whole), of(&quantized).to_f64_vec());
        let (merged, _) = adapters.merge_tensor(&name, &exact, DType::F64).unwrap().unwrap();
        let [before, after] = [&rounded, &merged.to_f64_vec()].map(|weight| distance(weight, &exact.to_f64_vec()));
        assert!(after < 0.9 * before, "{name}: {before} {after}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter");
    adapters.save(&path, None).unwrap();
    let loaded = AdapterSet::load(&path, &whole.placement(), 20).unwrap();
    assert_eq!(loaded.config(), adapters.config());
    loaded.check_backbone(&quantized.parameters()).unwrap();
    assert!(loaded.check_backbone(&whole.parameters()).is_err());
}

/// The same start on a GPU, which does not give 4-bit floats back.
#[test]
fn pissa_decodes_quantised_weights() {
    let Some(gpu) = for_tests() else { return };
    let config = LoraConfig { init: LoraInit::Pissa, targets: vec!["all-linear".into()], ..LoraConfig::new(3) };
    let changes = |device| {
        let options = LoadOptions { quantize: true, device };
        let model = Decoder::load(&golden_path("mistral/window/hf"), options).unwrap();
        let config = AdapterConfig::linear::<Lora>(&config);
        let adapters = AdapterSet::on(&config, &model.placement(), &model.parameters(), 0).unwrap();
        let factors = adapters.linears().map(|(_, adapter)| adapter.downcast_ref::<Lora>().unwrap().factors().unwrap());
        factors.map(|[a, b]| [a.to_f64_vec(), b.to_f64_vec()]).collect::<Vec<_>>()
    };
    for (here, there) in changes(Device::Cpu).iter().flatten().zip(changes(Device::Gpu(gpu)).iter().flatten()) {
        assert!(here.iter().zip(there).all(|(x, y)| (x.abs() - y.abs()).abs() < 1e-4), "{here:?} {there:?}");
    }
}
