//! Every family against the library that defines its files: hidden states, logits, loss, gradients of every weight,
//! greedy continuations, and configurations in both spellings.

use hankel_core::{DType, Tensor};
use hankel_models::decoder::{DecoderConfig, InitType, LoadOptions, init_model_of};
use hankel_models::{Backbone, Decoder, Generator, Pass, Sampling, StepKey};
use hankel_tests::decoders::{FAMILIES, devices, everywhere, greedy, loss_of, none, values};
use hankel_tests::golden::Golden;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/families")).join(name)
}

fn load(name: &str, options: LoadOptions) -> Decoder {
    Decoder::load(&path(name).join("hf"), options).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A tensor's elements in the order of the family's files.
fn as_stored(model: &Decoder, name: &str, tensor: &Tensor) -> Vec<f64> {
    let data = values(tensor);
    let specs = model.config().tensors();
    let transposed = specs.iter().any(|spec| spec.name == name && spec.transposed);
    if !transposed {
        return data;
    }
    let (rows, width) = (tensor.shape()[0], tensor.shape()[1]);
    (0..width).flat_map(|j| (0..rows).map(move |i| (i, j))).map(|(i, j)| data[i * width + j]).collect()
}

#[test]
fn hidden_states_logits_and_loss() {
    for name in FAMILIES.iter() {
        let golden = Golden::read(&format!("families/{name}/io"));
        for (dtype, device) in everywhere() {
            let model = load(name, LoadOptions { device, ..LoadOptions::default() });
            model.to_dtype(dtype).unwrap();
            let adapters = none(&model);
            let tokens = golden.tokens("input_ids");
            let mut trace = Vec::new();
            let mut pass = Pass { trace: Some(&mut trace), ..Pass::default() };
            let hidden = model.hidden(&tokens, &adapters, &mut pass).unwrap();
            for (layer, hidden) in trace.iter().enumerate() {
                golden.check(&format!("hidden.layer{layer}"), DType::F32, &values(hidden));
            }
            assert_eq!(trace.len(), model.config().layers);
            // The head reads them divided.
            let divisor = model.config().logits_divisor;
            let hidden: Vec<f64> = values(&hidden).iter().map(|x| x * divisor).collect();
            golden.check("hidden.final_norm", DType::F32, &hidden);
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
    for name in FAMILIES.iter() {
        for (recompute, device) in [false, true].into_iter().flat_map(|r| devices().into_iter().map(move |d| (r, d))) {
            let golden = Golden::read(&format!("families/{name}/io"));
            let model = load(name, LoadOptions { device, ..LoadOptions::default() });
            model.parameters().iter().for_each(|p| p.set_trainable(true).unwrap());
            let adapters = none(&model);
            let pass = || Pass { recompute, ..Pass::training(StepKey { seed: 0, step: 0 }) };
            let tokens = golden.tokens("input_ids");
            let x = model.embed(&tokens).unwrap();
            let gradients = loss_of(&model, &adapters, &x, golden.values("input_ids"), &mut pass()).backward().unwrap();
            for parameter in model.parameters() {
                let gradient =
                    gradients.get(&parameter.tensor()).unwrap_or_else(|| panic!("{name}: {}", parameter.name()));
                let gradient = as_stored(&model, parameter.name(), gradient);
                golden.check(&format!("grad.{}", parameter.name()), DType::F32, &gradient);
            }
            let expected = golden.names().filter(|n| n.starts_with("grad.")).count() - 1;
            assert_eq!(model.parameters().len(), expected, "{name}");
            let x = x.detach().parameter().unwrap();
            let loss = loss_of(&model, &adapters, &x, golden.values("input_ids"), &mut pass());
            golden.check("grad.inputs_embeds", DType::F32, &values(loss.backward().unwrap().get(&x).unwrap()));
        }
    }
}

#[test]
fn greedy_continuations() {
    for (name, device) in FAMILIES.iter().flat_map(|name| devices().into_iter().map(move |d| (name, d))) {
        let golden = Golden::read(&format!("families/{name}/generate"));
        let model = load(name, LoadOptions { device, ..LoadOptions::default() });
        let prompt = golden.values("prompt_ids");
        let steps = golden.values("output_ids").len() - prompt.len();
        let (ids, logits) = greedy(&model, &none(&model), prompt, steps);
        golden.check("output_ids", DType::F32, &ids);
        golden.check("step_logits", DType::F32, &logits);
    }
}

#[test]
fn configurations_in_both_spellings_and_as_written() {
    for name in FAMILIES.iter() {
        let new = DecoderConfig::load(&path(name).join("hf")).unwrap();
        if let Ok(classic) = fs::read(path(name).join("config_classic.json")) {
            assert_eq!(DecoderConfig::parse(&classic).unwrap(), new, "{name}");
        }
        let written = serde_json::to_vec(&new.to_json("float32")).unwrap();
        assert_eq!(DecoderConfig::parse(&written).unwrap(), new, "{name}");
    }
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    for name in FAMILIES.iter() {
        let text = fs::read(path(name).join("hf/config.json")).unwrap();
        let base: Value = serde_json::from_slice(&text).unwrap();
        for (key, value) in [
            ("num_local_experts", json!(4)),
            ("n_routed_experts", json!(4)),
            ("partial_rotary_factor", json!(0.5)),
            ("attention_sinks", json!(true)),
            ("alibi", json!(true)),
            ("something_new", json!(1)),
        ] {
            let mut config = base.clone();
            config[key] = value;
            let refused = DecoderConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap_err();
            assert!(refused.contains(key), "{name}: {refused}");
        }
        let mut other = base.clone();
        other["model_type"] = json!("mixtral");
        let refused = DecoderConfig::parse(&serde_json::to_vec(&other).unwrap()).unwrap_err();
        assert!(refused.contains("mixtral") && refused.contains("smollm3"), "{refused}");
    }
}

/// Also what is inside the positions. Maps by the kind of layer are of Gemma 3 alone.
#[test]
fn what_is_not_understood_of_positions_is_refused_by_name() {
    let text = fs::read(path("llama_yarn").join("hf/config.json")).unwrap();
    let base: Value = serde_json::from_slice(&text).unwrap();
    let positions = base["rope_parameters"].clone();
    let with = |key: &str, value: Value| {
        let mut config = base.clone();
        config.as_object_mut().unwrap().remove("rope_parameters");
        config[key] = value;
        DecoderConfig::parse(&serde_json::to_vec(&config).unwrap())
    };
    for key in ["rope_scaling", "rope_parameters"] {
        let mut noted = positions.clone();
        for (name, value) in [
            ("attn_factor", json!(0.878)),
            ("finetuned", json!(true)),
            ("type", json!("yarn")),
            ("long_factor", json!([1.0])),
            ("_note", json!("x")),
            ("nothing", Value::Null),
        ] {
            noted[name] = value;
        }
        assert_eq!(with(key, noted.clone()).unwrap(), with(key, positions.clone()).unwrap());
        noted["something_new"] = json!(1);
        let refused = with(key, noted).unwrap_err();
        assert!(refused.contains(key) && refused.contains("something_new"), "{refused}");
        let refused = with(key, json!({ "full_attention": positions, "sliding_attention": positions })).unwrap_err();
        assert!(refused.contains("full_attention"), "{refused}");
    }
}

/// transformers reads no fraction there.
#[test]
fn the_scale_of_scores_of_gemma_is_a_whole_number() {
    for name in ["gemma2", "gemma3_text"] {
        let config = DecoderConfig::load(&path(name).join("hf")).unwrap();
        let written = config.to_json("float32");
        assert!(written["query_pre_attn_scalar"].is_u64(), "{name}: {}", written["query_pre_attn_scalar"]);
    }
}

/// The ids of special tokens change nothing here, and are those of the file that a random model is made of.
#[test]
fn random_models_keep_the_ids_of_special_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read(path("phi3").join("hf/config.json")).unwrap();
    let mut keys: Map<String, Value> = serde_json::from_slice(&text).unwrap();
    keys.insert("bos_token_id".to_owned(), json!(7));
    keys.insert("eos_token_id".to_owned(), json!([8, 9]));
    for (name, pad) in [("with", Some(json!(3))), ("null", Some(Value::Null)), ("without", None)] {
        keys.remove("pad_token_id");
        keys.extend(pad.clone().map(|pad| ("pad_token_id".to_owned(), pad)));
        let to = folder.path().join(name);
        init_model_of(&keys, &DecoderConfig::of_keys(&keys).unwrap(), 1, InitType::F32, &to).unwrap();
        let written: Map<String, Value> = serde_json::from_slice(&fs::read(to.join("config.json")).unwrap()).unwrap();
        assert_eq!((&written["bos_token_id"], &written["eos_token_id"]), (&json!(7), &json!([8, 9])), "{name}");
        assert_eq!(written.get("pad_token_id"), pad.as_ref(), "{name}");
    }
}

/// Keys of released files, and of those that write every default out.
#[test]
fn keys_that_change_nothing_are_read_over() {
    let with = |name: &str, key: &str, value: Value| {
        let text = fs::read(path(name).join("hf/config.json")).unwrap();
        let mut config: Value = serde_json::from_slice(&text).unwrap();
        config[key] = value;
        DecoderConfig::parse(&serde_json::to_vec(&config).unwrap())
    };
    for (name, key, value) in [
        ("gpt2", "n_special", json!(0)),
        ("gpt2", "predict_special_tokens", json!(true)),
        ("gpt2", "output_past", json!(true)),
        ("llama", "max_sequence_length", json!(2048)),
    ] {
        assert_eq!(with(name, key, value).unwrap(), DecoderConfig::load(&path(name).join("hf")).unwrap(), "{key}");
    }
    for (key, nothing, something) in [
        ("add_cross_attention", json!(false), json!(true)),
        ("is_encoder_decoder", json!(false), json!(true)),
        ("pruned_heads", json!({}), json!({"0": [1]})),
    ] {
        for name in FAMILIES.iter() {
            let expected = DecoderConfig::load(&path(name).join("hf")).unwrap();
            assert_eq!(with(name, key, nothing.clone()).unwrap(), expected, "{name}: {key}");
            let refused = with(name, key, something.clone()).unwrap_err();
            assert!(refused.contains(key), "{name}: {refused}");
        }
    }
}

/// Short sequences are turned by other angles; a text that grows past the border is read again.
#[test]
fn angles_by_the_length_of_the_sequence() {
    let model = load("phi3_longrope", LoadOptions::default());
    let golden = Golden::read("families/phi3_longrope/io_short");
    let tokens = golden.tokens("input_ids");
    let logits = model.logits(&tokens, &none(&model), &mut Pass::evaluation()).unwrap();
    golden.check("logits", DType::F32, &values(&logits));
    let adapters = none(&model);
    let prompt: Vec<u32> = (0..29).map(|i| 3 + i * 7 % 200).collect();
    let mut generator = Generator::new(&model, &adapters, &prompt, Sampling::default()).unwrap();
    for _ in 0..8 {
        let found = generator.logits().unwrap();
        let ids = generator.tokens().to_vec();
        let all = Tensor::from_vec(ids.clone(), [1, ids.len()]).unwrap();
        let whole = values(&model.logits(&all, &adapters, &mut Pass::evaluation()).unwrap());
        let last = &whole[whole.len() - found.len()..];
        let close = found.iter().zip(last).all(|(f, l)| (f64::from(*f) - l).abs() < 1e-4);
        assert!(close, "after {} tokens", ids.len());
        generator.step().unwrap();
    }
}

/// The released files of GPT-2 have no prefix, and hold masks.
#[test]
fn released_names_of_gpt2() {
    let golden = Golden::read("families/gpt2/io");
    let model = Decoder::load(&path("gpt2/hf_plain"), LoadOptions::default()).unwrap();
    let logits = model.logits(&golden.tokens("input_ids"), &none(&model), &mut Pass::evaluation()).unwrap();
    golden.check("logits", DType::F32, &values(&logits));
}
