//! Model directories: what is read, what is refused and how it is said, quantising and random models on disk.

use hankel_core::{CpuStorage, DType, Storage, Tensor, no_grad};
use hankel_models::decoder::{
    InitType, LoadOptions, Positions, Rope, RopeScaling, families, init_model, merge_model, quantize_model,
};
use hankel_models::weights::ModelFiles;
use hankel_models::{AdapterSet, Backbone, Decoder, DecoderConfig, Pass};
use hankel_ops::linear;
use hankel_tests::golden::Golden;
use proptest::prelude::*;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/golden")).join(name)
}

fn copy(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(golden(name)).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

fn load(folder: &Path) -> Result<Decoder, String> {
    Decoder::load(folder, LoadOptions::default()).map_err(|e| e.to_string())
}

#[track_caller]
fn refused(folder: &Path, expected: &[&str]) {
    let message = load(folder).err().expect("a model that should be refused");
    for part in expected {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

fn logits(model: &Decoder) -> Vec<f64> {
    let ids = (0..20).map(|i| i * 37 % model.vocabulary() as u32).collect();
    let tokens = Tensor::from_vec(ids, [1, 20]).unwrap();
    let adapters = AdapterSet::none(&model.placement());
    no_grad(|| model.logits(&tokens, &adapters, &mut Pass::evaluation())).unwrap().to_f64_vec()
}

/// Rewrites the only weights file: `change` gets every tensor's name, type, shape and bytes.
fn rewrite(folder: &Path, change: impl FnOnce(&mut Vec<(String, Dtype, Vec<usize>, Vec<u8>)>)) {
    let path = folder.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<_> =
        file.iter().map(|(n, v)| (n.to_owned(), v.dtype(), v.shape().to_vec(), v.data().to_vec())).collect();
    change(&mut tensors);
    let views = tensors.iter().map(|(n, t, s, b)| (n.as_str(), TensorView::new(*t, s.clone(), b).unwrap()));
    fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// Rewrites the header of a safetensors file without touching the data.
fn rewrite_header(path: &Path, change: impl FnOnce(&mut Value)) {
    let bytes = fs::read(path).unwrap();
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    change(&mut header);
    let text = serde_json::to_vec(&header).unwrap();
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text);
    out.extend(&bytes[8 + len..]);
    fs::write(path, out).unwrap();
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, serde_json::to_vec(&value).unwrap()).unwrap();
}

const SOME: &str = "model.layers.1.mlp.up_proj.weight";

#[test]
fn weights_are_borrowed_from_the_file() {
    for name in ["mistral/window/hf", "mistral/window/hf_bf16", "mistral/window/hf_sharded"] {
        let model = load(&golden(name)).unwrap();
        for parameter in model.parameters() {
            let tensor = parameter.tensor();
            let storage = tensor.cpu_storage("test").unwrap();
            let widened = tensor.dtype() == DType::F32 && name.ends_with("bf16");
            assert_eq!(storage.is_borrowed(), !widened, "{name} {}", parameter.name());
        }
    }
}

#[test]
fn trained_weights_leave_the_file_alone() {
    let folder = copy("mistral/window/hf");
    let before = fs::read(folder.path().join("model.safetensors")).unwrap();
    let model = load(folder.path()).unwrap();
    let parameter = model.head();
    parameter.set_trainable(true).unwrap();
    parameter.update(|value| value.data_mut::<f32>().unwrap().fill(1.0));
    assert!(parameter.tensor().to_f64_vec().iter().all(|&x| x == 1.0));
    assert_eq!(fs::read(folder.path().join("model.safetensors")).unwrap(), before);
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let change = |change: &dyn Fn(&mut Vec<(String, Dtype, Vec<usize>, Vec<u8>)>), expected: &[&str]| {
        let folder = copy("mistral/window/hf");
        rewrite(folder.path(), |tensors| change(tensors));
        refused(folder.path(), expected);
    };
    let at = |tensors: &[(String, Dtype, Vec<usize>, Vec<u8>)]| tensors.iter().position(|t| t.0 == SOME).unwrap();
    change(&|t| drop(t.remove(at(t))), &[SOME, "is missing"]);
    change(
        &|t| {
            let mut extra = t[at(t)].clone();
            extra.0 = "model.layers.3.mlp.up_proj.weight".to_owned();
            t.push(extra);
        },
        &["model.layers.3.mlp.up_proj.weight", "does not belong"],
    );
    change(
        &|t| {
            let i = at(t);
            t[i].2.reverse();
        },
        &[SOME, "[64, 160]", "[160, 64]"],
    );
    change(
        &|t| {
            let i = at(t);
            t[i].1 = Dtype::I32;
        },
        &[SOME, "I32", "BF16"],
    );
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        change(
            &|t| {
                let i = at(t);
                t[i].3[400..404].copy_from_slice(&bad.to_le_bytes());
            },
            &[SOME, "not finite", "element 100"],
        );
    }
}

/// What nobody computes from a model is not written to another, which would lack a part of it without a word.
#[test]
fn files_that_load_refuses_are_not_rewritten() {
    let folder = copy("mistral/window/hf");
    edit(&folder.path().join("config.json"), |config| config["tie_word_embeddings"] = json!(true));
    refused(folder.path(), &["lm_head.weight differs from", "tie_word_embeddings"]);
    let to = folder.path().join("to");
    let adapters = AdapterSet::none(&load(&golden("mistral/window/hf")).unwrap().placement());
    let errors = [
        quantize_model(folder.path(), &to, true).map(drop),
        merge_model(&adapters, folder.path(), &to, None).map(drop),
    ];
    for error in errors {
        let message = error.unwrap_err().to_string();
        assert!(message.contains("lm_head.weight differs from"), "{message}");
        assert!(!to.exists());
    }
}

#[test]
fn half_precision_values_that_are_not_finite_are_found() {
    for bad in [half::bf16::NAN, half::bf16::INFINITY, half::bf16::NEG_INFINITY] {
        let folder = copy("mistral/window/hf_bf16");
        rewrite(folder.path(), |tensors| {
            let tensor = tensors.iter_mut().find(|t| t.0 == SOME).unwrap();
            tensor.3[200..202].copy_from_slice(&bad.to_le_bytes());
        });
        refused(folder.path(), &[SOME, "not finite", "element 100"]);
    }
    // The largest finite values are numbers like any other.
    let folder = copy("mistral/window/hf_bf16");
    rewrite(folder.path(), |tensors| {
        let tensor = tensors.iter_mut().find(|t| t.0 == SOME).unwrap();
        tensor.3[200..202].copy_from_slice(&half::bf16::MAX.to_le_bytes());
    });
    load(folder.path()).unwrap();
}

#[test]
fn damaged_files_are_refused() {
    let folder = copy("mistral/window/hf");
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    for len in [0, 5, 100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..len]).unwrap();
        refused(folder.path(), &["model.safetensors", "cut off"]);
    }
    fs::write(&path, [&bytes[..], b"x"].concat()).unwrap();
    refused(folder.path(), &["model.safetensors", "added to"]);
    fs::write(&path, &bytes).unwrap();
    rewrite_header(&path, |header| {
        let end = header[SOME]["data_offsets"][1].as_u64().unwrap();
        header[SOME]["data_offsets"][1] = json!(end + (1_u64 << 40));
    });
    assert!(load(folder.path()).is_err());
    fs::write(&path, &bytes).unwrap();
    rewrite_header(&path, |header| {
        let offsets = header["model.norm.weight"]["data_offsets"].clone();
        let first = offsets[0].as_u64().unwrap();
        header["model.norm.weight"]["data_offsets"] = json!([first - 4, offsets[1].as_u64().unwrap() - 4]);
    });
    refused(folder.path(), &["overlap"]);
    fs::remove_file(&path).unwrap();
    refused(folder.path(), &["model.safetensors", "not a model directory"]);
    fs::write(folder.path().join("pytorch_model.bin"), b"x").unwrap();
    refused(folder.path(), &["model.safetensors", "files of PyTorch (.bin) are not read"]);
    fs::write(folder.path().join("model-00001-of-00002.safetensors"), b"x").unwrap();
    refused(folder.path(), &["model.safetensors.index.json", "the index of its shards is missing"]);
    fs::create_dir(&path).unwrap();
    assert!(load(folder.path()).is_err());
}

#[test]
fn an_index_names_files_in_the_directory_and_agrees_with_them() {
    const INDEX: &str = "model.safetensors.index.json";
    let with = |change: &dyn Fn(&mut Value), expected: &[&str]| {
        let folder = copy("mistral/window/hf_sharded");
        edit(&folder.path().join(INDEX), |index| change(index));
        refused(folder.path(), expected);
    };
    for name in ["../x", "/etc/passwd", "a/../b", "..", ".", "", "sub/x.safetensors", "..\\x"] {
        with(&|index| index["weight_map"][SOME] = json!(name), &[INDEX, "cannot be used as the name of a file"]);
    }
    with(&|index| index["weight_map"][SOME] = json!("model-00009-of-00003.safetensors"), &["model-00009-of-00003"]);
    with(&|index| drop(index["weight_map"].as_object_mut().unwrap().remove(SOME)), &[INDEX, SOME, "not in the index"]);
    with(&|index| index["weight_map"]["x.weight"] = json!("model-00001-of-00003.safetensors"), &["x.weight", "is not"]);
    with(&|index| *index = json!({"weights": []}), &[INDEX, "weight_map"]);
    let folder = copy("mistral/window/hf_sharded");
    fs::remove_file(folder.path().join("model-00002-of-00003.safetensors")).unwrap();
    refused(folder.path(), &["model-00002-of-00003.safetensors"]);
    // The same tensor in two shards.
    let folder = copy("mistral/window/hf_sharded");
    let twice = folder.path().join("model-00002-of-00003.safetensors");
    fs::copy(folder.path().join("model-00001-of-00003.safetensors"), twice).unwrap();
    refused(folder.path(), &["the index says"]);
}

/// A directory that was once sharded may still have its index.
#[test]
fn an_index_beside_the_whole_model_is_not_read() {
    const INDEX: &str = "model.safetensors.index.json";
    let folder = copy("mistral/window/hf");
    fs::copy(golden("mistral/window/hf_sharded").join(INDEX), folder.path().join(INDEX)).unwrap();
    let expected = logits(&load(&golden("mistral/window/hf")).unwrap());
    assert_eq!(logits(&load(folder.path()).unwrap()), expected);
}

fn turned(theta: f64) -> Positions {
    Positions::Rotary(Rope { theta, ..Rope::default() })
}

#[test]
fn configurations_in_either_spelling() {
    let old = DecoderConfig::load(&golden("mistral/window/hf_bf16")).unwrap();
    let new = DecoderConfig::load(&golden("mistral/window/hf")).unwrap();
    assert_eq!(DecoderConfig { init_std: 0.1, ..old.clone() }, new);
    assert_eq!((old.head_dim, old.sliding_window, old.positions.clone()), (8, Some(16), turned(1e4)));
    let explicit = DecoderConfig::load(&golden("mistral/headdim/hf")).unwrap();
    assert_eq!((explicit.head_dim, explicit.sliding_window, explicit.positions.clone()), (16, None, turned(1e6)));
    assert_eq!(explicit.norm_eps, 1e-6);
    for config in [DecoderConfig::mistral_7b(), old, explicit] {
        let written = serde_json::to_vec(&config.to_json("bfloat16")).unwrap();
        assert_eq!(DecoderConfig::parse(&written).unwrap(), config);
    }
    assert_eq!(DecoderConfig::mistral_7b().parameters(), 7_241_732_096);
    let base = DecoderConfig::mistral_7b().to_json("bfloat16");
    let parsed = |key: &str, value: Value| {
        let mut json = base.clone();
        json[key] = value;
        DecoderConfig::parse(&serde_json::to_vec(&json).unwrap())
    };
    let llama = parsed("model_type", json!("llama")).unwrap();
    assert_eq!((llama.family, llama.sliding_window), (&families::LLAMA, None));
    assert_eq!(parsed("head_dim", Value::Null).unwrap().head_dim, 128);
    assert_eq!(parsed("num_key_value_heads", Value::Null).unwrap().kv_heads, 32);
    let nf4_in = |storage: &str| {
        json!({
            "quant_method": "bitsandbytes",
            "load_in_4bit": true,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_quant_storage": storage,
        })
    };
    assert!(parsed("quantization_config", nf4_in("uint8")).is_ok());
    let wrong = [
        ("model_type", json!("mixtral")),
        ("hidden_act", json!("gelu")),
        ("attention_bias", json!(true)),
        ("rope_scaling", json!({"type": "dynamic", "factor": 2.0})),
        ("num_local_experts", json!(8)),
        ("partial_rotary_factor", json!(0.5)),
        ("rope_parameters", json!({"rope_type": "llama3", "rope_theta": 1e4})),
        ("rope_parameters", json!({"rope_type": "default", "rope_theta": 2e4})),
        ("num_key_value_heads", json!(5)),
        ("num_hidden_layers", json!(0)),
        ("hidden_size", json!(-3)),
        ("vocab_size", json!(1_u64 << 40)),
        ("head_dim", json!(7)),
        ("sliding_window", json!(0)),
        ("quantization_config", json!({"quant_method": "gptq"})),
        ("quantization_config", nf4_in("bfloat16")),
    ];
    for (key, value) in wrong {
        let message = parsed(key, value).expect_err(key);
        assert!(!message.is_empty());
    }
    assert!(parsed("model_type", json!("mixtral")).unwrap_err().contains("llama, mistral"));
    for (family, layers) in [("llama", 1e11), ("smollm3", 1e11), ("llama", 1e19)] {
        let mut hostile = base.clone();
        (hostile["model_type"], hostile["num_hidden_layers"]) = (json!(family), json!(layers as u64));
        assert!(
            DecoderConfig::parse(&serde_json::to_vec(&hostile).unwrap()).unwrap_err().contains("num_hidden_layers")
        );
    }
    // GPT-2's keys have other names; Gemma 2's released files have one that nothing reads.
    let deep = DecoderConfig::parse(br#"{"model_type": "gpt2", "n_layer": 16000000}"#).unwrap_err();
    assert!(deep.contains("num_hidden_layers = 16000000 is out of range"), "{deep}");
    let mut gemma = base.clone();
    (gemma["model_type"], gemma["sliding_window_size"]) = (json!("gemma2"), json!(4096));
    gemma["hidden_act"] = json!("gelu_pytorch_tanh");
    assert!(DecoderConfig::parse(&serde_json::to_vec(&gemma).unwrap()).is_ok());
    // What transformers saves from 4.43 on, and what it takes for keys that are not there.
    let both = json!({"rope_type": "linear", "type": "linear", "factor": 4.0});
    let older = json!({"type": "linear", "factor": 4.0});
    assert_eq!(parsed("rope_scaling", both).unwrap(), parsed("rope_scaling", older).unwrap());
    // Both spellings, as after an edit of what transformers 5 has saved: one of them would be passed over.
    let mut edited = base.clone();
    edited["rope_parameters"] = json!({"rope_type": "default", "rope_theta": base["rope_theta"]});
    edited["rope_scaling"] = json!({"rope_type": "linear", "factor": 4.0});
    let read = |json: &Value| DecoderConfig::parse(&serde_json::to_vec(json).unwrap());
    assert!(read(&edited).unwrap_err().contains("rope_parameters and rope_scaling"));
    edited["rope_scaling"] = json!({"type": "default"});
    assert!(read(&edited).is_ok());
    let without = |family: &str, key: &str| {
        let mut json = base.clone();
        json["model_type"] = json!(family);
        json.as_object_mut().unwrap().remove(key);
        DecoderConfig::parse(&serde_json::to_vec(&json).unwrap()).unwrap()
    };
    assert_eq!(without("mistral", "sliding_window").sliding_window, Some(4096));
    assert!(without("smollm3", "tie_word_embeddings").tied_embeddings);
    // Windows: how long they are, and which layers have them, where a file does not say.
    let sliding = |family: &str, keys: Value| {
        let mut json = base.clone();
        (json["model_type"], json["use_sliding_window"]) = (json!(family), json!(true));
        let map = json.as_object_mut().unwrap();
        map.remove("sliding_window");
        map.extend(keys.as_object().unwrap().clone());
        let config = DecoderConfig::parse(&serde_json::to_vec(&json).unwrap()).unwrap();
        let layers: Vec<usize> = (0..config.layers).filter(|&layer| config.sliding_layers.contains(layer)).collect();
        (config.sliding_window, layers)
    };
    for family in ["qwen2", "qwen3"] {
        assert_eq!(sliding(family, json!({})), (Some(4096), vec![28, 29, 30, 31]));
        assert_eq!(sliding(family, json!({"max_window_layers": 30})), (Some(4096), vec![30, 31]));
        assert_eq!(sliding(family, json!({"sliding_window": null})).0, None);
    }
    let smollm3 = json!({"sliding_window": 8, "max_window_layers": 2, "no_rope_layer_interval": 12});
    assert_eq!(sliding("smollm3", smollm3), (Some(8), vec![11, 23]));
    assert_eq!(sliding("smollm3", json!({})).0, None);
    // The factor that a file gives goes before the one of its lengths, 8.
    let magnitude = |factor: Value| {
        let divisors = vec![1.0; 64];
        let scaling = json!({
            "rope_type": "longrope",
            "short_factor": divisors,
            "long_factor": divisors,
            "original_max_position_embeddings": 4096,
            "factor": factor,
        });
        match parsed("rope_scaling", scaling).unwrap().positions {
            Positions::Rotary(Rope { scaling: RopeScaling::LongRope { magnitude, .. }, .. }) => magnitude,
            other => panic!("{other:?}"),
        }
    };
    for (factor, expected) in [(Value::Null, 8.0_f64), (json!(32.0), 32.0), (json!(0.5), 1.0)] {
        let expected = (1.0 + expected.ln() / 4096_f64.ln()).sqrt();
        assert!((magnitude(factor) - expected).abs() < 1e-12, "{expected}");
    }
}

#[test]
fn a_tied_head_is_the_embedding() {
    let folder = copy("mistral/window/hf");
    let config = folder.path().join("config.json");
    edit(&config, |config| config["tie_word_embeddings"] = json!(true));
    refused(folder.path(), &["lm_head.weight", "differs"]);
    rewrite(folder.path(), |tensors| tensors.retain(|t| t.0 != "lm_head.weight"));
    let tied = load(folder.path()).unwrap();
    assert_eq!(tied.head().name(), "model.embed_tokens.weight");
    // Computed before the file changes, which is what the weights are read from.
    let (count, expected) = (tied.parameters().len(), logits(&tied));
    drop(tied);
    rewrite(folder.path(), |tensors| {
        let mut head = tensors.iter().find(|t| t.0 == "model.embed_tokens.weight").unwrap().clone();
        head.0 = "lm_head.weight".to_owned();
        tensors.push(head);
    });
    let stored_twice = load(folder.path()).unwrap();
    assert_eq!(stored_twice.parameters().len(), count);
    assert_eq!(logits(&stored_twice), expected);
}

/// It is compared by its numbers, whatever types both are stored in.
#[test]
fn a_tied_head_may_be_stored_in_another_type() {
    let folder = copy("mistral/window/hf_bf16");
    edit(&folder.path().join("config.json"), |config| config["tie_word_embeddings"] = json!(true));
    let stored = |x: f32, dtype: Dtype| {
        if dtype == Dtype::F32 { x.to_le_bytes().to_vec() } else { half::bf16::from_f32(x).to_le_bytes().to_vec() }
    };
    // The embedding and a head of its values, but for the first.
    let load_with = |element: f32, head: f32, dtype: Dtype| {
        let other = copy("mistral/window/hf_bf16");
        fs::copy(folder.path().join("config.json"), other.path().join("config.json")).unwrap();
        rewrite(other.path(), |tensors| {
            tensors.retain(|t| t.0 != "lm_head.weight");
            let embedding = tensors.iter_mut().find(|t| t.0 == "model.embed_tokens.weight").unwrap();
            embedding.3[..2].copy_from_slice(&stored(element, Dtype::BF16));
            let elements = embedding.3.as_chunks::<2>().0.iter().map(|b| half::bf16::from_le_bytes(*b).to_f32());
            let elements = elements.enumerate().map(|(i, x)| if i == 0 { head } else { x });
            let bytes: Vec<u8> = elements.flat_map(|x| stored(x, dtype)).collect();
            let shape = embedding.2.clone();
            tensors.push(("lm_head.weight".to_owned(), dtype, shape, bytes));
        });
        load(other.path()).map(drop)
    };
    for dtype in [Dtype::F32, Dtype::BF16] {
        load_with(0.5, 0.5, dtype).unwrap();
        // Zeros of either sign are one number.
        load_with(0.0, -0.0, dtype).unwrap();
        let message = load_with(0.5, 0.75, dtype).unwrap_err();
        assert!(message.contains("lm_head.weight differs from model.embed_tokens.weight"), "{message}");
    }
}

#[test]
fn a_layer_quantised_by_bitsandbytes() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(golden("quant4/bnb_linear4bit.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let golden = Golden::read("quant4/bnb_linear4bit_expected");
    let mut files = ModelFiles::open(folder.path()).unwrap();
    let weight = files.take("proj.weight", &[32, 128]).unwrap();
    files.finish().unwrap();
    assert_eq!(weight.dtype(), DType::Nf4);
    golden.check("dequant", DType::F32, &weight.to_f64_vec());
    let y = linear(&golden.tensor("x", DType::F32), &weight, None).unwrap();
    golden.check("y", DType::F32, &y.to_f64_vec());
    // Quantising the former matrix gives the file's codes and scales.
    let again = linear::nf4::quantize(&golden.tensor("weight", DType::BF16), true).unwrap();
    assert_eq!(again.nf4().unwrap().packed(), weight.nf4().unwrap().packed());
    assert_eq!(again.to_f64_vec(), weight.to_f64_vec());
    let mut files = ModelFiles::open(folder.path()).unwrap();
    let message = files.take("proj.weight", &[64, 64]).unwrap_err().to_string();
    assert!(message.contains("[32, 128]") && message.contains("[64, 64]"), "{message}");
}

#[test]
fn quantised_directories_load_and_compute_as_quantising_on_the_fly() {
    let folder = tempfile::tempdir().unwrap();
    // GPT-2 has one matrix for queries, keys and values, and files hold it transposed until it is in 4 bits.
    for (name, matrices) in [("mistral/window/hf", 7), ("mistral/headdim/hf_bf16", 7), ("families/gpt2/hf", 4)] {
        for double in [true, false] {
            let to = folder.path().join(format!("{}-{double}", name.replace('/', "-")));
            let report = quantize_model(&golden(name), &to, double).unwrap();
            let stored = load(&to).unwrap();
            assert_eq!(report.matrices, matrices * stored.config().layers);
            if double {
                let quantized =
                    Decoder::load(&golden(name), LoadOptions { quantize: true, ..LoadOptions::default() }).unwrap();
                assert_eq!(logits(&stored), logits(&quantized), "{name}");
                // What is quantised already stays as it is.
                let again = Decoder::load(&to, LoadOptions { quantize: true, ..LoadOptions::default() }).unwrap();
                assert_eq!(logits(&again), logits(&stored), "{name}");
            }
            let nf4 = stored.parameters().iter().filter(|p| p.tensor().dtype() == DType::Nf4).count();
            assert_eq!(nf4, report.matrices);
            for parameter in stored.parameters().iter().filter(|p| p.tensor().dtype() == DType::Nf4) {
                let tensor = parameter.tensor();
                let Storage::Cpu(CpuStorage::Nf4(matrix)) = tensor.storage() else { panic!("4-bit floats") };
                assert!(matrix.is_borrowed(), "{}", parameter.name());
            }
            assert!(quantize_model(&to, &folder.path().join("twice"), true).is_err());
            assert!(!folder.path().join("twice").exists());
            assert!(quantize_model(&golden(name), &to, double).unwrap_err().to_string().contains("already exists"));
        }
    }
}

#[test]
fn a_quantised_model_keeps_its_chat_template_and_no_code() {
    let model = copy("mistral/window/hf");
    fs::write(model.path().join("chat_template.jinja"), "{{ messages[0]['content'] }}").unwrap();
    let to = model.path().join("quantised");
    // What names Python files that are not copied would keep transformers from loading it.
    edit(&model.path().join("config.json"), |config| config["auto_map"] = json!({"AutoConfig": "own.Config"}));
    quantize_model(model.path(), &to, false).unwrap();
    assert_eq!(fs::read_to_string(to.join("chat_template.jinja")).unwrap(), "{{ messages[0]['content'] }}");
    assert!(!fs::read_to_string(to.join("config.json")).unwrap().contains("auto_map"));
}

#[test]
fn quantising_says_which_weight_is_not_finite() {
    let folder = copy("mistral/window/hf");
    rewrite(folder.path(), |tensors| {
        let tensor = tensors.iter_mut().find(|t| t.0 == SOME).unwrap();
        tensor.3[400..404].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    let to = folder.path().join("out");
    let message = quantize_model(folder.path(), &to, true).unwrap_err().to_string();
    assert!(message.contains(SOME) && message.contains("not finite"), "{message}");
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn random_models_on_disk_are_those_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let config = DecoderConfig {
        vocabulary: 300,
        d_model: 24,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 6,
        d_ff: 40,
        sliding_window: Some(7),
        init_std: 0.3,
        ..DecoderConfig::mistral_7b()
    };
    let memory = Decoder::new(&config, 5).unwrap();
    let path = folder.path().join("f32");
    init_model(&config, 5, InitType::F32, &path).unwrap();
    let stored = load(&path).unwrap();
    assert_eq!(stored.config(), &config);
    assert_eq!(logits(&stored), logits(&memory));
    let path = folder.path().join("bf16");
    init_model(&config, 5, InitType::Bf16, &path).unwrap();
    let rounded = load(&path).unwrap();
    for (a, b) in memory.parameters().iter().zip(rounded.parameters()) {
        let expected = a.tensor().to_dtype(DType::BF16).unwrap().to_f64_vec();
        assert_eq!(expected, b.tensor().to_f64_vec(), "{}", a.name());
        assert_eq!(a.name(), b.name());
    }
    let all: Vec<f64> = memory.head().tensor().to_f64_vec();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let variance = all.iter().map(|x| x * x).sum::<f64>() / all.len() as f64;
    assert!(mean.abs() < 0.015 && (variance.sqrt() / 0.3 - 1.0).abs() < 0.03, "{mean} {variance}");
    assert!(init_model(&config, 5, InitType::F32, &path).unwrap_err().to_string().contains("already exists"));
}

proptest! {
    #![proptest_config(hankel_tests::cases(300))]
    /// Whatever is done to the bytes of a file, reading it ends with a model or an error.
    #[test]
    fn damaged_bytes_never_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
                                 cut in prop::option::of(any::<prop::sample::Index>()), which in 0_usize..4) {
        let (name, file) = [
            ("mistral/headdim/hf", "config.json"),
            ("mistral/headdim/hf", "model.safetensors"),
            ("mistral/window/hf_sharded", "model.safetensors.index.json"),
            ("bnb", "model.safetensors"),
        ][which];
        let folder = if name == "bnb" {
            let folder = tempfile::tempdir().unwrap();
            fs::copy(golden("quant4/bnb_linear4bit.safetensors"), folder.path().join(file)).unwrap();
            folder
        } else {
            copy(name)
        };
        let path = folder.path().join(file);
        let mut bytes = fs::read(&path).unwrap();
        // The headers are where damage is interesting.
        let reach = bytes.len().min(4000);
        for (index, byte) in edits {
            bytes[index.index(reach)] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&path, bytes).unwrap();
        if name == "bnb" {
            if let Ok(mut files) = ModelFiles::open(folder.path()) {
                let _ = files.take("proj.weight", &[32, 128]).map(|weight| weight.to_f64_vec());
            }
        } else {
            let _ = load(folder.path());
        }
    }
}
