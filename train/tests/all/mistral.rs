//! Mistral behind the command line: training, evaluation, resumption, and what is refused.

use crate::common::{Place, collect_losses};
use hankel_models::adapters::{Hrm, HrmConfig, HrmPreset};
use hankel_models::decoder::{InitType, families, init_model};
use hankel_models::{AdapterConfig, AdapterSet, DecoderConfig};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A model of bytes, with grouped queries and a window.
pub fn small() -> DecoderConfig {
    DecoderConfig {
        family: &families::MISTRAL,
        vocabulary: 256,
        d_model: 16,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        d_ff: 24,
        context: 64,
        sliding_window: Some(8),
        init_std: 0.3,
        ..DecoderConfig::mistral_7b()
    }
}

const CONFIG: &str = r#"
name = "small"
seed = 3

[task]
kind = "bytes"
path = "text"
length = 24
train_sequences = 64
validation_sequences = 8

[backbone]
kind = "mistral"
model = "model"

[train]
steps = 60
batch_size = 4
lr = 1e-2

[[adapter]]
kind = "hrm"
state_dim = 4
truncate = { order = 2 }

[[adapter]]
kind = "lora"
rank = 2
targets = ["q_proj", "v_proj"]
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("text", "the quick brown fox jumps over the lazy dog; ".repeat(60));
    init_model(&small(), 1, InitType::Bf16, &place.path("model")).unwrap();
    place
}

#[test]
fn adapters_are_trained_evaluated_and_resumed() {
    let place = place();
    let before = place.snapshot("model");
    place.fit(CONFIG, "run", &[]);
    assert_eq!(place.snapshot("model"), before, "the model was changed");
    assert!(!place.path("run/backbone").exists());
    let result: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(place.path("run/result.json")).unwrap()).unwrap();
    assert_eq!(result["backbone"]["kind"], "decoder");
    assert_eq!(result["backbone"]["source"], "model");
    assert_eq!(result["backbone"]["parameters"], small().parameters());
    assert_eq!(result["rows"].as_array().unwrap().len(), 3);

    let scores = |adapter: &str| {
        let finished = place.run(&["eval", "run", "--json", "--adapter", adapter]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let rows: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
        rows[0]["scores"].clone()
    };
    for (row, adapter) in ["hrm", "hrm-order-2", "lora"].iter().enumerate() {
        assert_eq!(scores(adapter), result["rows"][row]["validation"], "{adapter}");
    }
    let loss = |scores: &serde_json::Value| scores["metrics"]["loss"].as_f64().unwrap();
    let untrained = loss(&scores("none"));
    for row in [0, 2] {
        let trained = loss(&result["rows"][row]["validation"]);
        assert!(trained < untrained - 0.1, "row {row}: {trained}, untrained {untrained}");
    }
    let again = place.run(&["fit", "--out", "run", "--resume"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert_eq!(scores("lora"), result["rows"][2]["validation"]);

    let generated = place.run(&["generate", "run", "--adapter", "hrm", "--prompt", "the quick", "--length", "5"]);
    assert_eq!(generated.code, Some(0), "{}", generated.stderr);
    assert!(generated.stdout.starts_with("the quick"), "{}", generated.stdout);
}

#[test]
fn recompute_and_where_weights_are_kept_change_nothing_but_memory() {
    let place = place();
    let run = |out: &str, more: &[&str]| {
        place.fit(CONFIG, out, more);
        ["hrm", "lora"].map(|stage| collect_losses(&place, out, stage))
    };
    let plain = run("plain", &["--set", "train.steps=3"]);
    assert_eq!(run("again", &["--set", "train.steps=3", "--set", "backbone.recompute=true"]), plain);
    let quantized = run("nf4", &["--set", "train.steps=3", "--set", "backbone.quantize=nf4"]);
    assert!(quantized != plain);
    for (a, b) in quantized.iter().flatten().zip(plain.iter().flatten()) {
        assert!((a - b).abs() < 0.5, "{a} {b}");
    }
    // Operands of products, or inputs of layers that are kept, in 16 bits: nearly the same course.
    for change in ["precision=bf16", "backbone.kept_inputs=bf16"] {
        let rounded = run(change, &["--set", "train.steps=3", "--set", change]);
        assert!(rounded != plain);
        for (a, b) in rounded.iter().flatten().zip(plain.iter().flatten()) {
            assert!((a / b - 1.0).abs() < 5e-3, "{change}: {a} {b}");
        }
    }
    let dry = place.run(&["fit", "config.toml", "--dry-run"]);
    assert_eq!(dry.code, Some(0), "{}", dry.stderr);
    assert!(dry.stdout.contains("model = \"model\"") && dry.stdout.contains("mapped files"), "{}", dry.stdout);
}

#[test]
fn what_does_not_fit_is_refused() {
    let place = place();
    place.write("full.toml", CONFIG.to_owned() + "[[adapter]]\nkind = \"full\"\n");
    let parts = ["full.toml", "`adapter.full.kind` \"full\" trains every weight", "are held fixed"];
    place.run(&["fit", "full.toml", "--out", "run"]).refused(&parts);
    assert!(!place.path("run").exists());
    place.write("config.toml", CONFIG);
    let refused = |more: &[&str], parts: &[&str]| {
        let mut arguments = vec!["fit", "config.toml", "--out", "run"];
        arguments.extend(more.iter().flat_map(|change| ["--set", change]));
        place.run(&arguments).refused(parts);
        assert!(!place.path("run").exists());
    };
    refused(&["backbone.model=nowhere"], &["`backbone.model` cannot be used", "nowhere/config.json"]);
    refused(&["backbone.quantize=int3"], &["`backbone.quantize`", "nf4", "int3"]);
    refused(&["backbone.layers=3"], &["unknown key `backbone.layers`", "model, quantize, recompute"]);
    refused(&["pretrain.steps=3"], &["`pretrain` is not for `backbone.kind = \"decoder\"`"]);
    refused(&["backbone.kept_inputs=bf16", "backbone.recompute=false"], &["`backbone.kept_inputs` is for"]);
    refused(&["precision=f16"], &["`precision` cannot be used", "the CPU has f32 and bf16"]);
    let narrow = DecoderConfig { vocabulary: 255, ..small() };
    init_model(&narrow, 1, InitType::Bf16, &place.path("narrow")).unwrap();
    refused(&["backbone.model=narrow"], &["`backbone.model`", "vocabulary of 255", "256"]);

    // An adapter of another base: its layers, its width.
    place.fit(CONFIG, "base", &["--set", "train.steps=1"]);
    for (name, other, parts) in [
        ("short", DecoderConfig { layers: 1, ..small() }, ["layer 1", "1 layers"]),
        ("wide", DecoderConfig { d_model: 24, ..small() }, ["width 16", "24"]),
    ] {
        init_model(&other, 1, InitType::Bf16, &place.path(name)).unwrap();
        let model = format!("backbone.model={name}");
        let hrm = [model.as_str(), "adapter=[{kind=\"hrm\",path=\"base/adapters/hrm\"}]"];
        refused(&hrm, &["`adapter.hrm.path` cannot be used", parts[0], parts[1]]);
        let lora = [model.as_str(), "adapter=[{kind=\"lora\",path=\"base/adapters/lora\"}]"];
        refused(&lora, &["`adapter.lora.path` cannot be used", "q_proj"]);
    }
}

/// Reference data of the whole workspace.
fn shared(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(name)
}

type Arrays = BTreeMap<String, Vec<f64>>;

fn arrays(path: &Path) -> Arrays {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let values = |view: TensorView| match view.dtype() {
        Dtype::F32 => view.data().as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
        Dtype::F64 => view.data().as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
        Dtype::I64 => view.data().as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect(),
        other => panic!("{other:?}"),
    };
    file.tensors().into_iter().map(|(name, view)| (name, values(view))).collect()
}

/// Writes the integers of a golden case as the input of `train forward`.
fn write_tokens(place: &Place, case: &Path) {
    let bytes = fs::read(case).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let given = ["input_ids", "labels", "attention_mask"];
    let tensors = file.tensors().into_iter().filter(|(name, _)| given.contains(&name.as_str()));
    place.write("tokens.safetensors", safetensors::serialize(tensors, None).unwrap());
}

/// Runs `train forward` on a golden case and compares every tensor that both have; gives their names.
fn compare(model: &str, case: &str, more: &[&str]) -> Vec<String> {
    let place = Place::new();
    let case = shared(&format!("golden/{case}.safetensors"));
    write_tokens(&place, &case);
    let model = if Path::new(model).is_absolute() { model.into() } else { shared(&format!("golden/{model}")) };
    let mut arguments = vec!["forward", "--model", model.to_str().unwrap(), "--tokens", "tokens.safetensors"];
    arguments.extend(["-o", "new/out.safetensors", "--json"]);
    arguments.extend(more);
    let finished = place.run(&arguments);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let facts: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    let (found, expected) = (arrays(&place.path("new/out.safetensors")), arrays(&case));
    assert_eq!(facts["tensors"], found.len());
    let limits: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(case.with_extension("json")).unwrap()).unwrap();
    let mut compared = Vec::new();
    for (name, found) in &found {
        let Some(expected) = expected.get(name) else { continue };
        let limit = limits["tensors"][name]["tol_f32"].as_f64().unwrap();
        let scale = expected.iter().fold(0.0_f64, |m, x| m.max(x.abs())).max(1e-30);
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= limit * scale, "{name}: {found} for {expected}, limit {limit}");
        }
        compared.push(name.clone());
    }
    compared
}

#[test]
fn forward_writes_what_the_reference_library_computes() {
    let compared = compare("mistral/window/hf", "mistral/window/io", &["--gradients"]);
    for name in ["logits", "loss", "hidden.layer2", "hidden.final_norm", "grad.inputs_embeds", "grad.lm_head.weight"] {
        assert!(compared.contains(&name.to_owned()), "{name} is not among {compared:?}");
    }
    assert_eq!(compared.iter().filter(|name| name.starts_with("grad.")).count(), 3 * 9 + 4);
    assert_eq!(compare("mistral/headdim/hf_bf16", "mistral/headdim/io_bf16", &[]), ["logits", "loss"]);
    let padded = compare("mistral/window/hf", "mistral/window/io_padded", &["--gradients"]);
    assert!(padded.contains(&"grad.inputs_embeds".to_owned()) && padded.contains(&"loss".to_owned()), "{padded:?}");
}

#[test]
fn forward_with_adapters_and_in_four_bits() {
    for (case, quantize) in
        [("lora_qv", false), ("rslora", false), ("dora_qv", false), ("adalora", false), ("ia3", false), ("qlora", true)]
    {
        let adapter = shared(&format!("golden/peft/{case}/adapter"));
        let mut more = vec!["--gradients", "--adapter", adapter.to_str().unwrap()];
        more.extend(quantize.then_some(["--quantize", "nf4"]).iter().flatten());
        let compared = compare("mistral/window/hf", &format!("peft/{case}/io"), &more);
        assert!(compared.iter().any(|name| name == "logits"), "{case}: {compared:?}");
        let expected = arrays(&shared(&format!("golden/peft/{case}/io.safetensors")));
        let gradients = |names: &[String]| names.iter().filter(|name| name.starts_with("grad.")).count();
        assert_eq!(gradients(&compared), gradients(&expected.into_keys().collect::<Vec<_>>()), "{case}: {compared:?}");
    }
}

#[test]
fn a_merged_model_needs_no_adapter() {
    let place = Place::new();
    let merge = |adapter: &Path, model: &str, out: &str, more: &[&str]| {
        let model = shared(&format!("golden/mistral/window/{model}"));
        let mut arguments = vec!["merge", adapter.to_str().unwrap(), "--model", model.to_str().unwrap(), "-o", out];
        arguments.extend(more);
        place.run(&arguments)
    };
    let merged = |case: &str, model: &str, out: &str, more: &[&str]| -> serde_json::Value {
        let adapter = shared(&format!("golden/peft/{case}/adapter"));
        let finished = merge(&adapter, model, out, &[&["--json"], more].concat());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        serde_json::from_str(&finished.stdout).unwrap()
    };
    let dtype = |out: &str, key: &str| -> String {
        let config = fs::read_to_string(place.path(out).join("config.json")).unwrap();
        serde_json::from_str::<serde_json::Value>(&config).unwrap()[key].as_str().unwrap().to_owned()
    };
    for (case, tensors) in [("lora_qv", 6), ("lora_all", 21), ("rslora", 6), ("dora_qv", 6), ("ia3", 9)] {
        for model in ["hf", "hf_sharded"] {
            let out = format!("{case}-{model}");
            let facts = merged(case, model, &out, &[]);
            assert_eq!(facts["merged"], tensors);
            assert!(facts["largest_drift"]["relative"].as_f64().unwrap() < 1e-5, "{facts}");
            let path = place.path(&out);
            let compared = compare(path.to_str().unwrap(), &format!("peft/{case}/io"), &[]);
            assert_eq!(compared, ["logits", "loss"], "{case}");
        }
    }
    assert_eq!(dtype("lora_qv-hf", "dtype"), "float32");

    // 16 bits lose some of the update; 32 bits of a model in 16 do not.
    let facts = merged("adalora", "hf_bf16", "half", &[]);
    let drift = facts["largest_drift"]["relative"].as_f64().unwrap();
    assert!(drift > 1e-3 && drift < 0.5, "{facts}");
    assert_eq!(dtype("half", "torch_dtype"), "bfloat16");
    let facts = merged("adalora", "hf_bf16", "wide", &["--dtype", "f32"]);
    assert!(facts["largest_drift"]["relative"].as_f64().unwrap() < 1e-5, "{facts}");
    assert_eq!(dtype("wide", "torch_dtype"), "float32");
    merged("adalora", "hf", "rounded", &["--dtype", "bf16"]);
    assert_eq!(dtype("rounded", "dtype"), "bfloat16");

    let lora = shared("golden/peft/lora_qv/adapter");
    let told = merge(&lora, "hf_bf16", "told", &[]);
    assert!(told.stdout.contains("6 tensors merged; largest drift by rounding"), "{}", told.stdout);
    merge(&lora, "hf", "told", &[]).refused(&["told", "exists"]);
    let run = |arguments: &[&str]| place.run(&[&["merge"], arguments, &["-o", "none"]].concat());
    run(&["nowhere", "--model", "told"]).refused(&["nowhere does not exist"]);
    let quantized = place.run(&["quantize", "told", "-o", "nf4"]);
    assert_eq!(quantized.code, Some(0), "{}", quantized.stderr);
    run(&[lora.to_str().unwrap(), "--model", "nf4"]).refused(&["merge into the weights it was made from"]);
    init_model(&small(), 1, InitType::Bf16, &place.path("other")).unwrap();
    run(&[lora.to_str().unwrap(), "--model", "other"]).refused(&["cannot be merged into this model", "expected"]);
    let placement = small().placement();
    let hrm = AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 4, 16, 24));
    AdapterSet::new(&hrm, &placement, 0).unwrap().save(&place.path("hrm"), None).unwrap();
    run(&["hrm", "--model", "other"]).refused(&["an adapter of kind \"hrm\" cannot be merged", "state"]);
    assert!(!place.path("none").exists());
}

#[test]
fn forward_refuses_what_it_cannot_read() {
    let place = Place::new();
    let model = shared("golden/mistral/window/hf");
    let forward = |tensors: &[(&str, Dtype, Vec<usize>, Vec<u8>)]| {
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            (name.to_owned(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        place.write("tokens.safetensors", safetensors::serialize(views, None).unwrap());
        let model = model.to_str().unwrap();
        place.run(&["forward", "--model", model, "--tokens", "tokens.safetensors", "-o", "out.safetensors"])
    };
    let ids = |ids: &[i64]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
    let good = || ("input_ids", Dtype::I64, vec![1, 3], ids(&[1, 2, 3]));
    assert_eq!(forward(&[good()]).code, Some(0));
    fs::remove_file(place.path("out.safetensors")).unwrap();
    forward(&[("labels", Dtype::I64, vec![1, 3], ids(&[1, 2, 3]))]).refused(&["input_ids is missing"]);
    forward(&[("input_ids", Dtype::I64, vec![3], ids(&[1, 2, 3]))]).refused(&["[3], expected [batch, T]"]);
    forward(&[("input_ids", Dtype::F64, vec![1, 3], ids(&[1, 2, 3]))]).refused(&["F64, expected integers"]);
    forward(&[("input_ids", Dtype::I64, vec![1, 2], ids(&[1, -2]))]).refused(&["labels[0, 1] is -2"]);
    forward(&[("input_ids", Dtype::I64, vec![1, 2], ids(&[-2, 1]))]).refused(&["input_ids[0, 0] is -2"]);
    forward(&[("input_ids", Dtype::I64, vec![1, 2], ids(&[1, 512]))]).refused(&["512"]);
    forward(&[good(), ("labels", Dtype::I64, vec![1, 2], ids(&[1, 2]))]).refused(&["labels has shape [1, 2]"]);
    forward(&[good(), ("labels", Dtype::I64, vec![1, 3], ids(&[1, -100, -100]))]).refused(&["nothing to predict"]);
    let left = ("attention_mask", Dtype::I64, vec![1, 3], ids(&[0, 1, 1]));
    forward(&[good(), left]).refused(&["attention_mask, row 0", "padding must be at the end"]);
    forward(&[good(), ("other", Dtype::I64, vec![1], ids(&[1]))]).refused(&["other is none of"]);
    assert!(!place.path("out.safetensors").exists());
}

#[test]
fn a_pretrained_llama_tells_its_story() {
    let place = Place::new();
    let model = shared("fixtures/stories260k");
    let generate = |more: &[&str]| {
        let mut arguments = vec!["generate", "--model", model.to_str().unwrap(), "--temperature", "0"];
        arguments.extend(more);
        let finished = place.run(&arguments);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        finished.stdout
    };
    let expected = fs::read_to_string(model.join("expected_greedy_200.txt")).unwrap();
    // Without a prompt it begins with the token that begins a text.
    assert_eq!(generate(&["--max-tokens", "200"]), format!("{expected}\n"));
    let (begin, rest) = expected.split_at(expected.find(". ").unwrap() + 1);
    assert!(rest.len() > 20);
    assert_eq!(generate(&["--prompt", begin, "--max-tokens", "30", "--stop", ". "]).lines().count(), 1);
    let stopped = generate(&["--max-tokens", "200", "--stop", ". "]);
    assert_eq!(stopped, format!("{}\n", &begin[..begin.len() - 1]));
    let penalised = generate(&["--max-tokens", "100", "--repetition-penalty", "1.5"]);
    assert_ne!(penalised, generate(&["--max-tokens", "100"]));

    // The same model in 4 bits, and one of random weights.
    let model = model.to_str().unwrap();
    let finished = place.run(&["quantize", model, "-o", "nf4", "--json"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let facts: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(facts["matrices"], 5 * 7);
    let words = place.run(&["generate", "--model", "nf4", "--temperature", "0", "--max-tokens", "20"]);
    assert_eq!(words.code, Some(0), "{}", words.stderr);
    assert!(words.stdout.starts_with("Once upon a time"), "{}", words.stdout);
    let on_the_fly = ["generate", "--model", model, "--quantize", "nf4", "--temperature", "0", "--max-tokens", "20"];
    assert_eq!(place.run(&on_the_fly).stdout, words.stdout);
    place.run(&["quantize", model, "-o", "nf4"]).refused(&["nf4", "exists"]);
    place.run(&["quantize", "nf4", "-o", "again"]).refused(&["quantised already"]);
    place.run(&["quantize", "nowhere", "-o", "again"]).refused(&["nowhere does not exist"]);

    let random =
        ["init-model", &format!("{model}/config.json"), "-o", "random", "--seed", "7", "--dtype", "f32", "--json"];
    let finished = place.run(&random);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let facts: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!((&facts["parameters"], &facts["bytes"]), (&260_032.into(), &1_040_128.into()));
    place.run(&random).refused(&["random", "exists"]);
    place.run(&["generate", "--model", "random"]).refused(&["random has no tokenizer.json", "512 tokens"]);
    place.write("odd.json", "{\"model_type\": \"mixtral\"}");
    place.run(&["init-model", "odd.json", "-o", "odd"]).refused(&["odd.json"]);
    assert!(!place.path("odd").exists() && !place.path("again").exists());
}

#[test]
fn an_empty_prompt_needs_a_token_to_begin_with() {
    let place = place();
    place.run(&["generate", "--model", "model"]).refused(&["--prompt is missing", "at least one byte"]);
    place.run(&["generate", "--model", "model", "--prompt", "a", "--top-p", "0"]).refused(&["--top-p must be above 0"]);
    place.run(&["generate"]).refused(&["--model"]);
    // Neither does a tokenizer without such a token.
    fs::create_dir(place.path("words")).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(shared("fixtures/stories260k").join(name), place.path("words").join(name)).unwrap();
    }
    place.write("words/tokenizer_config.json", "{}");
    let tokenizer = fs::read_to_string(place.path("words/tokenizer.json")).unwrap();
    let mut tokenizer: serde_json::Value = serde_json::from_str(&tokenizer).unwrap();
    tokenizer["post_processor"] = serde_json::Value::Null;
    place.write("words/tokenizer.json", tokenizer.to_string());
    place.run(&["generate", "--model", "words"]).refused(&["--prompt is missing", "no token that begins a text"]);
}
