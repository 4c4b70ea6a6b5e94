//! GGUF files: damaged ones are refused, whole ones give the weights, logits and token ids of independent software.

use hankel_core::{DType, Tensor, no_grad};
use hankel_models::decoder::{LoadOptions, Positions, RopeScaling, merge_model, quantize_model, tokenizer_left_out};
use hankel_models::gguf::{ExportType, export_model};
use hankel_models::weights::ModelFiles;
use hankel_models::{AdapterSet, Backbone, Decoder, DecoderConfig, Pass, Tokenizer};
use hankel_tests::decoders::{greedy, none};
use hankel_tests::golden::Golden;
use safetensors::SafeTensors;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/gguf").join(name)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn damaged_files_are_refused_with_a_reason() {
    let cases = json(&folder("malformed/cases.json"));
    let mut wrong = Vec::new();
    for case in cases["cases"].as_array().unwrap() {
        let (file, expected) = (case["file"].as_str().unwrap(), case["expect"].as_str().unwrap());
        let path = folder("malformed").join(file);
        let begun = Instant::now();
        let opened = Decoder::load(&path, LoadOptions::default()).map(|_| ()).map_err(|e| e.to_string());
        let text =
            Tokenizer::load(&path).and_then(|tokenizer| tokenizer.encode("a")).map(|_| ()).map_err(|e| e.to_string());
        assert!(begun.elapsed() < Duration::from_secs(5), "{file} took {:?}", begun.elapsed());
        for message in [&opened, &text].into_iter().filter_map(|result| result.as_ref().err()) {
            assert!(message.contains(file), "{file}: {message}");
            assert!(message.len() < 1000, "{file}: {message}");
        }
        println!("{file} ({expected}): {opened:?} | {text:?}");
        let fits = match expected {
            "ok" => opened.is_ok() && text.is_ok(),
            "error" => opened.is_err(),
            "error_when_text_is_used" => opened.is_ok() && text.is_err(),
            "either" => true,
            other => panic!("{other}"),
        };
        if !fits {
            wrong.push(format!("{file} ({expected}): {opened:?} | {text:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn token_ids_are_those_of_the_tokenizer_that_a_file_was_made_from() {
    let tokens = json(&folder("models/tokens.json"));
    for (name, facts) in tokens.as_object().unwrap() {
        for file in facts["files"].as_array().unwrap().iter().map(|file| folder("models").join(file.as_str().unwrap()))
        {
            if !file.exists() {
                continue;
            }
            let tokenizer = Tokenizer::load(&file).unwrap();
            assert_eq!(tokenizer.vocabulary(), facts["tokenizer_size"].as_u64().unwrap() as usize, "{name}");
            let mut seen = 0;
            for case in facts["encode"].as_array().unwrap() {
                let text = case["text"].as_str().unwrap();
                let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
                let got = tokenizer.encode(text).unwrap();
                if facts["source"] == "sentencepiece" && text.contains("</s>") {
                    // A special token in a text is one here, plain pieces in sentencepiece.
                    assert!(got.contains(&2), "{name} {text:?}");
                    continue;
                }
                assert_eq!(got, ids, "{name} {text:?}");
                assert_eq!(
                    tokenizer.decode_with_special(&ids).unwrap(),
                    case["decoded"].as_str().unwrap(),
                    "{name} {ids:?}"
                );
                seen += 1;
            }
            assert!(seen > 50, "{name}: {seen} texts");
            for case in facts["encode_with_special"].as_array().into_iter().flatten() {
                let text = case["text"].as_str().unwrap();
                let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
                assert_eq!(tokenizer.encode(text).unwrap(), ids, "{name} {text:?}");
            }
            let begins = !facts["rule"].as_str().unwrap().contains("nothing is prepended");
            let ids = tokenizer.encode_with_special("hello").unwrap();
            assert_eq!(ids[0] == tokenizer.bos().unwrap(), begins, "{name}");
        }
    }
}

/// Tokens at which the models of two files stop.
const ENDS: [(&str, [&str; 2]); 2] =
    [("llama.q8_0", ["<|eot_id|>", "<|end_of_text|>"]), ("qwen2.q8_0", ["<|im_end|>", "<|endoftext|>"])];

/// A file names one token that ends a text; a turn may end with another.
#[test]
fn turns_end_where_llama_cpp_ends_them() {
    for (stem, ends) in ENDS {
        let tokenizer = Tokenizer::load(&folder("models").join(format!("{stem}.gguf"))).unwrap();
        for token in ends {
            assert!(tokenizer.is_end(tokenizer.id(token).unwrap()), "{stem}: {token}");
        }
        assert!(!tokenizer.is_end(tokenizer.id("a").unwrap()));
    }
}

/// A directory that is made of a file keeps all of them.
#[test]
fn merged_models_end_where_their_file_does() {
    for (stem, ends) in ENDS {
        let file = folder("models").join(format!("{stem}.gguf"));
        let scratch = tempfile::tempdir().unwrap();
        let merged = scratch.path().join("merged");
        let placement = DecoderConfig::load(&file).unwrap().placement();
        merge_model(&AdapterSet::none(&placement), &file, &merged, None).unwrap();
        let (theirs, ours) = (Tokenizer::load(&file).unwrap(), Tokenizer::load(&merged).unwrap());
        for token in ends {
            assert!(ours.is_end(ours.id(token).unwrap()), "{stem}: {token}");
        }
        assert_eq!((ours.bos(), ours.eos(), ours.ends()), (theirs.bos(), theirs.eos(), theirs.ends()), "{stem}");
        assert_eq!(ours.special_tokens(), theirs.special_tokens(), "{stem}");
        let generation = json(&merged.join("generation_config.json"));
        assert_eq!(generation["eos_token_id"][0].as_u64(), theirs.eos().map(u64::from), "{stem}");
        assert_eq!(generation["bos_token_id"].as_u64(), theirs.bos().map(u64::from), "{stem}");
    }
}

/// Other work than text is for the tokenizer.
#[test]
fn files_whose_tokenizer_cannot_be_built_are_rewritten_without() {
    let scratch = tempfile::tempdir().unwrap();
    let [none, unknown, known] = ["none.gguf", "unknown.gguf", "known.gguf"].map(|name| scratch.path().join(name));
    let hf = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/mistral/window/hf");
    export_model(&hf, &none, ExportType::F32).unwrap();
    fs::copy(folder("models/llama.q8_0.gguf"), &known).unwrap();
    let mut bytes = fs::read(&known).unwrap();
    let at = bytes.windows(9).position(|window| window == b"llama-bpe").unwrap();
    bytes[at..at + 9].copy_from_slice(b"llama-new");
    fs::write(&unknown, bytes).unwrap();
    assert_eq!(tokenizer_left_out(&known).unwrap(), None);
    for (file, reason) in [(&none, "it has no tokenizer"), (&unknown, "llama-new")] {
        let note = tokenizer_left_out(file).unwrap().unwrap();
        assert!(note.contains(reason), "{note}");
        let merged = file.with_extension("merged");
        let placement = DecoderConfig::load(file).unwrap().placement();
        merge_model(&AdapterSet::none(&placement), file, &merged, None).unwrap();
        assert!(DecoderConfig::load(&merged).is_ok() && !merged.join("tokenizer.json").exists());
    }
    let quantized = scratch.path().join("quantized");
    quantize_model(&none, &quantized, true).unwrap();
    assert!(DecoderConfig::load(&quantized).is_ok() && !quantized.join("tokenizer.json").exists());
}

/// How positions are scaled by the file of a model of `golden/families` with one more number at `key`.
fn scaling_with(family: &str, key: &str, value: f32) -> RopeScaling {
    let scratch = tempfile::tempdir().unwrap();
    let hf = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/families").join(family).join("hf");
    // Its name takes as many bytes in the file as the key.
    let name = "n".repeat(key.len() - 16);
    let (model, file) = (scratch.path().join(&name), scratch.path().join("model.gguf"));
    fs::create_dir_all(&model).unwrap();
    for part in ["config.json", "model.safetensors"] {
        fs::copy(hf.join(part), model.join(part)).unwrap();
    }
    export_model(&model, &file, ExportType::F32).unwrap();
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let old = [text("general.name"), 8_u32.to_le_bytes().to_vec(), text(&name)].concat();
    let new = [text(key), 6_u32.to_le_bytes().to_vec(), value.to_le_bytes().to_vec()].concat();
    assert_eq!(old.len(), new.len());
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
    bytes[at..at + new.len()].copy_from_slice(&new);
    fs::write(&file, bytes).unwrap();
    match DecoderConfig::load(&file).unwrap().positions {
        Positions::Rotary(rope) => rope.scaling,
        other @ Positions::Learned => panic!("{other:?}"),
    }
}

/// llama.cpp goes by `attn_factor`; what its converter writes under `yarn_` it reads for other architectures only.
#[test]
fn keys_of_yarn_count_as_in_llama_cpp() {
    let with = |key: &str, value: f32| {
        let scaling = scaling_with("llama_yarn", &format!("llama.rope.scaling.{key}"), value);
        let RopeScaling::Yarn { beta_fast, beta_slow, magnitude, .. } = scaling else { panic!("{scaling:?}") };
        assert_eq!((beta_fast, beta_slow), (32.0, 1.0), "{key}");
        magnitude
    };
    let usual = 0.1 * 4.0_f64.ln() + 1.0;
    for (key, value) in
        [("yarn_attn_factor", 1.5), ("yarn_beta_fast", 16.0), ("yarn_beta_slow", 2.0), ("yarn_ext_factor", 0.5)]
    {
        assert_eq!(with(key, value), usual, "{key}");
    }
    assert_eq!(with("attn_factor", 1.5), 1.5 * usual);
}

/// Files of 2023 have the factor under another key; llama.cpp prefers the newer one.
#[test]
fn the_linear_factor_of_old_files_is_read() {
    let old_key = "llama.rope.scale_linear";
    assert_eq!(scaling_with("llama", old_key, 4.0), RopeScaling::Linear { factor: 4.0 });
    assert_eq!(scaling_with("llama", old_key, 1.0), RopeScaling::None);
    assert_eq!(scaling_with("llama_linear", old_key, 16.0), RopeScaling::Linear { factor: 4.0 });
}

fn stems() -> Vec<String> {
    let mut stems: Vec<String> = fs::read_dir(folder("models"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str().unwrap().strip_suffix(".gguf").map(str::to_owned))
        .collect();
    stems.sort();
    assert!(stems.len() >= 8, "{stems:?}");
    stems
}

/// The largest difference, as a share of the largest value.
fn error(got: &[f64], reference: &[f64]) -> f64 {
    assert_eq!(got.len(), reference.len());
    let scale = reference.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    got.iter()
        .zip(reference)
        .fold(0.0, |m: f64, (g, r)| if (g - r).abs() > m || g.is_nan() { (g - r).abs() } else { m })
        / scale
}

#[test]
fn logits_are_those_of_the_dequantised_weights() {
    for stem in stems() {
        let facts = json(&folder("models").join(format!("{stem}.json")));
        let bytes = fs::read(folder("models").join(format!("{stem}.safetensors"))).unwrap();
        let arrays = SafeTensors::deserialize(&bytes).unwrap();
        let ids: Vec<u32> = arrays
            .tensor("input_ids")
            .unwrap()
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|b| i64::from_le_bytes(*b) as u32)
            .collect();
        let logits: Vec<f64> = arrays
            .tensor("logits")
            .unwrap()
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|b| f64::from(f32::from_le_bytes(*b)))
            .collect();
        let model = Decoder::load(&folder("models").join(format!("{stem}.gguf")), LoadOptions::default()).unwrap();
        let steps = ids.len();
        let tokens = Tensor::from_vec(ids, [1, steps]).unwrap();
        let got = no_grad(|| model.logits(&tokens, &none(&model), &mut Pass::default())).unwrap().to_f64_vec();
        let (error, limit) = (error(&got, &logits), facts["tensors"]["logits"]["tol_f32"].as_f64().unwrap());
        assert!(error <= limit, "{stem}: logits differ by {error:e}, limit {limit:e}");
        assert_eq!(model.config().tied_embeddings, facts["tied"].as_bool().unwrap(), "{stem}");
    }
}

#[test]
fn tensors_decode_to_the_values_of_the_reference() {
    for stem in stems() {
        let facts = json(&folder("models").join(format!("{stem}.json")));
        let mut files = ModelFiles::open(&folder("models").join(format!("{stem}.gguf"))).unwrap();
        let permuted = facts["q_and_k_rows_permuted"].as_bool().unwrap();
        for tensor in facts["layout"]["tensors"].as_array().unwrap() {
            let name = tensor["name"].as_str().unwrap();
            let Some(theirs) = facts["hf_names"][name].as_str() else {
                assert_eq!(name, "rope_freqs.weight");
                continue;
            };
            let mut shape: Vec<usize> = serde_json::from_value(tensor["dims"].clone()).unwrap();
            shape.reverse();
            let values = files.take(theirs, &shape).unwrap().to_dtype(DType::F32).unwrap();
            // Rows of queries and keys are in another order than in the file: their values show in the logits.
            if permuted && (name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight")) {
                continue;
            }
            let bytes: Vec<u8> = values.data::<f32>().unwrap().iter().flat_map(|x| x.to_le_bytes()).collect();
            let digits = tensor["sha256_of_float32"].as_str().unwrap().as_bytes().as_chunks::<2>().0;
            let digits = digits.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
            assert!(Sha256::digest(&bytes).iter().copied().eq(digits), "{stem} {name}");
        }
        files.finish().unwrap();
    }
}

/// SmolLM2-135M-Instruct in Q4_1, 98 MB, which is not part of the repository.
pub(super) fn smollm2() -> Option<PathBuf> {
    let name = "SmolLM2-135M-Instruct.Q4_1.gguf";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let places = [
        std::env::var_os("HANKEL_DATA").map(|place| PathBuf::from(place).join(name)),
        Some(root.join("data/smollm2").join(name)),
    ];
    let found = places.into_iter().flatten().find(|path| path.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: {name} is neither in $HANKEL_DATA nor in data/smollm2");
    }
    found
}

#[test]
fn smollm2_gives_the_logits_and_continuations_of_its_dequantised_weights() {
    let Some(path) = smollm2() else { return };
    let model = Decoder::load(&path, LoadOptions::default()).unwrap();
    let golden = Golden::read("smollm2/logits_chat");
    let tokens = golden.tokens("input_ids");
    let got = no_grad(|| model.logits(&tokens, &none(&model), &mut Pass::default())).unwrap().to_f64_vec();
    let rows: Vec<&[f64]> = got.chunks_exact(model.vocabulary()).collect();
    let full: Vec<f64> = golden.values("positions").iter().flat_map(|&at| rows[at as usize]).copied().collect();
    let worst = error(&full, golden.values("full_rows"));
    println!("SmolLM2: logits differ by {worst:e} of the largest");
    assert!(worst <= 1e-4, "{worst:e}");
    // Two prompts: the others only take longer.
    let prompts = json(&Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/smollm2/greedy.json"));
    for prompt in prompts["prompts"].as_array().unwrap().iter().take(2) {
        let ids = |key: &str| -> Vec<f64> { serde_json::from_value(prompt[key].clone()).unwrap() };
        let (begin, expected) = (ids("prompt_ids"), ids("new_ids"));
        let (all, _) = greedy(&model, &none(&model), &begin, expected.len());
        assert_eq!(all[begin.len()..], expected[..], "{}", prompt["prompt_text"]);
    }
}

#[test]
fn smollm2_writes_the_token_ids_of_its_tokenizer() {
    let Some(path) = smollm2() else { return };
    let tokenizer = Tokenizer::load(&path).unwrap();
    let golden = json(&Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/smollm2/tokens.json"));
    assert_eq!(tokenizer.eos().map(u64::from), golden["eos_id"].as_u64());
    for case in golden["encode"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.decode_with_special(&ids).unwrap(), case["decoded"].as_str().unwrap(), "{text:?}");
        assert_eq!(tokenizer.decode(&ids).unwrap(), case["decoded_without_special"].as_str().unwrap(), "{text:?}");
    }
}
