//! GGUF files that are written: those of llama.cpp's converter, tensor for tensor and key for key, and what cannot be written.
//!
//! llama.cpp itself judges the other families: `tests/peers/llamacpp`.

use crate::common::Place;
use hankel_core::{Tensor, no_grad};
use hankel_models::adapters::{Dora, Hrm, HrmConfig, HrmPreset, LoraConfig};
use hankel_models::decoder::{
    Biases, DecoderConfig, Family, InitType, LoadOptions, Positions, Rope, RopeScaling, families, init_model,
};
use hankel_models::gguf::{ExportType, Gguf, Value, export_adapter, export_model};
use hankel_models::weights::ModelFiles;
use hankel_models::{AdapterConfig, AdapterSet, Backbone, Decoder, Pass, Tokenizer};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name)
}

/// Logits of a file or directory.
fn logits(model: &Path) -> Vec<f64> {
    let model = Decoder::load(model, LoadOptions::default()).unwrap();
    let tokens = Tensor::from_vec((0..40_u32).map(|i| (7 * i * i + 3 * i) % 200).collect(), [1, 40]).unwrap();
    let none = AdapterSet::none(&model.placement());
    no_grad(|| model.logits(&tokens, &none, &mut Pass::default())).unwrap().to_f64_vec()
}

fn largest_difference(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len());
    x.iter().zip(y).map(|(x, y)| (x - y).abs()).max_by(f64::total_cmp).unwrap_or(0.0)
}

/// The values at `key` of any kind, to be compared.
fn shown(file: &Gguf, key: &str) -> String {
    match &file.metadata()[key] {
        Value::Array(array) => format!("{} elements", array.len()),
        Value::Float(value) => format!("{:e}", *value as f32),
        value => format!("{value:?}"),
    }
}

#[test]
fn a_directory_becomes_the_file_of_the_converter() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("llama.gguf");
    let report = export_model(&golden("gguf/models/hf/llama"), &path, ExportType::named("q8_0").unwrap()).unwrap();
    assert_eq!((report.architecture, report.notes.len()), ("llama", 0));
    let (ours, theirs) = (Gguf::open(&path).unwrap(), Gguf::open(&golden("gguf/models/llama.q8_0.gguf")).unwrap());
    for key in theirs.metadata().keys().filter(|key| !["general.license", "general.size_label"].contains(&&key[..])) {
        assert_eq!(shown(&ours, key), shown(&theirs, key), "{key}");
    }
    let names = |file: &Gguf| file.tensors().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs));
    for (name, tensor) in theirs.tensors() {
        let found = &ours.tensors()[name];
        assert_eq!((found.dtype, &found.shape), (tensor.dtype, &tensor.shape), "{name}");
        if name == "rope_freqs.weight" {
            // Computed, there and here.
            let floats = |bytes: &[u8]| -> Vec<f64> {
                bytes.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect()
            };
            let (found, expected) = (floats(ours.bytes(found)), floats(theirs.bytes(tensor)));
            assert!(
                found.iter().zip(&expected).all(|(x, y)| (x - y).abs() <= 1e-6 * y.abs()),
                "{found:?} {expected:?}"
            );
        } else {
            assert!(ours.bytes(found) == theirs.bytes(tensor), "{name}");
        }
    }
    let (ours, theirs) = (Tokenizer::load(&path).unwrap(), Tokenizer::load(&golden("gguf/models/hf/llama")).unwrap());
    for text in ["hello the in<|eot_id|>", " a  b\n\n12345", "\u{e9}\u{4f60}"] {
        assert_eq!(ours.encode_with_special(text).unwrap(), theirs.encode_with_special(text).unwrap(), "{text:?}");
    }
    assert_eq!((ours.bos(), ours.eos()), (theirs.bos(), theirs.eos()));
}

#[test]
fn families_that_are_read_come_back() {
    let scratch = tempfile::tempdir().unwrap();
    for case in ["llama", "llama3", "llama_linear", "llama_yarn", "qwen2", "qwen3"] {
        let directory = golden(&format!("families/{case}/hf"));
        let path = scratch.path().join(format!("{case}.gguf"));
        let report = export_model(&directory, &path, ExportType::F32).unwrap();
        assert!(report.notes.len() == 1 && report.notes[0].contains("no tokenizer"), "{:?}", report.notes);
        let (expected, found) = (logits(&directory), logits(&path));
        // Constants are floats of 32 bits in the file.
        let difference = largest_difference(&found, &expected);
        assert!(difference < 2e-5, "{case}: {difference:e}");
    }
}

/// llama.cpp takes a factor without a type for a linear one.
#[test]
fn a_factor_without_a_type_is_linear() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("model.gguf");
    export_model(&golden("families/llama_linear/hf"), &path, ExportType::F32).unwrap();
    let expected = DecoderConfig::load(&path).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // A key of the same length that is of no architecture.
    let (key, other) = (b"llama.rope.scaling.type", b"other.rope.scaling.type");
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap();
    bytes[at..at + key.len()].copy_from_slice(other);
    let renamed = scratch.path().join("renamed.gguf");
    std::fs::write(&renamed, bytes).unwrap();
    let found = DecoderConfig::load(&renamed).unwrap();
    let Positions::Rotary(Rope { scaling: RopeScaling::Linear { factor }, .. }) = &found.positions else {
        panic!("{:?}", found.positions);
    };
    assert_eq!(*factor, 4.0);
    assert_eq!(found, expected);
}

/// Magnitudes of yarn that are not the usual ones, and biases of the MLP.
#[test]
fn features_of_llama_come_back() {
    let scratch = tempfile::tempdir().unwrap();
    for (factor, magnitude, written) in
        [(4.0, 1.5, Some(1.5 / (0.1 * 4.0_f64.ln() + 1.0))), (4.0, 0.1 * 4.0_f64.ln() + 1.0, None), (0.5, 1.0, None)]
    {
        let yarn = |beta_fast, beta_slow| {
            let scaling = RopeScaling::Yarn { factor, original: 64, beta_fast, beta_slow, truncate: true, magnitude };
            Positions::Rotary(Rope { scaling, ..Rope::default() })
        };
        let config = DecoderConfig {
            vocabulary: 224,
            d_model: 32,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 8,
            d_ff: 64,
            context: 256,
            init_std: 0.3,
            positions: yarn(32.0, 1.0),
            biases: Biases { qkv: true, output: true, mlp: true },
            ..DecoderConfig::plain(&families::LLAMA)
        };
        let (model, file) = (scratch.path().join(format!("{factor}-{magnitude}")), scratch.path().join("model.gguf"));
        init_model(&config, 3, InitType::F32, &model).unwrap();
        export_model(&model, &file, ExportType::F32).unwrap();
        let found = DecoderConfig::load(&file).unwrap();
        assert_eq!(found.biases, config.biases);
        let Positions::Rotary(Rope {
            scaling: RopeScaling::Yarn { beta_fast, beta_slow, magnitude: read, .. }, ..
        }) = &found.positions
        else {
            panic!("{:?}", found.positions);
        };
        assert_eq!((*beta_fast, *beta_slow), (32.0, 1.0));
        assert!((read - magnitude).abs() < 2e-6, "{read} for {magnitude}");
        let difference = largest_difference(&logits(&file), &logits(&model));
        assert!(difference < 1e-4, "{difference:e}");
        // The one key of them that llama.cpp reads.
        let keys = Gguf::open(&file).unwrap();
        let multiplier = keys.metadata().get("llama.rope.scaling.attn_factor");
        assert_eq!(multiplier, written.map(|x: f64| Value::Float(f64::from(x as f32))).as_ref());
        assert!(!keys.metadata().keys().any(|key| key.contains("yarn_")), "{:?}", keys.metadata().keys());
        std::fs::remove_file(&file).unwrap();
        for (positions, name) in [(yarn(16.0, 1.0), "beta_fast"), (yarn(32.0, 2.0), "beta_slow")] {
            let model = scratch.path().join(format!("{factor}-{magnitude}-{name}"));
            init_model(&DecoderConfig { positions, ..config.clone() }, 3, InitType::F32, &model).unwrap();
            let refused = export_model(&model, &file, ExportType::F32).unwrap_err().to_string();
            assert!(refused.contains(name) && !file.exists(), "{refused}");
        }
    }
}

#[test]
fn what_llamacpp_would_compute_in_another_way_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("model.gguf");
    let refusal = |model: &str| export_model(&golden(model), &path, ExportType::F16).unwrap_err().to_string();
    let gemma = refusal("families/gemma3_text/hf");
    assert!(gemma.contains("gemma3") && gemma.contains("query_pre_attn_scalar"), "{gemma}");
    assert!(!path.exists());
    // A window that the architecture does not have ends the context.
    let report = export_model(&golden("mistral/window/hf"), &path, ExportType::F32).unwrap();
    assert!(report.notes.iter().any(|note| note.contains("context_length is 16")), "{:?}", report.notes);
    let file = Gguf::open(&path).unwrap();
    assert_eq!(file.metadata()["llama.context_length"], Value::Integer(16));
    // Nothing is overwritten.
    let again = export_model(&golden("mistral/window/hf"), &path, ExportType::F32).unwrap_err();
    assert!(again.to_string().contains("exists"), "{again}");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
}

#[test]
fn every_other_family_is_written_with_its_names() {
    let scratch = tempfile::tempdir().unwrap();
    for (case, architecture, name, key) in [
        ("smollm3", "smollm3", "blk.3.ffn_gate.weight", "smollm3.rope.freq_base"),
        ("olmo2", "olmo2", "blk.1.post_ffw_norm.weight", "olmo2.attention.layer_norm_rms_epsilon"),
        ("phi3", "phi3", "blk.0.attn_qkv.weight", "phi3.attention.sliding_window"),
        ("phi3_longrope", "phi3", "rope_factors_long.weight", "phi3.rope.scaling.attn_factor"),
        ("granite", "granite", "blk.2.attn_q.weight", "granite.logit_scale"),
        ("gpt2", "gpt2", "blk.1.attn_qkv.bias", "gpt2.attention.layer_norm_epsilon"),
    ] {
        let path = scratch.path().join(format!("{case}.gguf"));
        let report = export_model(&golden(&format!("families/{case}/hf")), &path, ExportType::F16).unwrap();
        let by_context = report.notes.iter().any(|note| note.contains("context above 32"));
        assert_eq!(by_context, case == "phi3_longrope", "{case}: {:?}", report.notes);
        let file = Gguf::open(&path).unwrap();
        assert_eq!(file.string("general.architecture").unwrap(), Some(architecture));
        assert!(file.tensors().contains_key(name), "{case}: {:?}", file.tensors().keys());
        assert!(file.metadata().contains_key(key), "{case}: {:?}", file.metadata().keys());
    }
}

/// The values of a tensor in f32.
fn values(files: &mut ModelFiles, name: &str, shape: &[usize]) -> Vec<f64> {
    files.take(name, shape).unwrap().to_f64_vec()
}

#[test]
fn types_round_as_much_as_they_must() {
    let scratch = tempfile::tempdir().unwrap();
    let (model, d) = (scratch.path().join("model"), 256);
    let sizes = DecoderConfig {
        vocabulary: 64,
        d_model: d,
        layers: 1,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        ..DecoderConfig::mistral_7b()
    };
    let config = DecoderConfig { d_ff: 96, sliding_window: None, ..sizes };
    init_model(&config, 3, InitType::F32, &model).unwrap();
    let (name, shape) = ("model.layers.0.self_attn.q_proj.weight", [256, 256]);
    let exact = values(&mut ModelFiles::open(&model).unwrap(), name, &shape);
    let norm = exact.iter().map(|x| x * x).sum::<f64>();
    for (dtype, stored, limit) in [
        ("f32", "F32", 0.0),
        ("f16", "F16", 3e-4),
        ("bf16", "BF16", 3e-3),
        ("q8_0", "Q8_0", 0.0058),
        ("q4_0", "Q4_0", 0.090),
        ("q4_1", "Q4_1", 0.082),
        ("q5_0", "Q5_0", 0.045),
        ("q5_1", "Q5_1", 0.040),
        ("q4_k", "Q4_K", 0.0745),
    ] {
        let dtype = ExportType::named(dtype).unwrap();
        let path = scratch.path().join(format!("{dtype}.gguf"));
        export_model(&model, &path, dtype).unwrap();
        let file = Gguf::open(&path).unwrap();
        let stored_as = |name: &str| file.tensors()[name].dtype.to_string();
        assert_eq!(stored_as("blk.0.attn_q.weight"), stored);
        assert_eq!(stored_as("blk.0.attn_norm.weight"), "F32");
        let table = if stored.starts_with('Q') { "Q8_0" } else { stored };
        assert_eq!(stored_as("token_embd.weight"), table);
        // Rows of 96 are not whole blocks of 256.
        assert_eq!(stored_as("blk.0.ffn_down.weight"), if stored == "Q4_K" { "Q5_0" } else { stored });
        let found = values(&mut ModelFiles::open(&path).unwrap(), name, &shape);
        let error = found.iter().zip(&exact).map(|(x, y)| (x - y) * (x - y)).sum::<f64>();
        assert!((error / norm).sqrt() <= limit, "{dtype}: {}", (error / norm).sqrt());
        // What is in blocks already stays as it is.
        let again = scratch.path().join(format!("{dtype}-again.gguf"));
        export_model(&path, &again, dtype).unwrap();
        let (was, is) = (Gguf::open(&path).unwrap(), Gguf::open(&again).unwrap());
        for (name, tensor) in was.tensors() {
            assert!(was.bytes(tensor) == is.bytes(&is.tensors()[name]), "{dtype} {name}");
        }
    }
}

#[test]
fn values_beyond_a_type_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("model.gguf");
    let model = scratch.path().join("model");
    let sizes = DecoderConfig {
        vocabulary: 32,
        d_model: 32,
        layers: 1,
        heads: 2,
        kv_heads: 2,
        head_dim: 16,
        ..DecoderConfig::mistral_7b()
    };
    let config = DecoderConfig { d_ff: 32, init_std: 1e6, ..sizes };
    init_model(&config, 3, InitType::F32, &model).unwrap();
    let message = export_model(&model, &path, ExportType::F16).unwrap_err().to_string();
    assert!(message.contains("choose --type bf16") && !path.exists(), "{message}");
    export_model(&model, &path, ExportType::named("bf16").unwrap()).unwrap();
}

#[test]
fn adapters_become_those_of_llamacpp() {
    let scratch = tempfile::tempdir().unwrap();
    for case in ["lora", "rslora"] {
        let path = scratch.path().join(format!("{case}.gguf"));
        let directory = golden(&format!("gguf/adapter/{case}"));
        let report = export_adapter(&directory, &golden("gguf/models/hf/llama"), &path).unwrap();
        assert_eq!(report.architecture, "llama");
        let (ours, theirs) =
            (Gguf::open(&path).unwrap(), Gguf::open(&golden(&format!("gguf/adapter/{case}.gguf"))).unwrap());
        for key in theirs.metadata().keys() {
            assert_eq!(shown(&ours, key), shown(&theirs, key), "{case} {key}");
        }
        assert_eq!(ours.tensors().len(), theirs.tensors().len());
        for (name, tensor) in theirs.tensors() {
            assert!(ours.bytes(&ours.tensors()[name]) == theirs.bytes(tensor), "{case} {name}");
        }
    }
}

/// llama.cpp takes an alpha of 0 for a scale of 1.
#[test]
fn an_adapter_without_effect_has_none_there() {
    let scratch = tempfile::tempdir().unwrap();
    let (directory, path) = (scratch.path().join("adapter"), scratch.path().join("adapter.gguf"));
    std::fs::create_dir(&directory).unwrap();
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(golden("gguf/adapter/lora").join(name), directory.join(name)).unwrap();
    }
    let config = directory.join("adapter_config.json");
    let mut keys: Json = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    keys["lora_alpha"] = json!(0);
    std::fs::write(&config, keys.to_string()).unwrap();
    export_adapter(&directory, &golden("gguf/models/hf/llama"), &path).unwrap();
    let file = Gguf::open(&path).unwrap();
    assert_eq!(file.metadata()["adapter.lora.alpha"], Value::Float(1.0));
    for (name, tensor) in file.tensors() {
        let mut values = file.bytes(tensor).as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        assert!(values.all(|x| if name.ends_with("lora_b") { x == 0.0 } else { x.is_finite() }), "{name}");
    }
}

#[test]
fn adapters_that_have_no_place_say_what_to_do() {
    let scratch = tempfile::tempdir().unwrap();
    let model = golden("gguf/models/hf/llama");
    let backbone = Decoder::load(&model, LoadOptions::default()).unwrap();
    let placement = backbone.placement();
    let hrm = AdapterConfig::stream::<Hrm>(&HrmConfig::new(HrmPreset::Paper, 4, placement.d_model, 512));
    let dora = AdapterConfig::linear::<Dora>(&LoraConfig::new(2));
    for (name, config, remedy) in [("hrm", hrm, "train generate"), ("dora", dora, "train merge")] {
        let directory = scratch.path().join(name);
        let adapters = AdapterSet::on(&config, &placement, &backbone.parameters(), 1).unwrap();
        adapters.save(&directory, None).unwrap();
        let path = scratch.path().join("adapter.gguf");
        let message = export_adapter(&directory, &model, &path).unwrap_err().to_string();
        assert!(message.contains(remedy) && !path.exists(), "{message}");
    }
}

#[test]
fn the_command_converts_and_refuses() {
    let place = Place::new();
    let model = golden("gguf/models/hf/llama").display().to_string();
    let done = place.run(&["convert", &model, "-o", "model.gguf", "--type", "q8_0", "--json"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let facts: Json = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&facts["architecture"], &facts["tensors"]["Q8_0"]), (&"llama".into(), &15.into()), "{facts}");
    assert_eq!(facts["bytes"], std::fs::metadata(place.path("model.gguf")).unwrap().len());
    let generated = place.run(&["generate", "--model", "model.gguf", "--prompt", "the in", "--max-tokens", "4"]);
    assert_eq!(generated.code, Some(0), "{}", generated.stderr);
    place.run(&["convert", &model, "-o", "model.gguf"]).refused(&["model.gguf", "exists already"]);
    place.run(&["convert", &model, "-o", "model.bin"]).refused(&["ends in .gguf"]);
    place.run(&["convert", &model, "-o", "x.gguf", "--type", "q3"]).refused(&["q4_k"]);
    place.run(&["convert", "nowhere", "-o", "x.gguf"]).refused(&["nowhere does not exist"]);
    let lora = golden("gguf/adapter/lora").display().to_string();
    place.run(&["convert", &lora, "-o", "x.gguf"]).refused(&["--model"]);
    place.run(&["convert", &lora, "-o", "x.gguf", "--model", &model, "--type", "f16"]).refused(&["written in f32"]);
    let done = place.run(&["convert", &lora, "-o", "lora.gguf", "--model", &model]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(!place.path("x.gguf").exists());
}

#[test]
fn a_text_that_llamacpp_does_not_compose_is_said() {
    let scratch = tempfile::tempdir().unwrap();
    let (model, path) = (scratch.path().join("model"), scratch.path().join("model.gguf"));
    let text = std::fs::read(golden("gguf/models/hf/llama/tokenizer.json")).unwrap();
    // As Qwen has it.
    let mut tokenizer: Json = serde_json::from_slice(&text).unwrap();
    tokenizer["normalizer"] = json!({ "type": "NFC" });
    tokenizer["model"]["ignore_merges"] = json!(false);
    let pattern = &mut tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
    *pattern = json!(pattern.as_str().unwrap().replace(r"\p{N}{1,3}", r"\p{N}"));
    write_model(&families::LLAMA, &model, &tokenizer);
    let report = export_model(&model, &path, ExportType::F32).unwrap();
    assert!(report.notes.len() == 1 && report.notes[0].contains("(NFC)"), "{:?}", report.notes);
    same_ids(&model, &path, &["e\u{301}", "hello 12345"]);
}

/// An added token: its text, whether it is special, and whether it drops the white space behind it.
type Added = (&'static str, bool, bool);

/// Those of Llama 2.
const PLAIN: [Added; 3] = [("<unk>", true, false), ("<s>", true, false), ("</s>", true, false)];

/// Those of Phi-3.
const PHI3: [Added; 7] = [
    ("<unk>", true, false),
    ("<s>", true, false),
    ("</s>", false, true),
    ("<|endoftext|>", true, false),
    ("<|user|>", true, true),
    ("<|end|>", true, true),
    ("<|assistant|>", true, true),
];

/// A small `tokenizer.json` of SentencePiece: bytes, a few words and `added` tokens. `first` are merges before those of
/// the words.
fn sentencepiece(normalizer: &Json, pre_tokenizer: &Json, added: &[Added], first: &[[&str; 2]]) -> Json {
    let words = ["\n", "▁", "a", "b", "e", "h", "t", "th", "the", "▁the"];
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(words.map(str::to_owned));
    for (content, ..) in added {
        if !tokens.iter().any(|token| token == content) {
            tokens.push((*content).to_owned());
        }
    }
    let id = |content: &str| tokens.iter().position(|token| token == content).unwrap();
    let added: Vec<Json> = added
        .iter()
        .map(|&(content, special, rstrip)| {
            json!({ "id": id(content), "content": content, "single_word": false, "lstrip": false, "rstrip": rstrip,
                "normalized": false, "special": special })
        })
        .collect();
    let vocabulary: serde_json::Map<String, Json> =
        tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
    let merges = [first, &[["t", "h"], ["th", "e"], ["▁", "the"]]].concat();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": null,
        "decoder": { "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
            { "type": "ByteFallback" },
            { "type": "Fuse" },
        ] },
        "model": { "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": vocabulary,
            "merges": merges },
    })
}

/// Marks spaces, as Gemma does.
fn marks_spaces() -> Json {
    json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" })
}

/// Puts a space before a text and marks spaces, as Llama 2 and Phi-3 do.
fn begins_with_space() -> Json {
    json!({ "type": "Sequence", "normalizers": [{ "type": "Prepend", "prepend": "▁" }, marks_spaces()] })
}

/// Writes a small model of `family` with a tokenizer to `directory`.
fn write_model(family: &'static Family, directory: &Path, tokenizer: &Json) {
    let sizes = DecoderConfig {
        vocabulary: 320,
        d_model: 32,
        layers: 1,
        heads: 2,
        kv_heads: 2,
        head_dim: 16,
        d_ff: 32,
        ..DecoderConfig::plain(family)
    };
    init_model(&sizes, 3, InitType::F32, directory).unwrap();
    std::fs::write(directory.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

/// Says where the tokenizers of two models differ.
fn same_ids(directory: &Path, file: &Path, texts: &[&str]) {
    let [expected, found] = [directory, file].map(|model| Tokenizer::load(model).unwrap());
    for text in texts {
        let ids = expected.encode(text).unwrap();
        assert_eq!(found.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(found.decode(&ids).unwrap().trim_start(), expected.decode(&ids).unwrap().trim_start(), "{text:?}");
    }
}

#[test]
fn tokens_of_a_phi3_drop_white_space_by_its_name() {
    let scratch = tempfile::tempdir().unwrap();
    let tokenizer = sentencepiece(&begins_with_space(), &Json::Null, &PHI3, &[]);
    for (directory, name, notes) in [("tuned", "tuned (Phi-3)", 1), ("My-Phi-3", "My-Phi-3", 0)] {
        let path = scratch.path().join(format!("{directory}.gguf"));
        let directory = scratch.path().join(directory);
        write_model(&families::PHI3, &directory, &tokenizer);
        let report = export_model(&directory, &path, ExportType::F32).unwrap();
        assert_eq!(report.notes.len(), notes, "{:?}", report.notes);
        assert!(report.notes.iter().all(|note| note.contains(name)), "{:?}", report.notes);
        assert_eq!(Gguf::open(&path).unwrap().string("general.name").unwrap(), Some(name));
        same_ids(&directory, &path, &["<|user|>\nthe a<|end|>\n <|assistant|>\n", "<s>\na</s> \n b", " the  a"]);
    }
}

#[test]
fn a_name_that_says_phi3_of_another_model_is_left_out() {
    let scratch = tempfile::tempdir().unwrap();
    let (directory, path) = (scratch.path().join("after-Phi3"), scratch.path().join("model.gguf"));
    write_model(&families::LLAMA, &directory, &sentencepiece(&begins_with_space(), &Json::Null, &PLAIN, &[]));
    let report = export_model(&directory, &path, ExportType::F32).unwrap();
    assert!(report.notes.len() == 1 && report.notes[0].contains("general.name is left out"), "{:?}", report.notes);
    assert_eq!(Gguf::open(&path).unwrap().string("general.name").unwrap(), None);
    same_ids(&directory, &path, &["a</s>\nb"]);
}

#[test]
fn added_tokens_that_a_file_cannot_describe_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("model.gguf");
    let refusal = |family: &'static Family, name: &str, tokenizer: &Json| {
        let directory = scratch.path().join(name);
        write_model(family, &directory, tokenizer);
        let message = export_model(&directory, &path, ExportType::F32).unwrap_err().to_string();
        assert!(!path.exists());
        message
    };
    let phi3 = sentencepiece(&begins_with_space(), &Json::Null, &PHI3, &[]);
    let message = refusal(&families::LLAMA, "llama", &phi3);
    assert!(message.contains("\"</s>\" has rstrip"), "{message}");
    // One of them keeps what llama.cpp would drop.
    let mut other = phi3;
    other["added_tokens"][5]["rstrip"] = json!(false);
    let message = refusal(&families::PHI3, "phi3", &other);
    assert!(message.contains("\"</s>\" has rstrip"), "{message}");
    let plain = sentencepiece(&begins_with_space(), &Json::Null, &PLAIN, &[]);
    for flag in ["lstrip", "single_word"] {
        let mut tokenizer = plain.clone();
        tokenizer["added_tokens"][2][flag] = json!(true);
        let message = refusal(&families::LLAMA, flag, &tokenizer);
        assert!(message.contains(&format!("\"</s>\" has {flag}")), "{message}");
    }
    // Looked for with the space that is put before it, so it is not found in the middle of a word.
    let mut tokenizer = plain;
    tokenizer["added_tokens"][2]["normalized"] = json!(true);
    let message = refusal(&families::LLAMA, "normalized", &tokenizer);
    assert!(message.contains("\"x</s>\\ny\" has the ids"), "{message}");
}

#[test]
fn tokens_that_the_configuration_alone_has_are_written() {
    let scratch = tempfile::tempdir().unwrap();
    let (directory, path) = (scratch.path().join("model"), scratch.path().join("model.gguf"));
    let added = [&PLAIN[..], &[("<|im_end|>", false, false)]].concat();
    write_model(&families::LLAMA, &directory, &sentencepiece(&begins_with_space(), &Json::Null, &added, &[]));
    let mut config = json!({ "bos_token": "<s>", "eos_token": "</s>",
        "added_tokens_decoder": { "270": { "content": "<|tool|>", "special": true } } });
    std::fs::write(directory.join("tokenizer_config.json"), config.to_string()).unwrap();
    export_model(&directory, &path, ExportType::F32).unwrap();
    same_ids(&directory, &path, &["a<|tool|> b", "a</s>"]);
    let found = Tokenizer::load(&path).unwrap();
    assert_eq!(found.id("<|tool|>"), Some(270));
    // As llama.cpp takes it, whatever its type.
    assert!(found.ends().contains(&found.id("<|im_end|>").unwrap()));
    config["added_tokens_decoder"]["270"]["lstrip"] = json!(true);
    std::fs::write(directory.join("tokenizer_config.json"), config.to_string()).unwrap();
    let message =
        export_model(&directory, &scratch.path().join("other.gguf"), ExportType::F32).unwrap_err().to_string();
    assert!(message.contains("\"<|tool|>\" has lstrip"), "{message}");
}

#[test]
fn runs_of_spaces_and_lines_are_tokens_as_in_gemma() {
    let scratch = tempfile::tempdir().unwrap();
    let (directory, path) = (scratch.path().join("model"), scratch.path().join("model.gguf"));
    let runs = [("\n\n", false, false), ("\n\n\n", false, false), ("▁▁", false, false), ("▁▁▁", false, false)];
    // The merges that make a run do not follow each other.
    let merges = [["\n\n", "\n"], ["▁▁", "▁"], ["\n", "\n\n"], ["▁", "▁▁"], ["\n", "\n"], ["▁", "▁"]];
    let split =
        json!({ "type": "Split", "pattern": { "String": " " }, "behavior": "MergedWithPrevious", "invert": false });
    let tokenizer = sentencepiece(&marks_spaces(), &split, &[&PLAIN[..], &runs].concat(), &merges);
    write_model(&families::LLAMA, &directory, &tokenizer);
    let report = export_model(&directory, &path, ExportType::F32).unwrap();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    let texts = ["a  b\n\n\n the   the", "   the\n\na", "\n\n\n\n\n\n\nb", "a</s>  b"];
    same_ids(&directory, &path, &texts);
    let [expected, found] = [&directory, &path].map(|model| Tokenizer::load(model).unwrap());
    assert!(expected.encode("a  b").unwrap().contains(&expected.id("▁▁").unwrap()));
    // As llama.cpp looks for it in a text.
    assert_eq!(found.id("  "), expected.id("▁▁"));
}

#[test]
fn a_metaspace_is_written_as_sentencepiece_takes_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (directory, path) = (scratch.path().join("model"), scratch.path().join("model.gguf"));
    let metaspace = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false });
    write_model(&families::MISTRAL, &directory, &sentencepiece(&Json::Null, &metaspace, &PLAIN, &[]));
    let report = export_model(&directory, &path, ExportType::F32).unwrap();
    assert!(report.notes.len() == 1 && report.notes[0].contains("begins with a space"), "{:?}", report.notes);
    same_ids(&directory, &path, &["the b", "the  the a", "\nb", "a</s>"]);
    let [expected, found] = [&directory, &path].map(|model| Tokenizer::load(model).unwrap());
    let ids = [vec![expected.id("▁").unwrap()], expected.encode(" the").unwrap()].concat();
    assert_eq!(found.encode(" the").unwrap(), ids);
}
