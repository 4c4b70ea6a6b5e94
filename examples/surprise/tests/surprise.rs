//! What a new adapter is to be checked for in one line, and `docs/sandbox.md` followed to the letter.

use hankel_models::adapters::register;
use hankel_models::adapters::stream::conformance;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use surprise::{Settings, Surprise};

const TUTORIAL: &str = include_str!("../../../docs/sandbox.md");
const CONFIG: &str = include_str!("../surprise.toml");

#[test]
fn it_conforms() {
    conformance::<Surprise>(&Settings { means: 3, ..Settings::default() }).unwrap();
}

#[test]
fn it_is_registered_once() {
    register::<Surprise>().unwrap();
    register::<Surprise>().unwrap();
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_surprise")).args(arguments).current_dir(folder).output().unwrap()
}

/// The commands of the tutorial in their order, with shorter training and narrower models.
#[test]
fn the_tutorial_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("examples/surprise/surprise.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(config, CONFIG).unwrap();
    let small = ["train.steps=3", "train.batch_size=4", "task.validation_sequences=8", "backbone.d_model=16"];
    let mut commands = 0;
    for line in TUTORIAL.lines() {
        let Some(arguments) = line.strip_prefix("cargo run --release -p surprise -- ") else { continue };
        let mut arguments: Vec<&str> = arguments.split(' ').collect();
        if arguments[0] == "fit" {
            arguments.extend(small.iter().flat_map(|assignment| ["--set", assignment]));
        }
        let output = run(folder.path(), &arguments);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        commands += 1;
    }
    assert_eq!(commands, 3);
    let read = |name: &str| fs::read_to_string(folder.path().join("runs").join(name)).unwrap();
    assert!(read("surprise/config.toml").contains("means = 16"));
    assert!(read("surprise-2/config.toml").contains("means = 32"));
    let saved = read("surprise/adapters/surprise/adapter_config.json");
    assert!(saved.contains("\"peft_type\": \"STREAM\"") && saved.contains("\"kind\": \"surprise\""), "{saved}");
    assert!(read("surprise/result.json").contains("means = 16, mlp"));
    assert!(read("surprise/report.html").contains("surprise"));
}

#[test]
fn the_tutorial_shows_the_files_that_are_here() {
    let (_, table) = TUTORIAL.split_once("```toml\n").unwrap();
    let (table, _) = table.split_once("```").unwrap();
    assert!(CONFIG.ends_with(table), "surprise.toml has other adapters than docs/sandbox.md");
    let source = include_str!("../src/lib.rs");
    let equation = |text: &str| {
        let (_, body) = text.split_once("let minus_rate").unwrap();
        body.split_once("\n    }\n").unwrap().0.to_owned()
    };
    assert_eq!(equation(source), equation(TUTORIAL));
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x.toml"), CONFIG).unwrap();
    for (assignment, expected) in [
        ("adapter.surprise.means=0", "log_rate of 0 states: there can be 1 to 1048576"),
        ("adapter.surprise.mean=4", "unknown key `adapter.surprise.mean`; did you mean `means`?"),
        ("adapter.lora.kind=suprise", "did you mean `surprise`?"),
    ] {
        let output = run(folder.path(), &["fit", "x.toml", "--set", assignment]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && message.contains(expected), "{message}");
    }
}

/// `truncate` of an adapter that varies in time: a certificate of measured errors, and an adapter that can be used again.
#[test]
fn selective_is_truncated_along_data() {
    let folder = tempfile::tempdir().unwrap();
    let (head, _) = CONFIG.split_once("[[adapter]]").unwrap();
    let adapter = "[[adapter]]\nkind = \"selective\"\nstate_dim = 6\ntruncate = { order = 2 }\n";
    fs::write(folder.path().join("x.toml"), head.to_owned() + adapter).unwrap();
    let small = ["train.steps=3", "train.batch_size=4", "task.validation_sequences=8", "backbone.d_model=16"];
    let mut arguments = vec!["fit", "x.toml", "--out", "run"];
    arguments.extend(small.iter().flat_map(|assignment| ["--set", assignment]));
    let output = run(folder.path(), &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| fs::read_to_string(folder.path().join("run").join(name)).unwrap();
    let certificate = read("adapters/selective-order-2/certificate.json");
    for part in
        ["\"order\": 2", "\"measured_tokens\": 512", "measured on held-out data", "\"calibration_tokens\": 4096"]
    {
        assert!(certificate.contains(part), "{part}: {certificate}");
    }
    assert!(!certificate.contains("error_bound") && read("result.json").contains("\"output_error\""));
    let output = run(folder.path(), &["eval", "run", "--adapter", "selective-order-2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
