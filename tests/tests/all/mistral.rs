//! Mistral with adapters: gradients against central differences, streams against whole sequences, recompute, what is
//! refused.

use hankel_core::{DType, Random, Tensor, no_grad};
use hankel_models::adapters::{
    AdaLora, AdaLoraConfig, Dora, HankelShared, Hrm, HrmConfig, HrmPreset, Ia3, Ia3Config, Lora, LoraConfig, Selective,
    hankel_shared, selective,
};
use hankel_models::decoder::{InitType, LoadOptions, Positions, Rope, families, init_model};
use hankel_models::{AdapterConfig, AdapterSet, Backbone, Decoder, DecoderConfig, Parameter, Pass, State, StepKey};
use hankel_ops::Targets;
use hankel_tests::gradients::relative_error;
use hankel_tests::sequences::{
    packed_documents_are_apart, parts_carry_their_state, turns_are_known_by_memory_alone, without_dropout,
};
use serde_json::json;

const VOCABULARY: usize = 13;

fn tiny(window: Option<usize>) -> Decoder {
    let config = DecoderConfig {
        family: &families::MISTRAL,
        vocabulary: VOCABULARY,
        d_model: 12,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        // Not d_model / heads: queries are wider than the stream, keys narrower.
        head_dim: 4,
        d_ff: 20,
        context: 64,
        sliding_window: window,
        positions: Positions::Rotary(Rope { theta: 100.0, ..Rope::default() }),
        init_std: 0.4,
        ..DecoderConfig::mistral_7b()
    };
    Decoder::new(&config, 3).unwrap()
}

fn tokens(shape: [usize; 2]) -> Tensor {
    let random = Random::new(4, "tokens", 0);
    let ids = (0..(shape[0] * shape[1]) as u64).map(|i| random.below(i, VOCABULARY) as u32).collect();
    Tensor::from_vec(ids, shape).unwrap()
}

fn variants() -> Vec<(&'static str, AdapterConfig)> {
    let hrm = || AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 4, 12, 11));
    let lora = |targets: &[&str]| {
        let targets = targets.iter().map(|t| (*t).to_owned()).collect();
        AdapterConfig::linear::<Lora>(&LoraConfig { targets, lora_alpha: 5.0, ..LoraConfig::new(3) })
    };
    let dora = LoraConfig { targets: vec!["all-linear".into()], dropout: 0.2, ..LoraConfig::new(3) };
    let adalora = AdaLoraConfig { targets: vec!["all-linear".into()], ..AdaLoraConfig::new(3, 2, 20) };
    let both = json!(["attention", "mlp"]);
    vec![
        ("hrm", hrm()),
        ("hrm at both sites", hrm().with("sites", both.clone())),
        ("hrm of the norm at attention", hrm().with("input", "norm").with("sites", "attention")),
        ("hrm of the sub-layers", hrm().with("input", "sublayer").with("sites", both.clone())),
        (
            "selective",
            AdapterConfig::stream::<Selective>(&selective::Settings::default()).for_length(11).with("sites", both),
        ),
        ("hankel-shared", AdapterConfig::stream::<HankelShared>(&hankel_shared::Settings::default()).for_length(11)),
        ("lora q v", lora(&["q_proj", "v_proj"])),
        ("lora mlp", lora(&["gate_proj", "up_proj", "down_proj"])),
        ("lora all", lora(&["all-linear"])),
        ("dora all", AdapterConfig::linear::<Dora>(&dora)),
        ("adalora all", AdapterConfig::linear::<AdaLora>(&adalora)),
        ("ia3", AdapterConfig::linear::<Ia3>(&Ia3Config::default())),
    ]
}

/// Adapters as they are after some training: nothing at zero.
fn shaken(config: &AdapterConfig, model: &Decoder) -> AdapterSet {
    let adapters = AdapterSet::on(config, &model.placement(), &model.parameters(), 2).unwrap();
    for (i, parameter) in adapters.parameters().iter().enumerate() {
        let noise = Random::new(2, "shake", i as u64);
        let moved = parameter.tensor().to_f64_vec();
        let moved = moved.iter().enumerate().map(|(i, v)| v + 0.2 * noise.normal(i as u64)).collect();
        parameter.set(&Tensor::from_vec(moved, parameter.tensor().shape()).unwrap()).unwrap();
    }
    adapters
}

fn loss(model: &Decoder, adapters: &AdapterSet, recompute: bool) -> hankel_core::Result<Tensor> {
    let (input, target) = (tokens([2, 11]), tokens([2, 11]));
    let weights = Tensor::full([2, 11], 1.0_f32);
    let targets = Targets { tokens: &target, weights: &weights, smoothing: 0.0, normalizer: 22.0 };
    let mut pass = Pass { recompute, ..Pass::training(StepKey { seed: 1, step: 2 }) };
    model.loss(&input, targets, adapters, &mut pass)
}

#[test]
fn gradients_of_every_adapter() {
    for (name, config) in variants() {
        let model = tiny(Some(5));
        let adapters = shaken(&config, &model);
        for (_, adapter) in adapters.linears() {
            // Constants of the backward pass must be constants of the differences too.
            if let Some(dora) = adapter.downcast_ref::<Dora>() {
                dora.hold_norms(true);
            }
        }
        model.to_dtype(DType::F64).unwrap();
        adapters.to_dtype(DType::F64).unwrap();
        let trained = adapters.parameters();
        let values: Vec<Tensor> = trained.iter().map(Parameter::tensor).collect();
        let error = relative_error(&values, 6, |x| {
            trained.iter().zip(x).for_each(|(p, x)| p.update(|value| *value = x.clone()));
            loss(&model, &adapters, false)
        });
        let error = error.unwrap();
        assert!(error < 1e-6, "{name}: relative error of the gradient {error:e}");
    }
}

#[test]
fn recompute_changes_nothing() {
    for (name, config) in variants() {
        let model = tiny(Some(5));
        let adapters = shaken(&config, &model);
        let [plain, again] = [false, true].map(|r| loss(&model, &adapters, r).unwrap().backward().unwrap());
        for parameter in adapters.parameters() {
            let [a, b] = [&plain, &again].map(|g| g.get(&parameter.tensor()).map(Tensor::to_f64_vec));
            assert!(a.is_some(), "{name}: {} has no gradient", parameter.name());
            assert_eq!(a, b, "{name}: {}", parameter.name());
        }
    }
}

#[test]
fn documents_and_parts() {
    for (name, config) in variants() {
        let model = tiny(Some(5));
        let adapters = shaken(&without_dropout(config), &model);
        packed_documents_are_apart(name, &model, &adapters);
        parts_carry_their_state(name, &model, &adapters);
        turns_are_known_by_memory_alone(name, &model, &adapters);
    }
}

#[test]
fn streaming_equals_batch() {
    for window in [None, Some(1), Some(2), Some(5), Some(40)] {
        for (name, config) in variants() {
            let model = tiny(window);
            let adapters = shaken(&config, &model);
            let ids = tokens([2, 13]);
            let whole = no_grad(|| model.logits(&ids, &adapters, &mut Pass::evaluation())).unwrap().to_f64_vec();
            for parts in [vec![1; 13], vec![5, 1, 7], vec![13], vec![2, 11]] {
                let (mut state, mut first) = (State::default(), 0);
                for steps in parts {
                    let id = |b: usize, t: usize| ids.data::<u32>().unwrap()[b * 13 + first + t];
                    let part = (0..2).flat_map(|b| (0..steps).map(move |t| (b, t))).map(|(b, t)| id(b, t)).collect();
                    let part = Tensor::from_vec(part, [2, steps]).unwrap();
                    let logits = no_grad(|| model.logits(&part, &adapters, &mut Pass::streaming(&mut state))).unwrap();
                    let (logits, n) = (logits.to_f64_vec(), steps * VOCABULARY);
                    for b in 0..2 {
                        let expected = &whole[(b * 13 + first) * VOCABULARY..][..n];
                        let close = logits[b * n..(b + 1) * n].iter().zip(expected).all(|(g, e)| (g - e).abs() < 5e-5);
                        assert!(close, "{name}, window {window:?}: steps {first}..{} of {b}", first + steps);
                    }
                    first += steps;
                }
                assert_eq!(state.position, 13);
            }
        }
    }
}

/// Weights in 16 or 4 bits compute what the same values in f32 compute, whatever is attached to them.
#[test]
fn adapters_on_compact_weights() {
    for (quantize, kind) in [(false, DType::BF16), (true, DType::Nf4)] {
        adapters_on_weights_of(quantize, kind);
    }
}

fn adapters_on_weights_of(quantize: bool, kind: DType) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    init_model(tiny(Some(5)).config(), 7, InitType::Bf16, &path).unwrap();
    let packed = Decoder::load(&path, LoadOptions { quantize, ..LoadOptions::default() }).unwrap();
    let wide = Decoder::load(&path, LoadOptions { quantize, ..LoadOptions::default() }).unwrap();
    assert!(packed.parameters().iter().any(|p| p.tensor().dtype() == kind));
    wide.to_dtype(DType::F32).unwrap();
    for (name, config) in variants() {
        let [a, b] = [&packed, &wide].map(|model| {
            let adapters = shaken(&config, model);
            let loss = loss(model, &adapters, true).unwrap();
            let gradients = loss.backward().unwrap();
            let gradient = |p: &Parameter| gradients.get(&p.tensor()).unwrap().to_f64_vec();
            (loss.to_f64_vec(), adapters.parameters().iter().flat_map(gradient).collect::<Vec<f64>>())
        });
        assert!((a.0[0] - b.0[0]).abs() < 1e-5, "{name}: {:?} {:?}", a.0, b.0);
        let distance = a.1.iter().zip(&b.1).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
        let norm = b.1.iter().map(|b| b * b).sum::<f64>().sqrt();
        assert!(distance < 1e-5 * norm, "{name}: gradients differ by {distance} of {norm}");
    }
}

#[test]
fn grouped_queries_are_counted_as_they_are() {
    let placement = DecoderConfig::mistral_7b().placement();
    let count = |targets: &[&str], rank: usize| {
        let targets = targets.iter().map(|t| (*t).to_owned()).collect();
        let lora = AdapterConfig::linear::<Lora>(&LoraConfig { targets, ..LoraConfig::new(rank) });
        lora.parameter_count(&placement).unwrap()
    };
    assert_eq!(count(&["q_proj", "v_proj"], 16), 6_815_744);
    assert_eq!(count(&["q_proj", "v_proj"], 20), 8_519_680);
}

#[test]
fn what_does_not_fit_is_refused() {
    let model = tiny(None);
    let none = AdapterSet::none(&model.placement());
    let say = |tokens: &Tensor| model.hidden(tokens, &none, &mut Pass::evaluation()).unwrap_err().to_string();
    assert!(say(&Tensor::full([1, 3], 13_u32)).contains("token 13 at position 0 is outside a vocabulary of 13"));
    assert!(say(&Tensor::full([3], 1_u32)).contains("[batch, T]"));
    let config = AdapterConfig::linear::<Lora>(&LoraConfig { targets: vec!["fc1".into()], ..LoraConfig::new(2) });
    let message = AdapterSet::new(&config, &model.placement(), 0).err().unwrap().to_string();
    assert!(message.contains("fc1") && message.contains("gate_proj"), "{message}");
    let odd = DecoderConfig { kv_heads: 3, ..model.config().clone() };
    assert!(Decoder::new(&odd, 0).err().unwrap().to_string().contains("num_key_value_heads"));
}
