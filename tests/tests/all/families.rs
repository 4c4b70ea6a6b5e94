//! What holds for every family: adapters begin as the identity and can be merged, packing, streams, 4-bit weights, names
//! of PEFT.

use hankel_core::{DType, Random, Tensor, no_grad};
use hankel_models::adapters::{AdaLoraConfig, HrmConfig, Ia3Config, LoraConfig, Preset};
use hankel_models::decoder::{LoadOptions, merge_model, quantize_model};
use hankel_models::{AdapterConfig, AdapterSet, Backbone, Decoder, Pass, State};
use hankel_tests::decoders::{none, values};
use hankel_tests::sequences::{packed_documents_are_apart, parts_carry_their_state};
use std::fs;
use std::path::PathBuf;

/// One of each block, the rest differing in angles only.
const CASES: [&str; 9] = ["llama3", "qwen2", "qwen3", "smollm3", "olmo2", "phi3", "granite", "gemma3_text", "gpt2"];

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/families")).join(name).join("hf")
}

fn load(name: &str) -> Decoder {
    Decoder::load(&path(name), LoadOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn linear_kinds() -> Vec<(&'static str, AdapterConfig)> {
    let all = || vec!["all-linear".to_owned()];
    vec![
        ("lora", AdapterConfig::Lora(LoraConfig { targets: all(), ..LoraConfig::new(3) })),
        ("dora", AdapterConfig::Lora(LoraConfig { targets: all(), dora: true, ..LoraConfig::new(3) })),
        ("adalora", AdapterConfig::AdaLora(AdaLoraConfig { targets: all(), ..AdaLoraConfig::new(3, 2, 20) })),
        ("ia3", AdapterConfig::Ia3(Ia3Config { targets: all(), feedforward: Vec::new() })),
    ]
}

fn shaken(config: &AdapterConfig, model: &Decoder) -> AdapterSet {
    let adapters = AdapterSet::on(config, &model.placement(), &model.parameters(), 2).unwrap();
    for (i, parameter) in adapters.parameters().iter().enumerate() {
        let noise = Random::new(2, "shake", i as u64);
        let moved = parameter.tensor().to_f64_vec();
        let moved = moved.iter().enumerate().map(|(i, v)| v + 0.1 * noise.normal(i as u64)).collect();
        parameter.set(&Tensor::from_vec(moved, parameter.tensor().shape()).unwrap()).unwrap();
    }
    adapters
}

fn logits(model: &Decoder, adapters: &AdapterSet) -> Vec<f64> {
    let ids = (0..14).map(|i| 3 + (i * 37) % 200).collect();
    let tokens = Tensor::from_vec::<u32>(ids, [1, 14]).unwrap();
    values(&no_grad(|| model.logits(&tokens, adapters, &mut Pass::evaluation())).unwrap())
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    a.iter().zip(b).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs())) / largest
}

#[test]
fn adapters_begin_as_the_identity_and_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    for name in CASES {
        let model = load(name);
        let before = logits(&model, &none(&model));
        for (kind, config) in linear_kinds() {
            let fresh = AdapterSet::on(&config, &model.placement(), &model.parameters(), 1).unwrap();
            assert_eq!(fresh.linears().count(), model.config().layers * model.placement().linear.len());
            let start = distance(&logits(&model, &fresh), &before);
            assert!(start < 1e-5, "{name} {kind}: the start differs by {start:e}");
            let adapters = shaken(&config, &model);
            let adapted = logits(&model, &adapters);
            assert!(distance(&adapted, &before) > 1e-3, "{name} {kind}: nothing changed");
            let to = folder.path().join(format!("{name}-{kind}"));
            merge_model(&adapters, &path(name), &to, None).unwrap();
            let merged = Decoder::load(&to, LoadOptions::default()).unwrap();
            let error = distance(&logits(&merged, &none(&merged)), &adapted);
            assert!(error < 2e-5, "{name} {kind}: merged weights differ by {error:e}");
        }
    }
}

#[test]
fn documents_parts_and_streams() {
    let hrm = |width| AdapterConfig::Hrm(HrmConfig::new(Preset::Paper, 4, width, 14));
    for name in CASES {
        for kind in ["lora", "hrm"] {
            let model = load(name);
            let config = if kind == "hrm" { hrm(model.config().d_model) } else { linear_kinds().remove(0).1 };
            let adapters = shaken(&config, &model);
            let whole = logits(&model, &adapters);
            let (mut state, mut all) = (State::default(), Vec::new());
            for (first, steps) in [(0_u32, 5_u32), (5, 1), (6, 8)] {
                let ids = (first..first + steps).map(|i| 3 + (i * 37) % 200).collect();
                let part = Tensor::from_vec::<u32>(ids, [1, steps as usize]).unwrap();
                let part = no_grad(|| model.logits(&part, &adapters, &mut Pass::streaming(&mut state))).unwrap();
                all.extend(values(&part));
            }
            let error = distance(&all, &whole);
            assert!(error < 2e-5, "{name} {kind}: a stream differs by {error:e}");
            packed_documents_are_apart(name, &model, &adapters);
            parts_carry_their_state(name, &model, &adapters);
        }
    }
}

#[test]
fn projections_in_four_bits() {
    let folder = tempfile::tempdir().unwrap();
    for name in CASES {
        let options = LoadOptions { quantize: true, ..LoadOptions::default() };
        let packed = Decoder::load(&path(name), options).unwrap();
        let compact = packed.parameters().iter().filter(|p| p.tensor().dtype() == DType::Nf4).count();
        assert_eq!(compact, packed.config().layers * packed.placement().linear.len(), "{name}");
        let found = logits(&packed, &none(&packed));
        let wide = load(name);
        let error = distance(&found, &logits(&wide, &none(&wide)));
        assert!(error > 0.0 && error < 0.5, "{name}: {error}");
        let to = folder.path().join(name);
        if packed.config().family.names.transposed {
            assert!(quantize_model(&path(name), &to, true).unwrap_err().to_string().contains("while loading"));
            continue;
        }
        quantize_model(&path(name), &to, true).unwrap();
        let stored = Decoder::load(&to, LoadOptions::default()).unwrap();
        assert_eq!(logits(&stored, &none(&stored)), found, "{name}");
    }
}

#[test]
fn names_of_peft() {
    let folder = tempfile::tempdir().unwrap();
    for (name, path) in [
        ("phi3", "model.layers.1.self_attn.qkv_proj"),
        ("phi3", "model.layers.0.mlp.gate_up_proj"),
        ("gpt2", "transformer.h.0.attn.c_attn"),
        ("gpt2", "transformer.h.1.mlp.c_proj"),
        ("olmo2", "model.layers.0.self_attn.q_proj"),
    ] {
        let model = load(name);
        let adapters = shaken(&linear_kinds()[0].1, &model);
        assert!(adapters.linears().any(|(adapted, _)| adapted == path), "{name}: {path}");
        let to = folder.path().join(name);
        adapters.save(&to, None).unwrap();
        let file = fs::read(to.join("adapter_model.safetensors")).unwrap();
        let names = safetensors::SafeTensors::deserialize(&file).unwrap();
        assert!(names.tensor(&format!("base_model.model.{path}.lora_A.weight")).is_ok(), "{name}: {path}");
        let again = AdapterSet::load(&to, &model.placement(), 14).unwrap();
        assert_eq!(logits(&model, &again), logits(&model, &adapters), "{name}");
    }
    let both = AdapterConfig::Lora(LoraConfig { targets: vec!["c_proj".to_owned()], ..LoraConfig::new(2) });
    let gpt2 = load("gpt2");
    assert_eq!(AdapterSet::new(&both, &gpt2.placement(), 0).unwrap().linears().count(), 4);
}
