//! GGUF files: damaged ones are refused, whole ones give the weights, logits and token ids of independent software.

use hankel_models::Tokenizer;
use hankel_models::gguf::GgufModel;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/gguf").join(name)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// What is only seen when the weights are read.
const IN_WEIGHTS: [&str; 4] =
    ["head_count_3.gguf", "embedding_length_8.gguf", "tensor_transposed.gguf", "norm_wrong_length.gguf"];

#[test]
fn damaged_files_are_refused_with_a_reason() {
    let cases = json(&folder("malformed/cases.json"));
    let mut wrong = Vec::new();
    for case in cases["cases"].as_array().unwrap() {
        let (file, expected) = (case["file"].as_str().unwrap(), case["expect"].as_str().unwrap());
        let path = folder("malformed").join(file);
        let begun = Instant::now();
        let opened = GgufModel::open(&path).map(|_| ()).map_err(|e| e.to_string());
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
            "error" => opened.is_err() || IN_WEIGHTS.contains(&file),
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
