//! Adapters at linear sites: what they compute, how AdaLoRA allocates, budgets, merging, and files that do not fit.

use crate::lora_fa::{self, LoraFa};
use hankel_core::{DType, Gradients, Random, Tensor, no_grad};
use hankel_models::adapters::{
    AdaLora, AdaLoraConfig, Dora, Hrm, HrmConfig, HrmPreset, Ia3, Ia3Config, Lora, LoraConfig, LoraInit, Schedule,
};
use hankel_models::{AdapterConfig, AdapterSet, Backbone, DecoderConfig, Parameter, Pass, TinyGpt, TinyGptConfig};
use hankel_tests::largest_difference;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

fn tiny() -> TinyGptConfig {
    TinyGptConfig {
        layers: 2,
        d_model: 12,
        heads: 3,
        d_ff: 20,
        vocabulary: 11,
        context: 16,
        init_std: 0.3,
        ..TinyGptConfig::default()
    }
}

fn every_linear() -> Vec<String> {
    vec!["all-linear".to_owned()]
}

fn low_rank(change: impl FnOnce(&mut LoraConfig)) -> AdapterConfig {
    let mut config = LoraConfig { targets: every_linear(), lora_alpha: 5.0, ..LoraConfig::new(3) };
    change(&mut config);
    AdapterConfig::linear::<Lora>(&config)
}

fn dora() -> AdapterConfig {
    AdapterConfig::linear::<Dora>(&LoraConfig { targets: every_linear(), lora_alpha: 5.0, ..LoraConfig::new(3) })
}

fn adalora() -> AdapterConfig {
    AdapterConfig::linear::<AdaLora>(&adalora_settings())
}

fn adalora_settings() -> AdaLoraConfig {
    let schedule = Schedule { tinit: 2, tfinal: 3, delta_t: 2, total_steps: 12 };
    AdaLoraConfig { targets: every_linear(), schedule, ..AdaLoraConfig::new(4, 2, 12) }
}

fn kinds() -> Vec<(&'static str, AdapterConfig)> {
    vec![
        ("lora", low_rank(|_| ())),
        ("rslora", low_rank(|c| c.rslora = true)),
        ("pissa", low_rank(|c| c.init = LoraInit::Pissa)),
        ("dora", dora()),
        ("adalora", adalora()),
        ("lora-fa", AdapterConfig::linear::<LoraFa>(&lora_fa::Settings { rank: 3, targets: every_linear() })),
        ("ia3", AdapterConfig::linear::<Ia3>(&Ia3Config::default())),
        (
            "ia3 everywhere",
            AdapterConfig::linear::<Ia3>(&Ia3Config { targets: every_linear(), feedforward: vec!["o_proj".into()] }),
        ),
    ]
}

fn on(config: &AdapterConfig, model: &TinyGpt) -> hankel_core::Result<AdapterSet> {
    AdapterSet::on(config, &model.placement(), &model.parameters(), 2)
}

fn shake(parameters: &[Parameter], std: f64) {
    for (i, parameter) in parameters.iter().enumerate() {
        let noise = Random::new(3, "shake", i as u64);
        let value = parameter.tensor();
        let moved = value.to_f64_vec().iter().enumerate().map(|(i, v)| v + std * noise.normal(i as u64)).collect();
        parameter.set(&Tensor::from_vec(moved, value.shape()).unwrap()).unwrap();
    }
}

fn logits(model: &TinyGpt, adapters: &AdapterSet) -> Vec<f64> {
    let random = Random::new(4, "ids", 0);
    let ids = Tensor::from_vec((0..18).map(|i| random.below(i, 11) as u32).collect(), [2, 9]).unwrap();
    no_grad(|| model.logits(&ids, adapters, &mut Pass::evaluation())).unwrap().to_f64_vec()
}

#[test]
fn a_fresh_adapter_changes_nothing() {
    let model = TinyGpt::new(&tiny(), 1).unwrap();
    model.to_dtype(DType::F64).unwrap();
    let bare = logits(&model, &AdapterSet::none(&model.placement()));
    for (name, config) in kinds() {
        let adapters = on(&config, &model).unwrap();
        adapters.to_dtype(DType::F64).unwrap();
        let difference = largest_difference(&logits(&model, &adapters), &bare);
        // The magnitudes of DoRA start in f32.
        assert!(difference < 1e-5, "{name}: {difference:e}");
        shake(&adapters.parameters(), 0.2);
        assert!(largest_difference(&logits(&model, &adapters), &bare) > 0.01, "{name} has no effect");
    }
    let no_weights = AdapterSet::new(&dora(), &model.placement(), 0).err().unwrap().to_string();
    assert!(no_weights.contains("AdapterSet::on"), "{no_weights}");
}

/// Merged weights come from the sum of `W` and the update formed entry by entry, so this is a test of the forward pass, of
/// DoRA's low-rank identity above all.
#[test]
fn a_merged_backbone_computes_the_same() {
    for (name, config) in kinds() {
        let model = TinyGpt::new(&tiny(), 1).unwrap();
        model
            .parameters()
            .iter()
            .filter(|p| p.name().ends_with("bias"))
            .for_each(|p| shake(std::slice::from_ref(p), 0.3));
        model.to_dtype(DType::F64).unwrap();
        let adapters = on(&config, &model).unwrap();
        shake(&adapters.parameters(), 0.2);
        adapters.to_dtype(DType::F64).unwrap();
        let expected = logits(&model, &adapters);
        let report = adapters.merge(&model.parameters()).unwrap();
        let difference = largest_difference(&logits(&model, &AdapterSet::none(&model.placement())), &expected);
        assert!(difference < 1e-12, "{name}: {difference:e}");
        assert!(adapters.merged_names().iter().all(|name| report.tensors.iter().any(|t| t.name == *name)), "{name}");
        assert!(report.tensors.iter().all(|t| t.update > 1e-3), "{name}: {report:?}");
        assert!(report.largest_drift().unwrap().relative_drift() < 1e-13, "{name}: {report:?}");
    }
}

#[test]
fn merging_reports_what_rounding_loses() {
    let model = TinyGpt::new(&tiny(), 1).unwrap();
    let adapters = on(&low_rank(|c| c.targets = vec!["q_proj".into()]), &model).unwrap();
    shake(&adapters.parameters(), 0.1);
    let name = "model.layers.1.self_attn.q_proj.weight";
    let weight = model.parameters().into_iter().find(|p| p.name() == name).unwrap().tensor();
    let (exact, _) = adapters.merge_tensor(name, &weight.to_dtype(DType::F64).unwrap(), DType::F64).unwrap().unwrap();
    let (rounded, report) = adapters.merge_tensor(name, &weight, DType::BF16).unwrap().unwrap();
    assert_eq!(rounded.dtype(), DType::BF16);
    let drift = largest_difference(&rounded.to_f64_vec(), &exact.to_f64_vec());
    assert!((report.drift - drift).abs() < 1e-15, "{report:?}, measured {drift:e}");
    // Half a unit in the last of 8 bits of numbers up to 2.
    assert!(report.drift > 1e-4 && report.drift < 1.0 / 256.0, "{report:?}");
    assert!(adapters.merge_tensor("model.layers.1.self_attn.k_proj.weight", &weight, DType::F32).unwrap().is_none());
}

#[test]
fn what_cannot_be_merged_is_refused() {
    let model = TinyGpt::new(&tiny(), 1).unwrap();
    let hrm = HrmConfig::new(HrmPreset::Paper, 4, 12, 9);
    let hrm = on(&AdapterConfig::stream::<Hrm>(&hrm), &model).unwrap();
    let before: Vec<Vec<f64>> = model.parameters().iter().map(|p| p.tensor().to_f64_vec()).collect();
    let message = hrm.merge(&model.parameters()).unwrap_err().to_string();
    assert!(message.contains("state"), "{message}");
    let adapters = on(&low_rank(|_| ()), &model).unwrap();
    shake(&adapters.parameters(), 0.1);
    let without: Vec<Parameter> =
        model.parameters().into_iter().filter(|p| p.name() != "model.layers.1.mlp.up_proj.weight").collect();
    let message = adapters.merge(&without).unwrap_err().to_string();
    assert!(message.contains("model.layers.1.mlp.up_proj.weight"), "{message}");
    let after: Vec<Vec<f64>> = model.parameters().iter().map(|p| p.tensor().to_f64_vec()).collect();
    assert_eq!(before, after, "a refused merge changed the backbone");
}

/// Gradients of a made-up loss: the sum of the parameters weighted by fixed noise, so that they do not vanish.
fn gradients(adapters: &AdapterSet, step: usize) -> Gradients {
    let mut all = Gradients::default();
    for (i, parameter) in adapters.parameters().iter().enumerate() {
        let value = parameter.tensor();
        let noise = Random::new(9, "gradient", (1000 * step + i) as u64);
        let seed = Tensor::from_vec(noise.normal_vec::<f32>(value.elements(), 1.0), value.shape()).unwrap();
        all.accumulate(hankel_ops::scale(&value, 1.0).unwrap().backward_with(seed).unwrap()).unwrap();
    }
    all
}

/// What an optimizer does to the singular values, pruned ones included.
fn step_forward(adapters: &AdapterSet, step: usize) {
    let values: Vec<Parameter> = adapters.parameters().into_iter().filter(|p| p.name().ends_with("lora_E")).collect();
    for (i, parameter) in values.iter().enumerate() {
        let noise = Random::new(7, "step", (1000 * step + i) as u64);
        parameter.update(|value| {
            value.data_mut::<f32>().unwrap().iter_mut().enumerate().for_each(|(k, e)| {
                *e += 0.1 * noise.normal(k as u64) as f32;
            });
        });
    }
}

#[test]
fn adalora_reaches_its_budget_and_resumes() {
    let model = TinyGpt::new(&tiny(), 1).unwrap();
    let fresh = || {
        let set = on(&adalora(), &model).unwrap();
        shake(&set.parameters(), 0.2);
        set
    };
    let advance = |set: &AdapterSet, step: usize| {
        let gradients = gradients(set, step);
        step_forward(set, step);
        set.allocate(step, &gradients, 0.5).unwrap().unwrap()
    };
    let set = fresh();
    let projections = 12;
    let mut resumed = None;
    for step in 0..12 {
        let allocation = advance(&set, step);
        let ranks = |set: &AdapterSet| -> BTreeMap<String, usize> {
            set.linears().map(|(path, adapter)| (path.to_owned(), adapter.rank().unwrap())).collect()
        };
        let total: usize = ranks(&set).values().sum();
        assert_eq!(allocation.ranks.is_some(), [4, 6, 8, 9].contains(&step), "step {step}");
        if let Some(found) = &allocation.ranks {
            assert_eq!(found.iter().cloned().collect::<BTreeMap<_, _>>(), ranks(&set), "step {step}");
        }
        if allocation.ranks.is_some() || step > 9 {
            assert_eq!(total, allocation.budget, "step {step}");
        }
        if step <= 2 {
            assert_eq!(total, 4 * projections);
        }
        if let Some(copy) = &resumed {
            assert_eq!(advance(copy, step), allocation, "step {step} after a resume");
            assert_eq!(ranks(copy), ranks(&set), "step {step} after a resume");
        }
        if step == 5 {
            let copy = fresh();
            for (to, from) in copy.parameters().iter().zip(set.parameters()) {
                to.set(&from.tensor()).unwrap();
            }
            copy.restore_training_state(&set.training_state().unwrap()).unwrap();
            resumed = Some(copy);
        }
    }
    let ranks: Vec<usize> = set.linears().filter_map(|(_, adapter)| adapter.rank()).collect();
    assert_eq!(ranks.iter().sum::<usize>(), 2 * projections);
    assert!(ranks.iter().any(|&rank| rank != 2), "the ranks are not shared out: {ranks:?}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter");
    set.save(&path, None).unwrap();
    let loaded = AdapterSet::load(&path, &model.placement(), 9).unwrap();
    assert!(loaded.trainable_count() < set.trainable_count(), "the file is not pruned");
    let difference = largest_difference(&logits(&model, &loaded), &logits(&model, &set));
    assert!(difference < 1e-6, "{difference:e}");
    // A pruned adapter keeps its ranks, and its files.
    let ranks_before: Vec<_> = loaded.linears().map(|(_, adapter)| adapter.rank()).collect();
    loaded.allocate(5, &gradients(&loaded, 5), 1.0).unwrap();
    assert_eq!(ranks_before, loaded.linears().map(|(_, adapter)| adapter.rank()).collect::<Vec<_>>());
    let again = folder.path().join("again");
    loaded.save(&again, None).unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        assert_eq!(std::fs::read(path.join(file)).unwrap(), std::fs::read(again.join(file)).unwrap(), "{file}");
    }
}

#[test]
fn a_state_of_other_adapters_is_refused() {
    let model = TinyGpt::new(&tiny(), 1).unwrap();
    let set = on(&adalora(), &model).unwrap();
    set.allocate(0, &gradients(&set, 0), 1.0).unwrap();
    let state = set.training_state().unwrap();
    assert_eq!(state.len(), 2 * set.parameters().len());
    let other = AdaLoraConfig { targets: vec!["q_proj".into()], ..adalora_settings() };
    let other = on(&AdapterConfig::linear::<AdaLora>(&other), &model).unwrap();
    assert!(other.restore_training_state(&state).unwrap_err().to_string().contains("other projections"));
    let mut part = state.clone();
    part.pop_first();
    assert!(set.restore_training_state(&part).unwrap_err().to_string().contains("only one of the scores"));
    let message = set.allocate(1, &Gradients::default(), 1.0).unwrap_err().to_string();
    assert!(message.contains("no gradient of model.layers.0"), "{message}");
}

#[test]
fn counts_and_budgets_of_the_golden_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/counts.json");
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (mistral, tiny) = (DecoderConfig::mistral_7b().placement(), TinyGptConfig::default().placement());
    let mut seen = 0;
    for row in golden["counts"].as_array().unwrap() {
        let number = |key: &str| row[key].as_u64().map(|n| n as usize);
        let kind = row["kind"].as_str().unwrap();
        let size = number("d").or(number("r")).or(number("init_r")).unwrap_or(0);
        let targets = |default: &[&str]| -> Vec<String> {
            let listed = row["targets"].as_array();
            let listed = listed.map(|list| list.iter().map(|t| t.as_str().unwrap().to_owned()).collect());
            listed.unwrap_or_else(|| default.iter().map(|&t| t.to_owned()).collect())
        };
        let placement = if number("layers") == Some(4) { &tiny } else { &mistral };
        let config = match kind {
            "HRM" => AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, size, placement.d_model, 512)),
            // Two square projections: on grouped queries these are q_proj and o_proj.
            "LoRA q,v square" => AdapterConfig::linear::<Lora>(&LoraConfig {
                targets: targets(&["q_proj", "o_proj"]),
                ..LoraConfig::new(size)
            }),
            "LoRA on Mistral-7B shapes" => {
                AdapterConfig::linear::<Lora>(&LoraConfig { targets: targets(&[]), ..LoraConfig::new(size) })
            }
            "DoRA on Mistral-7B shapes" => {
                AdapterConfig::linear::<Dora>(&LoraConfig { targets: targets(&[]), ..LoraConfig::new(size) })
            }
            "AdaLoRA on Mistral-7B shapes" => AdapterConfig::linear::<AdaLora>(&AdaLoraConfig {
                targets: targets(&[]),
                ..AdaLoraConfig::new(size, size, 100)
            }),
            "Mistral-7B-v0.1 backbone" => continue,
            other => panic!("unknown kind {other}"),
        };
        let count = row["count"].as_u64().unwrap();
        assert_eq!(config.parameter_count(placement).unwrap(), count, "{row}");
        for budget in [count, count - count / 100, count + count / 100] {
            let solved = config.solve_budget(placement, budget).unwrap();
            // The nearest there is: no size beside it comes nearer.
            let at = |size: usize| solved.config.clone().with(solved.key, size);
            let distance = |size: usize| at(size).parameter_count(placement).unwrap().abs_diff(budget);
            assert!((1..=2 * size).all(|other| distance(other) >= distance(solved.size)), "{row} for {budget}");
            assert_eq!(solved.parameters, solved.config.parameter_count(placement).unwrap());
            if budget == count {
                assert_eq!((solved.size, solved.difference()), (size, 0.0), "{row}");
            }
        }
        seen += 1;
    }
    assert_eq!(seen, 14);
}

#[test]
fn budgets_say_what_they_come_to() {
    let placement = DecoderConfig::mistral_7b().placement();
    let lora = AdapterConfig::linear::<Lora>(&LoraConfig::new(1));
    let solved = lora.solve_budget(&placement, 8_400_000).unwrap();
    assert_eq!((solved.key, solved.size, solved.parameters), ("rank", 20, 8_519_680));
    assert!((solved.difference() - 0.014_247).abs() < 1e-5);
    let hrm = AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 1, 4096, 512));
    let solved = hrm.solve_budget(&placement, 6_815_744).unwrap();
    assert_eq!((solved.key, solved.size), ("state_dim", 26));
    assert!(solved.difference().abs() < 3e-4, "{}", solved.difference());
    assert_eq!(lora.solve_budget(&placement, 1).unwrap().size, 1);
    let ia3 = AdapterConfig::linear::<Ia3>(&Ia3Config::default());
    assert_eq!(ia3.parameter_count(&placement).unwrap(), 32 * (1024 + 1024 + 14336));
    assert!(ia3.solve_budget(&placement, 1000).unwrap_err().to_string().contains("\"ia3\" have no size"));
    assert!(lora.solve_budget(&placement, 0).is_err());
}

/// Saves an adapter, changes its configuration, and says what loading it answers.
fn load_changed(config: &AdapterConfig, change: impl FnOnce(&mut Value)) -> Result<AdapterSet, String> {
    let model = TinyGpt::new(&tiny(), 1).unwrap();
    let adapters = on(config, &model).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter");
    adapters.save(&path, None).unwrap();
    let file = path.join("adapter_config.json");
    let mut value: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(&file, value.to_string()).unwrap();
    AdapterSet::load(&path, &model.placement(), 9).map_err(|e| e.to_string())
}

#[test]
fn settings_without_an_implementation_are_named() {
    let lora = low_rank(|_| ());
    let refuse = |config: &AdapterConfig, key: &str, value: Value| {
        let message = load_changed(config, |fields| fields[key] = value).err().unwrap();
        assert!(message.contains("adapter_config.json") && message.contains(key), "{key}: {message}");
    };
    refuse(&lora, "rank_pattern", json!({ "q_proj": 2 }));
    refuse(&lora, "modules_to_save", json!(["lm_head"]));
    refuse(&lora, "bias", json!("some"));
    refuse(&lora, "init_lora_weights", json!("pissa"));
    refuse(&lora, "lora_dropout", json!("some"));
    refuse(&lora, "some_later_feature", json!(true));
    refuse(&lora, "r", json!("four"));
    refuse(&lora, "r", json!(0));
    refuse(&lora, "lora_alpha", Value::Null);
    refuse(&lora, "target_modules", Value::Null);
    refuse(&lora, "target_modules", json!(["w_proj", "gate_proj"]));
    refuse(&lora, "target_modules", json!(["q_proj", "lm_head"]));
    refuse(&lora, "target_modules", json!(["q_proj", "embed_tokens"]));
    refuse(&lora, "target_modules", json!("(q_proj"));
    refuse(&lora, "target_modules", json!(".*nothing"));
    refuse(&lora, "layers_to_transform", json!("all"));
    refuse(&adalora(), "lora_alpha", json!(0));
    refuse(&adalora(), "lora_alpha", json!(-8));
    refuse(&adalora(), "deltaT", json!(0));
    refuse(&adalora(), "rank_pattern", json!({ "model.layers.0.self_attn.q_proj.lora_E": [true] }));
    refuse(&adalora(), "rank_pattern", json!({ "model.layers.0.self_attn.q_proj.lora_E": [true, true, true, true] }));
    refuse(&AdapterConfig::linear::<Ia3>(&Ia3Config::default()), "feedforward_modules", json!(["w_proj"]));
    // What is off does not matter, nor what says nothing about the computation.
    load_changed(&lora, |fields| {
        fields["some_later_feature"] = json!(false);
        fields["another"] = json!({});
        fields["peft_version"] = json!("99.0");
    })
    .unwrap();
}

#[test]
fn settings_that_peft_leaves_out_or_that_leave_the_weights_alone() {
    for config in [low_rank(|c| c.dropout = 0.25), adalora()] {
        let without = load_changed(&config, |fields| {
            fields.as_object_mut().unwrap().remove("lora_dropout").unwrap();
        });
        let table = without.unwrap().config().unwrap().settings().clone();
        assert_eq!(table["dropout"].as_f64(), Some(0.0));
    }
    let kept = load_changed(&low_rank(|c| c.dropout = 0.25), |_| ()).unwrap();
    assert_eq!(kept.config().unwrap().read::<LoraConfig>().unwrap().dropout, 0.25);
    for start in ["gaussian", "eva", "orthogonal"] {
        load_changed(&low_rank(|_| ()), |fields| {
            fields["init_lora_weights"] = json!(start);
            fields["eva_config"] = json!({ "rho": 1.0, "tau": 0.99 });
        })
        .unwrap_or_else(|e| panic!("{start}: {e}"));
    }
}

#[test]
fn target_modules_as_peft_reads_them() {
    let paths = |set: &AdapterSet| set.linears().map(|(path, _)| path.to_owned()).collect::<Vec<_>>();
    let everywhere = low_rank(|_| ());
    let all = paths(&load_changed(&everywhere, |_| ()).unwrap());
    assert_eq!(all.len(), 12);
    for same in [json!("ALL-LINEAR"), json!(r"model\.layers\.\d+\.(self_attn|mlp)\..*_proj"), json!(".*_proj")] {
        assert_eq!(paths(&load_changed(&everywhere, |fields| fields["target_modules"] = same).unwrap()), all);
    }
    // Llama's list, of which this model has no gate: as PEFT, what is there is taken.
    let seven = json!(["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]);
    assert_eq!(paths(&load_changed(&everywhere, |fields| fields["target_modules"] = seven).unwrap()), all);
    let ia3 = AdapterConfig::linear::<Ia3>(&Ia3Config::default());
    let scaled = load_changed(&ia3, |fields| {
        fields["target_modules"] = json!(["k_proj", "v_proj", "down_proj", "fc2"]);
        fields["feedforward_modules"] = json!(["down_proj", "fc2"]);
    });
    let settings: Ia3Config = scaled.unwrap().config().unwrap().read().unwrap();
    assert_eq!((settings.targets.len(), settings.feedforward), (3, vec!["down_proj".to_owned()]));
    let one = low_rank(|c| c.targets = vec!["layers.1.self_attn.v_proj".into()]);
    let expected = ["model.layers.1.self_attn.v_proj"];
    assert_eq!(paths(&load_changed(&one, |_| ()).unwrap()), expected);
    let narrowed = load_changed(&one, |fields| {
        fields["target_modules"] = json!(["q_proj", "v_proj"]);
        fields["exclude_modules"] = json!(".*q_proj");
        fields["layers_to_transform"] = json!([1]);
    });
    assert_eq!(paths(&narrowed.unwrap()), expected);
    let message = load_changed(&one, |fields| fields["target_modules"] = json!(["v_proj"])).err().unwrap();
    assert!(message.contains("model.layers.0.self_attn.v_proj.lora_A.weight is missing"), "{message}");
    let message = load_changed(&everywhere, |fields| fields["target_modules"] = json!(["q_proj"])).err().unwrap();
    assert!(message.contains("does not belong"), "{message}");
    let message = load_changed(&everywhere, |fields| fields["r"] = json!(2)).err().unwrap();
    assert!(message.contains("has shape [3, "), "{message}");
}

#[test]
fn every_adapted_projection_is_listed_by_kind() {
    let model = TinyGpt::new(&tiny(), 1).unwrap();
    let set = on(&dora(), &model).unwrap();
    assert!(set.linears().all(|(_, adapter)| adapter.downcast_ref::<Dora>().is_some() && adapter.rank() == Some(3)));
    let config = set.config().unwrap();
    assert_eq!(config.parameter_count(&model.placement()).unwrap() as usize, set.trainable_count());
    let settings: LoraConfig = config.read().unwrap();
    assert_eq!(settings.scale(), 5.0 / 3.0);
    assert_eq!(LoraConfig { rslora: true, ..settings }.scale(), 5.0 / 3.0_f64.sqrt());
}
