//! Bytes, performances, and training together with the backbone.

use super::commands::json;
use crate::common::Place;
use crate::common::TINY;
use hankel_trainer::tasks::maestro::events::Note;
use hankel_trainer::tasks::maestro::events::decode;
use hankel_trainer::tasks::maestro::events::quantize;
use hankel_trainer::tasks::maestro::events::token;
use hankel_trainer::tasks::maestro::midi;
use std::fs;

#[test]
fn bytes_are_learnt_and_written() {
    let place = Place::new();
    let text = "the quick brown fox jumps over the lazy dog. ".repeat(200);
    place.write("text", &text);
    let config = r#"
name = "bytes"
[task]
kind = "bytes"
path = "text"
length = 24
train_sequences = 200
validation_sequences = 10
test_sequences = 4
[backbone]
layers = 1
d_model = 32
heads = 2
context = 32
[pretrain]
steps = 150
batch_size = 16
lr = 1e-2
[train]
steps = 20
batch_size = 8
label_smoothing = 0.1
[[adapter]]
kind = "none"
[[adapter]]
kind = "hrm"
state_dim = 4
"#;
    place.fit(config, "run", &[]);
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    let metrics = &result["rows"][1]["validation"]["metrics"];
    let (bits, loss) = (metrics["bits_per_character"].as_f64().unwrap(), metrics["loss"].as_f64().unwrap());
    assert!((bits - loss / std::f64::consts::LN_2).abs() < 1e-12);
    assert!(bits < 2.0, "45 bytes over and over are learnt: {bits}");
    assert!(metrics["label_smoothed_bits_per_character"].as_f64().unwrap() > bits);
    assert_eq!(result["data"][0]["bytes"], text.len());
    assert!(result["rows"][0]["training"].is_null());
    let none = &result["rows"][0]["validation"]["metrics"]["loss"];
    let pretrained = result["backbone"]["pretrain"]["validation"]["metrics"]["loss"].as_f64().unwrap();
    // Sums over batches of another size round in another order.
    assert!((none.as_f64().unwrap() - pretrained).abs() < 1e-12, "the same backbone: {none}, {pretrained}");

    // Longer than the context: the state is rebuilt on the way.
    let generate = |more: &[&str]| {
        let mut arguments = vec!["generate", "run", "--adapter", "hrm", "--prompt", "the quick ", "--length", "60"];
        arguments.extend(more);
        place.run(&arguments)
    };
    let greedy = generate(&["--temperature", "0"]);
    assert_eq!(greedy.code, Some(0), "{}", greedy.stderr);
    assert!(greedy.stdout.starts_with("the quick brown fox"), "{}", greedy.stdout);
    assert_eq!(greedy.stdout.len(), 10 + 60 + 1);
    let drawn = generate(&["--temperature", "1", "--seed", "5"]);
    assert_eq!(drawn.stdout, generate(&["--temperature", "1", "--seed", "5"]).stdout);
    assert_ne!(drawn.stdout, generate(&["--temperature", "1", "--seed", "6"]).stdout);
    assert_eq!(generate(&["--top-p", "0"]).code, Some(2));
}

#[test]
fn performances_are_learnt_and_played() {
    let place = Place::new();
    let mut table = "split,midi_filename\n".to_owned();
    for (index, split) in ["train", "train", "validation"].into_iter().enumerate() {
        let note = |i: u32| Note { on: 20 * i, off: 20 * i + 20, pitch: 60 + (i % 5) as u8, velocity: 6 };
        let notes: Vec<Note> = (0..60 + 10 * index as u32).map(note).collect();
        place.write(&format!("{index}.midi"), midi::write(&notes));
        table += &[split, ",", &index.to_string(), ".midi\n"].concat();
    }
    place.write("maestro.csv", table);
    let start = TINY.find("[backbone]").unwrap();
    let config = "name = \"maestro\"\n[task]\nkind = \"maestro\"\npath = \".\"\nlength = 24\ntrain_sequences = 64\n\
                  validation_sequences = 8\ntest_sequences = 0\n"
        .to_owned()
        + &TINY[start..].replace("train_head = true", "freeze = false").replace("steps = 12", "steps = 60");
    let finished = place.fit(&config, "run", &[]);
    assert!(finished.stderr.contains("accuracy without learning: order_0 "), "{}", finished.stderr);
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    let metrics = &result["rows"][0]["validation"]["metrics"];
    let (bits, loss) = (metrics["bits_per_event"].as_f64().unwrap(), metrics["loss"].as_f64().unwrap());
    assert!((bits - loss / std::f64::consts::LN_2).abs() < 1e-12 && bits < 8.0, "{bits}");
    // on, +160ms, +40ms, off, and over again: one event of context is not enough, two are.
    let baselines = &result["task"]["baselines"];
    assert!(baselines["order_1"].as_f64().unwrap() < 0.95, "{baselines}");
    assert!(baselines["order_3"].as_f64().unwrap() > 0.95, "{baselines}");
    let generate = ["generate", "run", "--adapter", "hrm", "--max-tokens", "30", "--prompt", "velocity6 on60 +160ms"];
    let play = |more: &[&str]| place.run(&[&generate[..], more].concat());
    let printed = play(&["--midi", "out.mid"]);
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    let tokens: Vec<u32> = printed.stdout.split_whitespace().map(|name| token(name).unwrap()).collect();
    assert_eq!(tokens.len(), 33);
    let notes = quantize(&midi::read(&fs::read(place.path("out.mid")).unwrap()).unwrap());
    assert!(notes[0].pitch == 60 && notes == decode(tokens), "{notes:?}");
    play(&["--midi", "out.mid"]).refused(&["out.mid: this file exists already"]);
    place.run(&["generate", "run", "--prompt", "on60 on200"]).refused(&["--prompt: \"on200\" is not an event"]);
    assert!(place.run(&["generate", "run", "--max-tokens", "2"]).stdout.starts_with("velocity6 "));
}

#[test]
fn joint_training_begins_afresh_for_every_adapter() {
    let place = Place::new();
    let config = TINY.replace("train_head = true", "freeze = false")
        + "\n[[adapter]]\nkind = \"hrm\"\nname = \"twin\"\nstate_dim = 4\n";
    place.fit(&config, "run", &[]);
    let bytes = |name: &str, file: &str| fs::read(place.path("run/adapters").join(name).join(file)).unwrap();
    for file in ["adapter_model.safetensors", "trained_backbone.safetensors"] {
        assert!(bytes("hrm", file) == bytes("twin", file), "the same backbone, batches and seed: {file}");
    }
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    assert_eq!(result["rows"][0]["parameters"]["frozen"], 0);
    assert!(result["rows"][0]["parameters"]["backbone"].as_u64().unwrap() > 5000);
    // Evaluation from the files finds the jointly trained backbone.
    let again =
        place.run(&["eval", "run", "--adapter", "hrm", "--expect", "loss<=hrm+1e-6", "--expect", "loss>=hrm-1e-6"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
}
