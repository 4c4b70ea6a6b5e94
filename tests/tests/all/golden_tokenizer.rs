//! The Mistral tokenizer against sentencepiece and the tokenizers library.

use hankel_models::Tokenizer;
use hankel_models::tokenizer::TokenTexts;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/tokenizer"))
}

fn vectors() -> Value {
    serde_json::from_slice(&fs::read(folder().join("vectors.json")).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn every_text_has_its_ids() {
    let tokenizer = Tokenizer::load(&folder()).unwrap();
    let vectors = vectors();
    let encode = vectors["encode"].as_array().unwrap();
    assert!(encode.len() >= 216);
    for case in encode {
        let text = case["text"].as_str().unwrap();
        let expected = ids(case.get("ids_hf_json").unwrap_or(&case["ids"]));
        assert_eq!(tokenizer.encode(text).unwrap(), expected, "{text:?}");
        let mut with_bos = vec![1];
        with_bos.extend(&expected);
        assert_eq!(tokenizer.encode_with_special(text).unwrap(), with_bos, "{text:?}");
        if case.get("ids_hf_json").is_none() {
            assert_eq!(tokenizer.decode(&expected).unwrap(), case["decoded"].as_str().unwrap(), "{expected:?}");
        }
    }
}

#[test]
fn any_ids_have_their_text() {
    let tokenizer = Tokenizer::load(&folder()).unwrap();
    let vectors = vectors();
    let decode = vectors["decode"].as_array().unwrap();
    assert!(decode.len() >= 54);
    let texts = TokenTexts::of(&tokenizer);
    for case in decode {
        let given = ids(&case["ids"]);
        let expected = case.get("text_hf_json").unwrap_or(&case["text"]).as_str().unwrap();
        assert_eq!(tokenizer.decode(&given).unwrap(), expected, "{given:?}");
        if let Some(kept) = case.get("text_hf_json_keep_special") {
            assert_eq!(tokenizer.decode_with_special(&given).unwrap(), kept.as_str().unwrap(), "{given:?}");
        }
        for mut stream in [tokenizer.stream(), texts.stream()] {
            let mut text: String = given.iter().map(|&id| stream.push(id).unwrap()).collect();
            text.push_str(&stream.finish().unwrap());
            assert_eq!(text, expected, "streamed {given:?}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let tokenizer = Tokenizer::load(&folder()).unwrap();
    assert_eq!((tokenizer.vocabulary(), tokenizer.bos(), tokenizer.eos()), (32_000, Some(1), Some(2)));
    tokenizer.check(32_000).unwrap();
    let message = tokenizer.check(512).unwrap_err().to_string();
    assert!(message.contains("32000") && message.contains("512"), "{message}");
    let texts = TokenTexts::of(&tokenizer);
    assert_eq!(texts.check(512).unwrap_err().to_string(), message);
    assert!(texts.check(32_000).is_ok() && texts.is_end(2) && !texts.is_end(1));
    // Of texts at which an answer ends, those that no decoded text has.
    assert_eq!(tokenizer.special_ids(&["the".into(), "</s>".into(), "<s>".into(), "<none>".into()]), [2, 1]);
    let empty = tempfile::tempdir().unwrap();
    // Without names of special tokens, the ids of the model's configurations end a text.
    let ends = tempfile::tempdir().unwrap();
    fs::copy(folder().join("tokenizer.json"), ends.path().join("tokenizer.json")).unwrap();
    fs::write(ends.path().join("tokenizer_config.json"), "{}").unwrap();
    fs::write(ends.path().join("config.json"), r#"{"eos_token_id": 7}"#).unwrap();
    fs::write(ends.path().join("generation_config.json"), r#"{"eos_token_id": [5, 9]}"#).unwrap();
    let tokenizer = Tokenizer::load(ends.path()).unwrap();
    assert_eq!(tokenizer.eos(), Some(5));
    assert_eq!([4, 5, 7, 8, 9].map(|id| tokenizer.is_end(id)), [false, true, true, false, true]);
    fs::write(ends.path().join("config.json"), r#"{"eos_token_id": "no"}"#).unwrap();
    let malformed = Tokenizer::load(ends.path()).err().unwrap().to_string();
    assert!(malformed.contains("config.json") && malformed.contains("eos_token_id"), "{malformed}");
    let missing = Tokenizer::load(empty.path()).err().unwrap().to_string();
    assert!(missing.contains("tokenizer.json"), "{missing}");
    fs::write(empty.path().join("tokenizer.json"), "{\"model\": 3}").unwrap();
    let malformed = Tokenizer::load(empty.path()).err().unwrap().to_string();
    assert!(malformed.contains("not a readable tokenizer"), "{malformed}");
    fs::copy(folder().join("tokenizer.json"), empty.path().join("tokenizer.json")).unwrap();
    fs::write(empty.path().join("tokenizer_config.json"), "{\"bos_token\": \"<begin>\"}").unwrap();
    let unknown = Tokenizer::load(empty.path()).err().unwrap().to_string();
    assert!(unknown.contains("bos_token") && unknown.contains("<begin>"), "{unknown}");
}

/// Gemma 3 1B has a token of pictures behind its vocabulary.
#[test]
fn an_added_token_without_a_row_is_of_no_text() {
    let place = tempfile::tempdir().unwrap();
    let mut file: Value = serde_json::from_slice(&fs::read(folder().join("tokenizer.json")).unwrap()).unwrap();
    let added = serde_json::json!({
        "id": 32_000, "content": "<image_soft_token>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true
    });
    file["added_tokens"].as_array_mut().unwrap().push(added);
    fs::write(place.path().join("tokenizer.json"), file.to_string()).unwrap();
    let of = |vocab_size: usize| {
        fs::write(place.path().join("config.json"), format!("{{\"vocab_size\": {vocab_size}}}")).unwrap();
        Tokenizer::load(place.path()).unwrap()
    };
    let tokenizer = of(32_000);
    tokenizer.check(32_000).unwrap();
    let texts = TokenTexts::of(&tokenizer);
    texts.check(32_000).unwrap();
    assert_eq!(tokenizer.vocabulary(), 32_000);
    assert_eq!(
        tokenizer.encode("a picture").unwrap(),
        Tokenizer::load(&folder()).unwrap().encode("a picture").unwrap()
    );
    for refused in [
        tokenizer.encode("see <image_soft_token>").unwrap_err().to_string(),
        tokenizer.encode_with_places("see <image_soft_token>").unwrap_err().to_string(),
    ] {
        assert!(refused.contains("\"<image_soft_token>\", whose id 32000 is beyond"), "{refused}");
    }
    // A model with a row for it reads it; one that lacks rows of the vocabulary itself is another's.
    assert_eq!(of(32_001).encode("<image_soft_token>").unwrap(), [32_000]);
    assert!(of(31_000).check(31_000).is_err());
}

/// A file keeps how the last text in Python was cut and padded; the next one is not, there and here.
#[test]
fn a_file_cuts_and_pads_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let original = fs::read_to_string(folder().join("tokenizer.json")).unwrap();
    let mut saved: Value = serde_json::from_str(&original).unwrap();
    saved["truncation"] =
        serde_json::json!({"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0});
    saved["padding"] = serde_json::json!({
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "<unk>"
    });
    fs::write(directory.path().join("tokenizer.json"), saved.to_string()).unwrap();
    let (saved, plain) = (Tokenizer::load(directory.path()).unwrap(), Tokenizer::load(&folder()).unwrap());
    let text = "a text of more than four tokens, and of fewer than sixty-four";
    assert_eq!(saved.encode(text).unwrap(), plain.encode(text).unwrap());
    assert!(plain.encode(text).unwrap().len() > 4);
}

#[test]
fn what_is_put_around_a_text() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let original = fs::read_to_string(folder().join("tokenizer.json")).unwrap();
    let mut bare: Value = serde_json::from_str(&original).unwrap();
    assert!(!bare["post_processor"].is_null());
    bare["post_processor"] = Value::Null;
    let bare = bare.to_string();
    let names = r#""bos_token": "<s>", "eos_token": "</s>""#;
    let cases: [(&String, String, [&[u32]; 2]); 6] = [
        (&original, format!("{{{names}}}"), [&[1], &[]]),
        (&original, format!("{{{names}, \"add_bos_token\": false}}"), [&[], &[]]),
        (&original, format!("{{{names}, \"add_eos_token\": true}}"), [&[1], &[2]]),
        // A token that begins a text has a name here, but nothing puts it before one.
        (&bare, format!("{{{names}}}"), [&[], &[]]),
        (&bare, format!("{{{names}, \"add_bos_token\": true}}"), [&[1], &[]]),
        (&bare, "{\"add_bos_token\": true}".to_owned(), [&[], &[]]),
    ];
    for (file, config, around) in cases {
        write("tokenizer.json", file);
        write("tokenizer_config.json", &config);
        let tokenizer = Tokenizer::load(directory.path()).unwrap();
        let [before, after] = around;
        assert_eq!(tokenizer.before(), before, "{config}");
        let text = tokenizer.encode("Hi").unwrap();
        assert_eq!(tokenizer.encode_with_special("Hi").unwrap(), [before, &text, after].concat(), "{config}");
    }
}

/// Ids of transformers 5.24 (`PreTrainedTokenizerFast`).
#[test]
fn added_tokens_of_the_configuration_count() {
    let directory = tempfile::tempdir().unwrap();
    let original = fs::read_to_string(folder().join("tokenizer.json")).unwrap();
    let mut none: Value = serde_json::from_str(&original).unwrap();
    none["added_tokens"] = serde_json::json!([]);
    let names = r#""bos_token": "<s>", "eos_token": "</s>""#;
    let listed = |tokens: &str| format!("{{{names}, \"added_tokens_decoder\": {{{tokens}}}}}");
    for (file, config, text, expected) in [
        (
            &original,
            listed(r#""32000": {"content": "<|im_start|>", "special": true}"#),
            "<|im_start|>user</s> hi",
            &[1, 32000, 2188, 2, 28705, 12014][..],
        ),
        (
            &original,
            listed(r#""2": {"content": "</s>", "rstrip": true, "special": true}"#),
            "user</s> hi",
            &[1, 2188, 2, 12014],
        ),
        (&none.to_string(), format!("{{{names}}}"), "user</s> hi", &[1, 2188, 2, 28705, 12014]),
    ] {
        fs::write(directory.path().join("tokenizer.json"), file).unwrap();
        fs::write(directory.path().join("tokenizer_config.json"), &config).unwrap();
        let tokenizer = Tokenizer::load(directory.path()).unwrap();
        assert_eq!(tokenizer.encode_with_special(text).unwrap(), expected, "{config}");
        assert_eq!(tokenizer.decode(&[2]).unwrap(), "", "{config}");
    }
    fs::write(directory.path().join("tokenizer_config.json"), r#"{"added_tokens_decoder": {"2": 3}}"#).unwrap();
    let message = Tokenizer::load(directory.path()).err().unwrap().to_string();
    assert!(message.contains("tokenizer_config.json: added_tokens_decoder: "), "{message}");
}

#[test]
fn tokens_know_their_places() {
    let tokenizer = Tokenizer::load(&folder()).unwrap();
    let text = "Grüße, 東京!\n  x";
    let places = tokenizer.encode_with_places(text).unwrap();
    assert_eq!(places.iter().map(|(id, _)| *id).collect::<Vec<_>>(), tokenizer.encode(text).unwrap());
    let mut end = 0;
    for (id, place) in &places {
        assert!(text.get(place.clone()).is_some() && place.start <= end && end <= place.end, "{id} {place:?}");
        end = place.end;
    }
    assert_eq!(end, text.len());
}

/// The `Strip` decoder of the `tokenizers` crate counts below zero when a token has fewer characters than it cuts off.
#[test]
fn a_file_that_makes_the_tokenizers_crate_panic_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let json = r#"{"version": "1.0", "added_tokens": [], "decoder": {"type": "Strip", "content": " ", "start": 0, "stop": 5},
        "model": {"type": "WordLevel", "vocab": {" ": 0, "<unk>": 1}, "unk_token": "<unk>"}}"#;
    fs::write(directory.path().join("tokenizer.json"), json).unwrap();
    let tokenizer = Tokenizer::load(directory.path()).unwrap();
    let message = tokenizer.decode(&[0]).unwrap_err().to_string();
    assert!(message.contains("tokenizer.json: the tokenizers crate cannot use it and panics: "), "{message}");
    assert_eq!(tokenizer.decode(&[]).unwrap(), "", "it can be used afterwards");
}
