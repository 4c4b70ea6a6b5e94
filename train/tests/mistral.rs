//! Mistral behind the command line: training, evaluation, resumption, and what is refused.

mod common;

use common::{Place, collect_losses};
use hankel_models::MistralConfig;
use hankel_models::mistral::{Family, InitType, init_model};
use std::fs;

/// A model of bytes, with grouped queries and a window.
pub fn small() -> MistralConfig {
    MistralConfig {
        family: Family::Mistral,
        vocabulary: 256,
        d_model: 16,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        d_ff: 24,
        context: 64,
        sliding_window: Some(8),
        rope_theta: 1e4,
        rms_norm_eps: 1e-5,
        tied_embeddings: false,
        init_std: 0.3,
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
    assert_eq!(result["backbone"]["kind"], "mistral");
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
    assert_eq!(run("kept", &["--set", "train.steps=3", "--set", "backbone.recompute=false"]), plain);
    let quantized = run("nf4", &["--set", "train.steps=3", "--set", "backbone.quantize=nf4"]);
    assert!(quantized != plain);
    for (a, b) in quantized.iter().flatten().zip(plain.iter().flatten()) {
        assert!((a - b).abs() < 0.5, "{a} {b}");
    }
    let dry = place.run(&["fit", "config.toml", "--dry-run"]);
    assert_eq!(dry.code, Some(0), "{}", dry.stderr);
    assert!(dry.stdout.contains("model = \"model\"") && dry.stdout.contains("mapped files"), "{}", dry.stdout);
}

#[test]
fn what_does_not_fit_is_refused() {
    let place = place();
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
    refused(&["pretrain.steps=3"], &["`pretrain` is not for `backbone.kind = \"mistral\"`"]);
    let narrow = MistralConfig { vocabulary: 255, ..small() };
    init_model(&narrow, 1, InitType::Bf16, &place.path("narrow")).unwrap();
    refused(&["backbone.model=narrow"], &["`backbone.model`", "vocabulary of 255", "256"]);

    // An adapter of another base: its layers, its width.
    place.fit(CONFIG, "base", &["--set", "train.steps=1"]);
    for (name, other, parts) in [
        ("short", MistralConfig { layers: 1, ..small() }, ["layer 1", "1 layers"]),
        ("wide", MistralConfig { d_model: 24, ..small() }, ["width 16", "24"]),
    ] {
        init_model(&other, 1, InitType::Bf16, &place.path(name)).unwrap();
        let model = format!("backbone.model={name}");
        let hrm = [model.as_str(), "adapter=[{kind=\"hrm\",path=\"base/adapters/hrm\"}]"];
        refused(&hrm, &["`adapter.hrm.path` cannot be used", parts[0], parts[1]]);
        let lora = [model.as_str(), "adapter=[{kind=\"lora\",path=\"base/adapters/lora\"}]"];
        refused(&lora, &["`adapter.lora.path` cannot be used", "q_proj"]);
    }
}
