//! Whole models: parameter counts, gradients, streaming, recompute, files.

use hankel_core::gpu::for_tests;
use hankel_core::{DType, Device, Random, Result, Tensor, no_grad};
use hankel_models::adapters::{
    AdaLora, AdaLoraConfig, Delta, Discretization, Dora, HankelShared, Householder, Hrm, HrmConfig, HrmMode, HrmPreset,
    Ia3, Ia3Config, Lora, LoraConfig, Rotation, Selective, StateOffset, delta, hankel_shared, householder, rotation,
    selective, state_offset,
};
use hankel_models::linear::NormKind;
use hankel_models::parameter::trainable_count;
use hankel_models::{AdapterConfig, AdapterSet, Backbone, Parameter, Pass, State, StepKey, TinyGpt, TinyGptConfig};
use hankel_ops::{ScanPath, Targets};
use hankel_tests::gradients::relative_error;
use hankel_tests::sequences::{
    packed_documents_are_apart, parts_carry_their_state, turns_are_known_by_memory_alone, without_dropout,
};
use serde_json::json;
use std::collections::BTreeMap;

fn tiny() -> TinyGptConfig {
    TinyGptConfig {
        layers: 2,
        d_model: 12,
        heads: 3,
        d_ff: 20,
        vocabulary: 11,
        context: 16,
        ..TinyGptConfig::default()
    }
}

fn tokens(shape: [usize; 2], vocabulary: usize, name: &str) -> Tensor {
    let random = Random::new(4, name, 0);
    let ids = (0..(shape[0] * shape[1]) as u64).map(|i| random.below(i, vocabulary) as u32).collect();
    Tensor::from_vec(ids, shape).unwrap()
}

/// Adapters as they are after some training: nothing at zero, so that every path carries a gradient.
fn shaken(config: &AdapterConfig, model: &TinyGpt, seed: u64) -> AdapterSet {
    let adapters = AdapterSet::on(config, &model.placement(), &model.parameters(), seed).unwrap();
    for (i, parameter) in adapters.parameters().iter().enumerate() {
        let noise = Random::new(seed, "shake", i as u64);
        let value: Vec<f64> = parameter.tensor().to_f64_vec();
        let moved = value.iter().enumerate().map(|(i, v)| v + 0.2 * noise.normal(i as u64)).collect();
        parameter.set(&Tensor::from_vec(moved, parameter.tensor().shape()).unwrap()).unwrap();
    }
    adapters
}

/// The adapters of `config`; without it none, and the model itself is trained, as it is pretrained.
fn trained(config: Option<&AdapterConfig>, model: &TinyGpt) -> AdapterSet {
    let Some(config) = config else {
        model.parameters().iter().for_each(|p| p.set_trainable(true).unwrap());
        return AdapterSet::none(&model.placement());
    };
    shaken(config, model, 2)
}

fn hrm(preset: HrmPreset, change: impl FnOnce(&mut HrmConfig)) -> AdapterConfig {
    let mut config = HrmConfig::new(preset, 4, 12, 9);
    change(&mut config);
    AdapterConfig::stream::<Hrm>(&config)
}

fn lora(targets: &[&str]) -> AdapterConfig {
    let targets = targets.iter().map(|t| (*t).to_owned()).collect();
    AdapterConfig::linear::<Lora>(&LoraConfig { targets, lora_alpha: 5.0, ..LoraConfig::new(3) })
}

fn dora(dropout: f64) -> AdapterConfig {
    let targets = vec!["all-linear".to_owned()];
    AdapterConfig::linear::<Dora>(&LoraConfig { targets, lora_alpha: 5.0, dropout, ..LoraConfig::new(3) })
}

fn adalora(dropout: f64) -> AdapterConfig {
    let targets = vec!["all-linear".to_owned()];
    AdapterConfig::linear::<AdaLora>(&AdaLoraConfig {
        targets,
        lora_alpha: 5.0,
        dropout,
        ..AdaLoraConfig::new(3, 2, 20)
    })
}

fn selective(change: impl FnOnce(&mut selective::Settings)) -> AdapterConfig {
    let mut settings = selective::Settings::default();
    change(&mut settings);
    AdapterConfig::stream::<Selective>(&settings).for_length(9)
}

fn householder(reflections: usize) -> AdapterConfig {
    AdapterConfig::stream::<Householder>(&householder::Settings { reflections, ..Default::default() })
}

fn hankel_shared() -> AdapterConfig {
    AdapterConfig::stream::<HankelShared>(&hankel_shared::Settings::default()).for_length(9)
}

/// Every kind and setting that changes the equations.
fn variants() -> Vec<(&'static str, AdapterConfig)> {
    let both = json!(["attention", "mlp"]);
    vec![
        ("hrm paper", hrm(HrmPreset::Paper, |_| ())),
        ("hrm paper at both sites", hrm(HrmPreset::Paper, |_| ()).with("sites", both.clone())),
        ("hrm released", hrm(HrmPreset::Released, |_| ())),
        ("hrm sublayer", hrm(HrmPreset::Paper, |_| ()).with("input", "sublayer").with("sites", both.clone())),
        (
            "hrm norm at attention",
            hrm(HrmPreset::Paper, |_| ()).with("input", "norm").with("sites", json!(["attention"])),
        ),
        ("hrm zoh", hrm(HrmPreset::Paper, |c| c.discretization = Discretization::Zoh)),
        ("hrm fft", hrm(HrmPreset::Paper, |c| c.scan = ScanPath::Fft)),
        ("hrm chunked", hrm(HrmPreset::Paper, |c| c.scan = ScanPath::Chunked)),
        ("hrm signed", hrm(HrmPreset::Paper, |c| c.mode = HrmMode::Signed)),
        ("hrm signed fft", hrm(HrmPreset::Paper, |c| (c.mode, c.scan) = (HrmMode::Signed, ScanPath::Fft))),
        ("hrm complex", hrm(HrmPreset::Paper, |c| c.mode = HrmMode::Complex)),
        ("hrm complex chunked", hrm(HrmPreset::Paper, |c| (c.mode, c.scan) = (HrmMode::Complex, ScanPath::Chunked))),
        ("selective", selective(|s| (s.state_dim, s.selection_rank) = (4, 2))),
        ("selective at both sites", selective(|_| ()).with("sites", both.clone())),
        ("selective signed", selective(|s| (s.state_dim, s.mode) = (4, selective::Mode::Signed))),
        ("selective norm", selective(|_| ()).with("input", "norm")),
        ("rotation", AdapterConfig::stream::<Rotation>(&rotation::Settings::default()).for_length(9)),
        ("householder", householder(1)),
        ("householder twice", householder(2).with("sites", both.clone())),
        ("delta", AdapterConfig::stream::<Delta>(&delta::Settings::default())),
        ("hankel-shared", hankel_shared().with("sites", both)),
        ("hankel-shared sublayer", hankel_shared().with("input", "sublayer").with("train_gate", false)),
        ("state-offset", AdapterConfig::stream::<StateOffset>(&state_offset::Settings {})),
        ("lora q v", lora(&["q_proj", "v_proj"])),
        ("lora all", lora(&["all-linear"])),
        ("lora in one layer", lora(&["layers.1.self_attn.q_proj", "mlp.up_proj"])),
        ("lora with dropout", lora(&["all-linear"]).with("dropout", 0.3)),
        ("rslora", lora(&["all-linear"]).with("rslora", true)),
        ("pissa", lora(&["all-linear"]).with("init", "pissa").with("rslora", true)),
        ("dora", dora(0.0)),
        ("dora with dropout", dora(0.3)),
        ("adalora", adalora(0.0)),
        ("adalora with dropout", adalora(0.3)),
        ("ia3", AdapterConfig::linear::<Ia3>(&Ia3Config::default())),
        (
            "ia3 everywhere",
            AdapterConfig::linear::<Ia3>(&Ia3Config {
                targets: vec!["all-linear".into()],
                feedforward: vec!["o_proj".into(), "mlp.up_proj".into()],
            }),
        ),
    ]
}

/// The same, and pretraining.
fn all() -> Vec<(&'static str, Option<AdapterConfig>)> {
    let pretraining = [("pretraining", None)].into_iter();
    pretraining.chain(variants().into_iter().map(|(name, config)| (name, Some(config)))).collect()
}

#[test]
fn parameter_counts() {
    let count = |config: &TinyGptConfig| {
        TinyGpt::new(config, 0).unwrap().parameters().iter().map(Parameter::elements).sum::<usize>()
    };
    let standard = TinyGptConfig::default();
    assert_eq!(count(&standard), 924_416);
    assert_eq!(count(&TinyGptConfig { context: 2048, ..standard.clone() }), 1_121_024);
    let released = TinyGptConfig { biases: false, tied_embeddings: true, ..standard.clone() };
    assert_eq!(count(&released), 924_416 - 256 * 128 - 4 * (2 * 128 + 4 * 128 + 512 + 128) - 128);

    let model = TinyGpt::new(&standard, 0).unwrap();
    let adapter = |config: AdapterConfig| AdapterSet::new(&config, &model.placement(), 0).unwrap().trainable_count();
    for (d, expected) in [(16, 16_516), (32, 33_028), (63, 65_020)] {
        let config = HrmConfig::new(HrmPreset::Paper, d, 128, 512);
        assert_eq!(4 * (config.parameters_per_site(128) + 1), expected);
        assert_eq!(adapter(AdapterConfig::stream::<Hrm>(&config)), expected);
        let frozen = HrmConfig { train_log_dt: false, ..config };
        let held = AdapterConfig::stream::<Hrm>(&frozen).with("train_gate", false);
        assert_eq!(held.parameter_count(&model.placement()).unwrap() as usize, expected - 4 * (d + 1));
        assert_eq!(adapter(held), expected - 4 * (d + 1));
        assert_eq!(4 * frozen.parameters_per_site(128), expected - 4 * (d + 1));
        let signed = HrmConfig { mode: HrmMode::Signed, ..HrmConfig::new(HrmPreset::Paper, d, 128, 512) };
        assert_eq!(adapter(AdapterConfig::stream::<Hrm>(&signed)), expected);
        if d % 2 == 0 {
            let complex = HrmConfig { mode: HrmMode::Complex, ..HrmConfig::new(HrmPreset::Paper, d, 128, 512) };
            assert_eq!(4 * (complex.parameters_per_site(128) + 1), expected - 2 * d);
            assert_eq!(adapter(AdapterConfig::stream::<Hrm>(&complex)), expected - 2 * d);
        }
    }
    for (rank, expected) in [(8, 16_384), (16, 32_768), (32, 65_536)] {
        assert_eq!(adapter(AdapterConfig::linear::<Lora>(&LoraConfig::new(rank))), expected);
    }
    assert_eq!(trainable_count(&model.parameters()), 0, "a new backbone is frozen");
}

/// Loss as a function of the trained tensors, which are put in place of the model's.
fn loss_of(
    model: &TinyGpt,
    adapters: &AdapterSet,
    trained: &[Parameter],
    values: &[Tensor],
    recompute: bool,
) -> Result<Tensor> {
    for (parameter, value) in trained.iter().zip(values) {
        parameter.update(|slot| *slot = value.clone());
    }
    let (input, target) = (tokens([2, 9], 11, "input"), tokens([2, 9], 11, "target"));
    let weights = Random::new(4, "weights", 0);
    let weights = Tensor::from_vec((0..18).map(|i| weights.uniform(i)).collect(), [2, 9])?;
    let targets = Targets { tokens: &target, weights: &weights, smoothing: 0.1, normalizer: 7.0 };
    let mut pass = Pass { recompute, ..Pass::training(StepKey { seed: 3, step: 5 }) };
    let loss = model.loss(&input, targets, adapters, &mut pass)?;
    adapters.penalty()?.map_or(Ok(loss.clone()), |penalty| hankel_ops::add(&loss, &penalty))
}

#[test]
fn gradients_of_the_whole_model_with_each_adapter() {
    for (name, config) in all() {
        let model = TinyGpt::new(&TinyGptConfig { dropout: 0.1, init_std: 0.3, ..tiny() }, 1).unwrap();
        let adapters = trained(config.as_ref(), &model);
        for (_, adapter) in adapters.linears() {
            // Constants of the backward pass must be constants of the differences too.
            if let Some(dora) = adapter.downcast_ref::<Dora>() {
                dora.hold_norms(true);
            }
        }
        model.to_dtype(DType::F64).unwrap();
        adapters.to_dtype(DType::F64).unwrap();
        let all = model.parameters().into_iter().chain(adapters.parameters());
        let trained: Vec<Parameter> = all.filter(Parameter::is_trainable).collect();
        let values: Vec<Tensor> = trained.iter().map(Parameter::tensor).collect();
        let error = relative_error(&values, 6, |x| loss_of(&model, &adapters, &trained, x, false)).unwrap();
        assert!(error < 1e-6, "{name}: relative error of the gradient {error:e}");
    }
}

/// Loss and gradients in `f32` of a model with an adapter, by parameter.
fn step_on(device: Device, config: Option<&AdapterConfig>, recompute: bool) -> BTreeMap<String, Vec<f64>> {
    let sizes = TinyGptConfig { dropout: 0.1, init_std: 0.3, ..tiny() };
    let model = TinyGpt::new(&sizes, 1).unwrap();
    let adapters = trained(config, &model);
    model.to_device(device).unwrap();
    adapters.to_device(device).unwrap();
    assert_eq!((model.device(), model.parameters()[3].tensor().device()), (device, device));
    let loss = loss_of(&model, &adapters, &[], &[], recompute).unwrap();
    let mut all = BTreeMap::from([("loss".to_owned(), loss.to_f64_vec())]);
    let gradients = loss.backward().unwrap();
    for parameter in model.parameters().into_iter().chain(adapters.parameters()) {
        if let Some(gradient) = gradients.get(&parameter.tensor()) {
            assert_eq!(gradient.device(), device, "{}", parameter.name());
            all.insert(parameter.name().to_owned(), gradient.to_f64_vec());
        }
    }
    all
}

#[test]
fn each_adapter_on_a_gpu() {
    let Some(gpu) = for_tests() else { return };
    for (name, config) in all() {
        let here = step_on(Device::Cpu, config.as_ref(), false);
        for recompute in [false, true] {
            let there = step_on(Device::Gpu(gpu), config.as_ref(), recompute);
            assert_eq!(here.len(), there.len(), "{name}");
            for (parameter, here) in &here {
                let size = here.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
                let close = here.iter().zip(&there[parameter]).all(|(a, b)| (a - b).abs() < 1e-4 * size);
                assert!(close, "{name}: {parameter}: {here:?} {:?}", there[parameter]);
            }
        }
    }
}

#[test]
fn joint_training_has_the_right_gradients() {
    let config =
        TinyGptConfig { norm: NormKind::RmsNorm, biases: false, tied_embeddings: true, init_std: 0.3, ..tiny() };
    let model = TinyGpt::new(&config, 1).unwrap();
    let adapters = shaken(&hrm(HrmPreset::Released, |_| ()), &model, 2);
    model.to_dtype(DType::F64).unwrap();
    adapters.to_dtype(DType::F64).unwrap();
    model.parameters().iter().for_each(|p| p.set_trainable(true).unwrap());
    let trained: Vec<Parameter> = model.parameters().into_iter().chain(adapters.parameters()).collect();
    let values: Vec<Tensor> = trained.iter().map(Parameter::tensor).collect();
    let error = relative_error(&values, 5, |x| loss_of(&model, &adapters, &trained, x, false)).unwrap();
    assert!(error < 1e-6, "relative error {error:e}");
}

#[test]
fn recompute_changes_nothing() {
    for (name, config) in all() {
        let model = TinyGpt::new(&TinyGptConfig { dropout: 0.2, ..tiny() }, 1).unwrap();
        let adapters = trained(config.as_ref(), &model);
        let trained: Vec<Parameter> = model.parameters().into_iter().chain(adapters.parameters()).collect();
        let gradients = |recompute| loss_of(&model, &adapters, &[], &[], recompute).unwrap().backward().unwrap();
        let (plain, again) = (gradients(false), gradients(true));
        for parameter in trained.iter().filter(|p| p.is_trainable()) {
            let [a, b] = [&plain, &again].map(|g| g.get(&parameter.tensor()).map(Tensor::to_f64_vec));
            assert_eq!(a, b, "{name}: {}", parameter.name());
        }
    }
}

#[test]
fn documents_and_parts() {
    for (name, config) in variants() {
        let model = TinyGpt::new(&TinyGptConfig { init_std: 0.3, ..tiny() }, 1).unwrap();
        let adapters = shaken(&without_dropout(config), &model, 2);
        packed_documents_are_apart(name, &model, &adapters);
        parts_carry_their_state(name, &model, &adapters);
        turns_are_known_by_memory_alone(name, &model, &adapters);
    }
}

#[test]
fn streaming_equals_batch() {
    let gpu = for_tests().map(Device::Gpu);
    for (name, config) in variants() {
        for device in [Some(Device::Cpu), gpu].into_iter().flatten() {
            streams_on(device, name, &config);
        }
    }
}

fn streams_on(device: Device, name: &str, config: &AdapterConfig) {
    let model = TinyGpt::new(&TinyGptConfig { init_std: 0.3, ..tiny() }, 1).unwrap();
    let adapters = shaken(config, &model, 2);
    model.to_device(device).unwrap();
    adapters.to_device(device).unwrap();
    let ids = tokens([2, 13], 11, "stream");
    no_grad(|| {
        let whole = model.logits(&ids, &adapters, &mut Pass::evaluation()).unwrap().to_f64_vec();
        for parts in [vec![1; 13], vec![5, 1, 7], vec![13]] {
            let mut state = State::default();
            let mut first = 0;
            for steps in parts {
                let id = |b: usize, t: usize| ids.data::<u32>().unwrap()[b * 13 + first + t];
                let part: Vec<u32> =
                    (0..2).flat_map(|b| (0..steps).map(move |t| (b, t))).map(|(b, t)| id(b, t)).collect();
                let part = Tensor::from_vec(part, [2, steps]).unwrap();
                let logits = model.logits(&part, &adapters, &mut Pass::streaming(&mut state)).unwrap().to_f64_vec();
                for b in 0..2 {
                    let got = &logits[b * steps * 11..(b + 1) * steps * 11];
                    let expected = &whole[(b * 13 + first) * 11..][..steps * 11];
                    let close = got.iter().zip(expected).all(|(g, e)| (g - e).abs() < 2e-5);
                    assert!(close, "{name}: steps {first}..{} of sequence {b}", first + steps);
                }
                first += steps;
            }
            assert_eq!(state.position, 13);
        }
    });
}

#[test]
fn files_keep_every_bit() {
    let folder = tempfile::tempdir().unwrap();
    let model = TinyGpt::new(&tiny(), 1).unwrap();
    model.save(&folder.path().join("backbone")).unwrap();
    let loaded = TinyGpt::load(&folder.path().join("backbone")).unwrap();
    assert_eq!(loaded.config(), model.config());
    let ids = tokens([1, 9], 11, "files");
    let logits = |model: &TinyGpt, adapters: &AdapterSet| {
        no_grad(|| model.logits(&ids, adapters, &mut Pass::evaluation())).unwrap().to_f64_vec()
    };
    for (name, config) in variants() {
        let adapters = shaken(&config, &model, 2);
        let path = folder.path().join(name.replace(' ', "-"));
        adapters.save(&path, Some("backbone")).unwrap();
        let again = AdapterSet::load(&path, &model.placement(), 9).unwrap();
        if name != "pissa" {
            // Which is a LoRA of twice the rank in files.
            assert_eq!(again.config(), adapters.config(), "{name}");
            assert_eq!(again.trainable_count(), adapters.trainable_count(), "{name}");
        }
        assert_eq!(logits(&loaded, &again), logits(&model, &adapters), "{name}");
    }
}

#[test]
fn files_keep_every_bit_of_doubles() {
    let folder = tempfile::tempdir().unwrap();
    // Values that no single holds.
    let widen = |parameters: &[Parameter]| {
        for parameter in parameters {
            parameter.to_dtype(DType::F64).unwrap();
            parameter.update(|t| t.data_mut::<f64>().unwrap().iter_mut().for_each(|x| *x += 1e-12));
        }
    };
    let same = |one: &[Parameter], other: &[Parameter], name: &str| {
        assert_eq!(one.len(), other.len());
        for (one, other) in one.iter().zip(other) {
            assert_eq!(other.tensor().dtype(), DType::F64, "{name}: {}", other.name());
            assert_eq!(one.tensor().to_f64_vec(), other.tensor().to_f64_vec(), "{name}: {}", one.name());
        }
    };
    let model = TinyGpt::new(&tiny(), 1).unwrap();
    widen(&model.parameters());
    model.save(&folder.path().join("backbone")).unwrap();
    same(&model.parameters(), &TinyGpt::load(&folder.path().join("backbone")).unwrap().parameters(), "backbone");
    // In files PiSSA has other parameters: A and A0 are one.
    for (name, config) in variants().into_iter().filter(|(name, _)| *name != "pissa") {
        let adapters = AdapterSet::on(&config, &model.placement(), &model.parameters(), 2).unwrap();
        widen(&adapters.parameters());
        let path = folder.path().join(name.replace(' ', "-"));
        adapters.save(&path, None).unwrap();
        same(&adapters.parameters(), &AdapterSet::load(&path, &model.placement(), 9).unwrap().parameters(), name);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let model = TinyGpt::new(&tiny(), 1).unwrap();
    let none = AdapterSet::none(&model.placement());
    let say = |result: Result<Tensor>| result.unwrap_err().to_string();
    let too_long = say(model.hidden(&tokens([1, 17], 11, "x"), &none, &mut Pass::evaluation()));
    assert!(too_long.contains("17 tokens are longer than the context of 16"), "{too_long}");
    let outside = say(model.hidden(&Tensor::full([1, 3], 11_u32), &none, &mut Pass::evaluation()));
    assert!(outside.contains("token 11 at position 0 is outside a vocabulary of 11"), "{outside}");
    let missing = AdapterSet::new(&lora(&["gate_proj"]), &model.placement(), 0).err().unwrap().to_string();
    assert!(missing.contains("gate_proj") && missing.contains("up_proj"), "{missing}");
    assert!(TinyGpt::new(&TinyGptConfig { heads: 5, ..tiny() }, 0).is_err());
}
