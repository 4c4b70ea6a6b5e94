//! Every family, with its features and random sizes and weights, with adapters of every kind: packing, parts of a sequence, gradients,
//! recompute, merging, files, four bits, and the GPU.

use hankel_core::{DType, Device, Random, Tensor, gpu, no_grad};
use hankel_models::adapters::{
    AdaLora, AdaLoraConfig, Delta, Dora, HankelShared, Householder, Hrm, HrmConfig, HrmPreset, Ia3, Ia3Config, Lora,
    LoraConfig, Rotation, Selective, StateOffset, delta, hankel_shared, householder, kinds, rotation, selective,
    state_offset,
};
use hankel_models::decoder::{InitType, LoadOptions, Positions, families, init_model};
use hankel_models::{AdapterConfig, AdapterSet, Backbone, Decoder, DecoderConfig, Parameter, Pass};
use hankel_tests::decoders::{FAMILIES, loss_of, values};
use hankel_tests::largest_difference;
use hankel_tests::sequences::{packed_documents_are_apart, parts_carry_their_state, turns_are_known_by_memory_alone};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// Configurations with the features of their families.
static CASES: LazyLock<Vec<&str>> = LazyLock::new(|| FAMILIES.iter().map(String::as_str).chain(["mistral"]).collect());

fn features(case: &str) -> DecoderConfig {
    if case == "mistral" {
        return DecoderConfig { sliding_window: Some(5), layers: 2, ..DecoderConfig::mistral_7b() };
    }
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/families")).join(case).join("hf");
    DecoderConfig::load(&path).unwrap()
}

#[derive(Debug, Clone)]
struct Sizes {
    kv_heads: usize,
    group: usize,
    head_dim: usize,
    d_model: usize,
    d_ff: usize,
    window: usize,
    tied: bool,
    seed: u64,
}

fn sizes() -> impl Strategy<Value = Sizes> {
    (1_usize..3, 1_usize..3, 1_usize..5, 4_usize..13, 4_usize..20, 1_usize..9, any::<bool>(), any::<u64>()).prop_map(
        |(kv_heads, group, half, d_model, d_ff, window, tied, seed)| Sizes {
            kv_heads,
            group,
            head_dim: 2 * half,
            d_model,
            d_ff,
            window,
            tied,
            seed,
        },
    )
}

/// A model of a family's features in other sizes; no gain is 1 and no bias 0.
fn model(case: &str, sizes: &Sizes) -> Decoder {
    let features = features(case);
    // Factors of single wavelengths belong to a width of heads; GPT-2 has as many keys as queries, as wide as the stream: two values after a
    // LayerNorm are signs, without a gradient to speak of.
    let plain = case == "gpt2";
    let head_dim = match case {
        "phi3_longrope" => features.head_dim,
        _ => sizes.head_dim.max(if plain { 4 } else { 2 }),
    };
    let heads = sizes.kv_heads * sizes.group;
    let config = DecoderConfig {
        vocabulary: 13,
        d_model: if plain { heads * head_dim } else { sizes.d_model },
        heads,
        kv_heads: if plain { heads } else { sizes.kv_heads },
        head_dim,
        d_ff: sizes.d_ff,
        tied_embeddings: sizes.tied || plain,
        sliding_window: features.sliding_window.map(|_| sizes.window),
        init_std: 0.4,
        ..features
    };
    let model = Decoder::new(&config, sizes.seed).unwrap();
    shake(model.parameters().iter().filter(|parameter| parameter.tensor().shape().len() == 1), 0.2);
    model
}

fn shake<'a>(parameters: impl Iterator<Item = &'a Parameter>, std: f64) {
    for (i, parameter) in parameters.enumerate() {
        let noise = Random::new(3, "shake", i as u64);
        let value = parameter.tensor();
        let moved = value.to_f64_vec().iter().enumerate().map(|(i, v)| v + std * noise.normal(i as u64)).collect();
        parameter.set(&Tensor::from_vec::<f64>(moved, value.shape()).unwrap()).unwrap();
    }
}

fn all_linear() -> Vec<String> {
    vec!["all-linear".into()]
}

/// Kinds at projections, which can be merged.
fn linear_kinds() -> Vec<(&'static str, AdapterConfig)> {
    let low_rank = |rank| LoraConfig { targets: all_linear(), lora_alpha: 5.0, ..LoraConfig::new(rank) };
    let adalora = AdaLoraConfig { targets: all_linear(), ..AdaLoraConfig::new(3, 2, 20) };
    vec![
        ("lora", AdapterConfig::linear::<Lora>(&low_rank(3))),
        ("dora", AdapterConfig::linear::<Dora>(&low_rank(2))),
        ("adalora", AdapterConfig::linear::<AdaLora>(&adalora)),
        ("ia3", AdapterConfig::linear::<Ia3>(&Ia3Config { targets: all_linear(), feedforward: Vec::new() })),
    ]
}

fn stream_kinds(d_model: usize) -> Vec<(&'static str, AdapterConfig)> {
    let both = json!(["attention", "mlp"]);
    let hrm = |input: &str| {
        let hrm = AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 4, d_model, 11));
        hrm.with("input", input).with("sites", both.clone())
    };
    let selective = AdapterConfig::stream::<Selective>(&selective::Settings::default());
    let shared = AdapterConfig::stream::<HankelShared>(&hankel_shared::Settings::default());
    // Polynomials of what they read: of the stream itself they would overflow behind eight of them.
    let of_norm = |config: AdapterConfig| config.with("input", "norm");
    vec![
        ("hrm", hrm("residual")),
        ("hrm of the norm", hrm("norm")),
        ("hrm of the sub-layers", hrm("sublayer")),
        ("selective", of_norm(selective.for_length(11)).with("sites", both.clone())),
        ("hankel-shared", shared.for_length(11)),
        ("rotation", of_norm(AdapterConfig::stream::<Rotation>(&rotation::Settings::default()).for_length(11))),
        ("householder", of_norm(AdapterConfig::stream::<Householder>(&householder::Settings::default()))),
        ("delta", of_norm(AdapterConfig::stream::<Delta>(&delta::Settings::default()))),
        ("state-offset", AdapterConfig::stream::<StateOffset>(&state_offset::Settings {})),
    ]
}

#[test]
fn no_kind_is_left_out() {
    let lists = || linear_kinds().into_iter().chain(stream_kinds(8));
    // Those that other tests register have no description.
    for kind in kinds().into_iter().filter(|kind| !kind.about().is_empty()) {
        assert!(lists().any(|(_, config)| config.kind() == kind), "{kind:?} is in neither list");
    }
}

fn shaken(config: &AdapterConfig, model: &Decoder) -> AdapterSet {
    let adapters = AdapterSet::on(config, &model.placement(), &model.parameters(), 2).unwrap();
    shake(adapters.parameters().iter(), 0.2);
    adapters
}

fn ids(n: usize) -> Vec<u32> {
    let random = Random::new(4, "ids", 0);
    (0..n as u64).map(|i| random.below(i, 13) as u32).collect()
}

fn logits(model: &Decoder, adapters: &AdapterSet) -> Vec<f64> {
    let tokens = Tensor::from_vec(ids(18), [2, 9]).unwrap();
    values(&no_grad(|| model.logits(&tokens, adapters, &mut Pass::evaluation())).unwrap())
}

fn close(name: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    let scale = expected.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
    let worst = largest_difference(found, expected);
    assert!(worst <= tolerance * scale, "{name}: differs by {worst:e} of {scale:e}");
}

/// The loss and the gradient of each parameter of the adapters.
fn gradients(model: &Decoder, adapters: &AdapterSet) -> Vec<(String, Vec<f64>)> {
    let tokens = Tensor::from_vec(ids(18), [2, 9]).unwrap();
    let labels: Vec<f64> = ids(18).into_iter().map(f64::from).collect();
    let x = model.embed(&tokens).unwrap();
    let loss = loss_of(model, adapters, &x, &labels, &mut Pass::evaluation());
    let gradients = loss.backward().unwrap();
    let of = |p: &Parameter| values(gradients.get(&p.tensor()).unwrap_or_else(|| panic!("{}", p.name())));
    let each = adapters.parameters().into_iter().map(|p| (p.name().to_owned(), of(&p)));
    each.chain([("loss".to_owned(), values(&loss))]).collect()
}

fn each_close(name: &str, [found, expected]: &[Vec<(String, Vec<f64>)>; 2], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for ((parameter, found), (other, expected)) in found.iter().zip(expected) {
        assert_eq!(parameter, other);
        close(&format!("{name}: {parameter}"), found, expected, tolerance);
    }
}

/// Where a family has no norm before its sub-layers, an adapter that reads their normalised input gets the stream divided by its root
/// mean square.
#[test]
fn a_stream_that_no_norm_is_on_is_normalised_for_adapters() {
    let sizes = Sizes { kv_heads: 1, group: 2, head_dim: 4, d_model: 8, d_ff: 12, window: 5, tied: false, seed: 7 };
    let model = model("olmo2", &sizes);
    let hrm = stream_kinds(8).into_iter().find(|(name, _)| *name == "hrm of the norm").unwrap().1;
    let adapters = shaken(&hrm, &model);
    let tokens = Tensor::from_vec(ids(18), [2, 9]).unwrap();
    let mut read = Vec::new();
    let mut pass = Pass { inputs: Some(&mut read), ..Pass::evaluation() };
    no_grad(|| model.logits(&tokens, &adapters, &mut pass)).unwrap();
    assert_eq!(read.len(), 2 * model.config().layers);
    let embedded = values(&model.embed(&tokens).unwrap());
    let normalised = |row: &[f64]| -> Vec<f64> {
        let mean_square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        row.iter().map(|x| x / (mean_square + model.config().norm_eps).sqrt()).collect()
    };
    let expected: Vec<f64> = embedded.chunks(8).flat_map(normalised).collect();
    close("first site", &values(&read[0].x), &expected, 1e-5);
    for site in &read {
        for row in values(&site.x).chunks(8) {
            let mean_square = row.iter().map(|x| x * x).sum::<f64>() / 8.0;
            assert!((mean_square - 1.0).abs() < 1e-3, "layer {}: {mean_square}", site.layer);
        }
    }
}

proptest! {
    #![proptest_config(hankel_tests::cases(60))]

    /// A merged model computes what model and adapter compute; an adapter comes back from its files.
    #[test]
    fn merged_and_stored(case in 0..CASES.len(), kind in any::<prop::sample::Index>(), sizes in sizes()) {
        let model = model(CASES[case], &sizes);
        let kinds = linear_kinds();
        let (kind, config) = &kinds[kind.index(kinds.len())];
        let name = format!("{kind} on {}", CASES[case]);
        let adapters = shaken(config, &model);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("adapter");
        adapters.save(&path, None).unwrap();
        let stored = AdapterSet::load(&path, &model.placement(), 9).unwrap();
        for set in [&adapters, &stored] {
            set.to_dtype(DType::F64).unwrap();
        }
        model.to_dtype(DType::F64).unwrap();
        let expected = logits(&model, &adapters);
        close(&format!("{name}, stored"), &logits(&model, &stored), &expected, 1e-6);
        adapters.merge(&model.parameters()).unwrap();
        close(&format!("{name}, merged"), &logits(&model, &AdapterSet::none(&model.placement())), &expected, 1e-10);
    }
}

/// Documents end to end are the documents one by one; a part continues the stream of the parts before; gradients are those of
/// central differences, with and without recompute. Every kind on every family, in sizes of its own.
#[test]
fn packing_parts_and_gradients() {
    let mut runner = TestRunner::deterministic();
    for &case in CASES.iter() {
        for kind in 0..linear_kinds().len() + stream_kinds(1).len() {
            let sizes = sizes().new_tree(&mut runner).unwrap().current();
            let model = model(case, &sizes);
            let mut kinds = linear_kinds();
            kinds.extend(stream_kinds(model.config().d_model));
            let (kind, config) = &kinds[kind];
            let name = format!("{kind} on {case}, {sizes:?}");
            let adapters = shaken(config, &model);
            packed_documents_are_apart(&name, &model, &adapters);
            parts_carry_their_state(&name, &model, &adapters);
            turns_are_known_by_memory_alone(&name, &model, &adapters);
        }
    }
}

fn usual() -> Sizes {
    Sizes { kv_heads: 2, group: 2, head_dim: 4, d_model: 12, d_ff: 20, window: 5, tied: false, seed: 3 }
}

#[test]
fn no_family_is_left_out() {
    for &family in families::FAMILIES {
        assert!(CASES.iter().any(|case| features(case).family == family), "{family:?}");
    }
}

/// Weights in 4 bits compute what the same values in f32 compute.
#[test]
fn four_bits() {
    for &case in CASES.iter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        // A block of 64 values has a scale: rows are whole blocks only by chance.
        init_model(model(case, &usual()).config(), 7, InitType::Bf16, &path).unwrap();
        let load = || Decoder::load(&path, LoadOptions { quantize: true, ..LoadOptions::default() }).unwrap();
        let (packed, wide) = (load(), load());
        assert!(packed.parameters().iter().any(|p| p.tensor().dtype() == DType::Nf4), "{case}");
        wide.to_dtype(DType::F32).unwrap();
        let kinds = [linear_kinds().swap_remove(0), stream_kinds(packed.config().d_model).swap_remove(0)];
        for (kind, config) in kinds {
            let both = [&packed, &wide].map(|model| gradients(model, &shaken(&config, model)));
            each_close(&format!("{kind} on {case}"), &both, 1e-4);
        }
    }
}

/// As `AutoModel` saves them: names without the prefix, and of old versions the rotary frequencies.
#[test]
fn checkpoints_of_the_model_alone() {
    for &case in CASES.iter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        init_model(model(case, &usual()).config(), 7, InitType::F32, &path).unwrap();
        let load = || Decoder::load(&path, LoadOptions::default()).unwrap();
        let whole = load();
        let names = &whole.config().family.names;
        let none = AdapterSet::none(&whole.placement());
        let expected = logits(&whole, &none);
        let file = path.join("model.safetensors");
        let bytes = fs::read(&file).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let zeros = [0; 8];
        let frequencies = TensorView::new(Dtype::F32, vec![2], &zeros).unwrap();
        let rotary = matches!(whole.config().positions, Positions::Rotary(_));
        let more = ["rotary_emb.inv_freq", "layers.0.self_attn.rotary_emb.inv_freq"].map(str::to_owned);
        let more = more.into_iter().filter(|_| rotary).map(|name| (name, frequencies.clone()));
        let is_head = |name: &str| name.starts_with(names.head);
        let bare = |name: &str| if is_head(name) { name.to_owned() } else { name.replacen(names.prefix, "", 1) };
        let own = tensors.iter().map(|(name, view)| (bare(name), view));
        fs::write(&file, safetensors::serialize(own.chain(more), None).unwrap()).unwrap();
        assert_eq!(logits(&load(), &none), expected, "{case}");
    }
}

/// transformers reads it outside `rope_scaling`, and there wins over what stands inside.
#[test]
fn the_original_length_of_phi3() {
    let scaling = |inside: Value| json!({"type": "longrope", "short_factor": [1.0, 1.0], "long_factor": [2.0, 4.0], "original_max_position_embeddings": inside});
    let config = |original: Value, inside: Value| {
        let json = json!({
            "model_type": "phi3", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 2, "max_position_embeddings": 256, "original_max_position_embeddings": original,
            "rope_scaling": scaling(inside),
        });
        DecoderConfig::parse(json.to_string().as_bytes()).unwrap()
    };
    let small = config(json!(4), Value::Null);
    assert_eq!(small, config(json!(4), json!(64)));
    assert_ne!(small, config(json!(64), json!(4)));
    let written = small.to_json("float32");
    assert_eq!(written["original_max_position_embeddings"], 4);
    assert_eq!(DecoderConfig::parse(written.to_string().as_bytes()).unwrap(), small);
}

#[test]
fn adapters_on_a_gpu() {
    let Some(device) = gpu::for_tests().map(Device::Gpu) else { return };
    for &case in CASES.iter() {
        let mut kinds = linear_kinds();
        kinds.extend(stream_kinds(model(case, &usual()).config().d_model));
        for (kind, config) in kinds {
            let both = [device, Device::Cpu].map(|device| {
                let model = model(case, &usual());
                let adapters = shaken(&config, &model);
                model.to_device(device).unwrap();
                adapters.to_device(device).unwrap();
                gradients(&model, &adapters)
            });
            each_close(&format!("{kind} on {case}"), &both, 1e-3);
        }
    }
}
