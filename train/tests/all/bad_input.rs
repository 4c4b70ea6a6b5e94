//! Bad input: a message that says what, where and what to do, exit code 2, and nothing written over.

use crate::common::{Finished, Place, TINY};
use serde_json::Value;
use std::fs;

/// Runs `fit` on a configuration and expects that no run directory was made.
#[track_caller]
fn refused(place: &Place, config: &str, more: &[&str], parts: &[&str]) {
    place.write("config.toml", config);
    let mut arguments = vec!["fit", "config.toml"];
    arguments.extend(more);
    place.run(&arguments).refused(parts);
    assert!(!place.path("runs").exists(), "a run that cannot begin leaves no directory");
}

#[test]
fn unknown_key() {
    let config = TINY.replace("batch_size", "batchsize");
    refused(
        &Place::new(),
        &config,
        &[],
        &["config.toml:21: unknown key `train.batchsize`; did you mean `batch_size`?"],
    );
}

#[test]
fn unknown_key_on_the_command_line() {
    let parts = ["--set adapter.hrm.state_dims=3: unknown key `adapter.hrm.state_dims`; did you mean `state_dim`?"];
    refused(&Place::new(), TINY, &["--set", "adapter.hrm.state_dims=3"], &parts);
}

#[test]
fn wrong_type() {
    let config = TINY.replace("lr = 1e-2", "lr = \"fast\"");
    refused(&Place::new(), &config, &[], &["config.toml:23: `train.lr` must be a number, found the string \"fast\""]);
}

#[test]
fn missing_configuration() {
    Place::new().run(&["fit", "nowhere.toml"]).refused(&["cannot read nowhere.toml", "No such file"]);
}

fn bytes(place: &Place, content: Option<&[u8]>) -> String {
    if let Some(content) = content {
        place.write("text", content);
    }
    let task = "[task]\nkind = \"bytes\"\npath = \"text\"\nlength = 50\n";
    let rest = TINY.find("[backbone]").unwrap();
    format!("{task}{}", &TINY[rest..])
}

#[test]
fn missing_data_file() {
    let place = Place::new();
    let config = bytes(&place, None);
    refused(
        &place,
        &config,
        &[],
        &["config.toml:", "`task.path` names text, but there is no ", "/text: name one that is there"],
    );
}

#[test]
fn empty_data_file() {
    let place = Place::new();
    let config = bytes(&place, Some(b""));
    refused(&place, &config, &[], &["`task.path`: text is empty"]);
}

/// Tables that have the same keys as `[task]`.
#[test]
fn empty_data_file_of_another_table() {
    let place = Place::new();
    let config = bytes(&place, Some(&[65; 4000]));
    place.write("none", b"");
    for (table, before) in [("pretrain.task", "[pretrain]\nsteps = 1\n"), ("forgetting", "")] {
        let config = format!("{config}{before}[{table}]\nkind = \"bytes\"\npath = \"none\"\nlength = 50\n");
        let message = format!("in `[{table}]`: `task.path`: none is empty");
        refused(&place, &config, &[], &[&message]);
        refused(&place, &config, &["--dry-run"], &[&message]);
    }
}

#[test]
fn data_file_shorter_than_a_window() {
    let place = Place::new();
    let config = bytes(&place, Some(&[65; 900]));
    let parts = ["text has 900 bytes, so its validation part has 45", "`task.length` = 50 needs 51"];
    refused(&place, &config, &[], &parts);
}

#[test]
fn sequences_longer_than_the_context() {
    let place = Place::new();
    place.fit(TINY, "short", &[]);
    let config = TINY
        .replace("layers = 2\nd_model = 16\nheads = 2\n", "path = \"short\"\n")
        .replace("length = 12", "length = 13");
    let parts = [
        "config.toml:13: `backbone.path` holds a model with a context of 12 tokens, but sequences of the task have 13",
        "shorten `task.length`",
    ];
    refused(&place, &config, &[], &parts);
}

/// A configuration that goes on from a saved adapter.
fn with_adapter(path: &str) -> String {
    let start = TINY.find("[[adapter]]").unwrap();
    format!("{}[[adapter]]\nkind = \"hrm\"\npath = \"{path}\"\n", &TINY[..start])
}

#[test]
fn adapter_for_another_width() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let config = with_adapter("run/adapters/hrm");
    let set = ["--set", "backbone.d_model=32"];
    refused(&place, &config, &set, &["`adapter.hrm.path` cannot be used", "the adapter has width 16, the backbone 32"]);
    let config = config.replace("kind = \"hrm\"", "kind = \"lora\"");
    refused(&place, &config, &[], &["holds an adapter of kind \"hrm\", not \"lora\""]);
}

#[test]
fn damaged_adapters_and_models() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let adapter = "run/adapters/hrm/adapter_model.safetensors";
    let whole = fs::read(place.path(adapter)).unwrap();
    let config = with_adapter("run/adapters/hrm");

    fs::write(place.path(adapter), &whole[..whole.len() - 10]).unwrap();
    refused(&place, &config, &[], &["adapter_model.safetensors is not a readable safetensors file"]);
    place.run(&["eval", "run"]).refused(&["adapter_model.safetensors is not a readable safetensors file"]);

    let mut corrupt = whole.clone();
    corrupt[9..20].fill(b'#');
    fs::write(place.path(adapter), &corrupt).unwrap();
    refused(&place, &config, &[], &["adapter_model.safetensors is not a readable safetensors file"]);

    // The last four bytes are a number: not one any more.
    let mut poisoned = whole.clone();
    let end = poisoned.len();
    poisoned[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(place.path(adapter), &poisoned).unwrap();
    place.run(&["eval", "run"]).refused(&["holds NaN at", "every value must be finite"]);

    fs::remove_file(place.path(adapter)).unwrap();
    refused(&place, &config, &[], &["`adapter.hrm.path` cannot be used", "adapter_model.safetensors", "No such file"]);

    fs::write(place.path(adapter), &whole).unwrap();
    let model = place.path("run/backbone/model.safetensors");
    let bytes = fs::read(&model).unwrap();
    fs::write(&model, &bytes[..bytes.len() / 2]).unwrap();
    let config = TINY.replace("layers = 2\nd_model = 16\nheads = 2\n", "path = \"run\"\n");
    refused(&place, &config, &[], &["model.safetensors is not a readable safetensors file"]);
}

#[test]
fn a_directory_that_holds_a_run() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let before = place.snapshot("run");
    let again = place.run(&["fit", "config.toml", "--out", "run"]);
    again.refused(&["run already holds config.toml of a run: continue it with --resume, or choose another --out"]);
    assert!(before == place.snapshot("run"), "nothing in the run was changed");

    let other = place.run(&["fit", "config.toml", "--out", "run", "--resume", "--set", "train.lr=0.5"]);
    other.refused(&[
        "begun with another configuration (it has [train] lr = 0.01, the command asks for [train] lr = 0.5)",
    ]);
    assert!(before == place.snapshot("run"));

    place.run(&["fit", "config.toml", "--out", "nothing", "--resume"]).refused(&["nothing holds no run to resume"]);
    place.run(&["fit", "config.toml", "--resume"]).refused(&["no run of `tiny` under runs/ to resume"]);
}

#[test]
fn a_run_that_another_process_is_at() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let before = place.snapshot("run");
    let held = hankel_trainer::run::lock::try_hold(&place.path("run")).unwrap().unwrap();
    place.run(&["fit", "--out", "run", "--resume"]).refused(&["another process is at the run in run: wait until"]);
    assert!(before == place.snapshot("run"));
    drop(held);
    assert_eq!(place.run(&["fit", "--out", "run", "--resume"]).code, Some(0));
}

#[test]
fn a_run_without_its_backbone() {
    let place = Place::new();
    place.fit(&TINY.replace("[train]", "[pretrain]\nsteps = 3\n[train]"), "run", &[]);
    fs::remove_dir_all(place.path("run/backbone")).unwrap();
    for command in [["eval", "run"], ["generate", "run"]] {
        place.run(&command).refused(&["run has no backbone yet, since its pretraining has not ended"]);
    }
}

#[test]
fn a_damaged_checkpoint() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let newest = fs::read_dir(place.path("run/checkpoints")).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    let whole = fs::read_to_string(newest.join("state.json")).unwrap();
    fs::remove_file(place.path("run/result.json")).unwrap();
    // Of a stage that there is not, it would be a run that has ended, of no rows.
    let mut other: Value = serde_json::from_str(&whole).unwrap();
    other["stage"] = 7.into();
    fs::write(newest.join("state.json"), other.to_string()).unwrap();
    place.run(&["fit", "--out", "run", "--resume"]).refused(&["cannot be read", "state.json", "not of this folder"]);
    fs::write(newest.join("state.json"), "{").unwrap();
    place.run(&["fit", "--out", "run", "--resume"]).refused(&["cannot go on from", "state.json"]);
}

/// Names that folders cannot have, that are hidden, or that mean the backbone.
#[test]
fn names_of_adapters() {
    let place = Place::new();
    place.write("config.toml", TINY);
    let long = format!("adapter.0.name={}", "a".repeat(201));
    for name in ["adapter.0.name=.hrm", "adapter.0.name=none", &long, "adapter.0.truncate={ bound = 1e-300 }"] {
        place.run(&["fit", "config.toml", "--set", name, "--dry-run"]).refused(&["name"]);
    }
}

#[test]
fn a_reason_is_told_once() {
    let place = Place::new();
    place.write("file", "");
    fs::create_dir(place.path("damaged")).unwrap();
    place.write("damaged/result.json", "{bad");
    fs::create_dir(place.path("results")).unwrap();
    place.write("results/e.jsonl", "{}");
    place.write("config.toml", TINY);
    for (arguments, reason) in [
        (
            &["fit", "config.toml", "--out", "file/run"][..],
            "cannot be used as a run directory: cannot create file/run: ",
        ),
        (&["report", "damaged"], "damaged/result.json, line 1: key must be a string"),
        (&["audit", "results"], "results/e.jsonl, line 1: missing field `experiment`"),
    ] {
        let refused = place.run(arguments);
        refused.refused(&[reason]);
        let last = reason.rsplit(": ").find(|part| !part.is_empty()).unwrap();
        assert_eq!(refused.stderr.matches(last).count(), 1, "{}", refused.stderr);
    }
}

#[test]
fn commands_on_what_is_no_run() {
    let place = Place::new();
    place.run(&["eval", "nowhere"]).refused(&["there is no run nowhere"]);
    place.run(&["report", "nowhere"]).refused(&["nowhere is not a run directory"]);
    place.run(&["generate", "nowhere"]).refused(&["there is no run nowhere"]);
    place.fit(TINY, "run", &[]);
    place.run(&["generate", "run"]).refused(&["which is not text: generation is for bytes"]);
    place.run(&["eval", "run", "--split", "test"]).refused(&["has no test sequences"]);
    place.run(&["eval", "run", "--adapter", "hrn"]).refused(&["hrn"]);
    place.run(&["eval", "run", "--expect", "accuracy=1"]).refused(&["expected METRIC>=REFERENCE"]);
    let finished = place.run(&["eval", "run", "--expect", "acuracy>=0.9"]);
    finished.refused(&["no metric `acuracy`; there are", "accuracy"]);
    place.run(&["fit", "--unknown"]).refused(&["unexpected argument '--unknown'"]);
}

/// A full disk: files may not grow beyond a limit, which a write then runs into as it would into the end of a disk.
#[cfg(unix)]
#[test]
fn disk_full_while_saving_a_checkpoint() {
    use std::process::Command;
    let place = Place::new();
    // Rank 32 on a width of 16: the state of the optimizer is by far the largest file.
    let start = TINY.find("[[adapter]]").unwrap();
    let config = format!("{}[[adapter]]\nkind = \"lora\"\nrank = 32\n", &TINY[..start]);
    place.fit(&config, "whole", &[]);
    let binary = env!("CARGO_BIN_EXE_train");
    let limited = |arguments: &str| {
        let script = format!("trap '' XFSZ; ulimit -f 48; exec {binary} fit {arguments}");
        let mut command = Command::new("bash");
        Finished::new(&command.args(["-c", &script]).current_dir(place.path("")).output().unwrap())
    };
    let first = limited("config.toml --out run --set train.checkpoint_every=5");
    first.refused(&[
        "the state after step 5 of `lora` was not saved",
        "cannot write",
        "state.safetensors",
        "File too large",
    ]);
    let left: Vec<_> = fs::read_dir(place.path("run/checkpoints")).into_iter().flatten().collect();
    assert!(left.is_empty(), "no half-written checkpoint is left: {left:?}");

    // With a checkpoint to fall back on, it is named, kept, and enough to finish the run.
    place.fit(&config, "other", &["--set", "train.checkpoint_every=4", "--set", "train.keep_checkpoints=9"]);
    for entry in fs::read_dir(place.path("other/checkpoints")).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("00-lora-step-000004") {
            fs::remove_dir_all(path).unwrap();
        }
    }
    let before = place.snapshot("other/checkpoints");
    let second = limited("--out other --resume");
    second.refused(&[
        "the state after step 8 of `lora` was not saved",
        "last complete checkpoint is other/checkpoints/00-lora-step-000004",
        "continue with --resume",
    ]);
    assert!(before == place.snapshot("other/checkpoints"));
    let third = place.run(&["fit", "--out", "other", "--resume"]);
    assert_eq!(third.code, Some(0), "{}", third.stderr);
    let adapter = "adapters/lora/adapter_model.safetensors";
    assert!(
        fs::read(place.path("other").join(adapter)).unwrap() == fs::read(place.path("whole").join(adapter)).unwrap()
    );
}

/// A run that needs more memory than there is, in a process that may have 4 GiB.
#[cfg(target_os = "linux")]
#[test]
fn a_run_that_does_not_fit() {
    let place = Place::new();
    place.write(
        "config.toml",
        TINY.replace("batch_size = 4", "batch_size = 1048576").replace("length = 12", "length = 4096"),
    );
    let binary = env!("CARGO_BIN_EXE_train");
    let limited = |arguments: &str| {
        let script = format!("ulimit -v 4194304; exec {binary} fit config.toml --out run {arguments}");
        let mut command = std::process::Command::new("sh");
        Finished::new(&command.args(["-c", &script]).current_dir(place.path("")).output().unwrap())
    };
    limited("").refused(&["the run takes about", "are available", "--dry-run", "--force"]);
    assert!(!place.path("run").exists());
    limited("--force").refused(&["out of memory", "bytes were asked for", "batch_size"]);
}

/// A truncation that cannot be made is not found out when the training is over.
#[test]
fn more_states_than_there_are() {
    let place = Place::new();
    for (truncate, parts) in [
        ("truncate = { order = 9 }", "`adapter.hrm.truncate`: order 9 is larger than the 4 states"),
        ("truncate = [{ order = 2 }, { order = 9 }]", "`adapter.hrm.truncate`: order 9"),
        ("reduce = { order = 9 }", "`adapter.hrm.reduce`: order 9"),
        ("reduce = { order = 2, after_epoch = 0.1 }\ntruncate = { order = 3 }", "order 3 is larger than the 2 states"),
    ] {
        refused(&place, &TINY.replace("truncate = { order = 2 }", truncate), &["--dry-run"], &[parts]);
    }
}

/// Its kind can be truncated by default, the adapter that is loaded cannot: that is told before it is trained.
#[test]
fn a_saved_adapter_that_is_not_truncated() {
    let place = Place::new();
    let start = TINY.find("[[adapter]]").unwrap();
    let with = |adapter: &str| format!("{}[[adapter]]\nkind = \"selective\"\n{adapter}\n", &TINY[..start]);
    place.fit(&with("state_dim = 2\nmode = \"signed\""), "signed", &["--set", "train.steps=1"]);
    let on = "name = \"on\"\npath = \"signed/adapters/selective\"\ntruncate = { order = 1 }";
    refused(&place, &with(on), &[], &["`adapter.on.truncate` is not for this adapter", "leave it out"]);
    place.fit(&with("state_dim = 2\ntruncate = { order = 1 }"), "small", &["--set", "train.steps=1"]);
    let on = on.replace("signed/adapters/selective", "small/adapters/selective-order-1");
    refused(&place, &with(&on), &[], &["`adapter.on.truncate`", "truncated along data before"]);
}

/// A rule that the trained adapter does not allow costs its row, and nothing else.
#[test]
fn a_truncation_that_fails_leaves_the_run() {
    let place = Place::new();
    // No bound is known for a memory of more than a million steps.
    let rules = "a_max = 0.99999999\ntruncate = { bound = 1.0 }\nprobe = { gate = 0.0 }";
    let told = place.fit(&TINY.replace("truncate = { order = 2 }", rules), "run", &[]).stderr;
    assert!(told.contains("warning: `hrm` cannot be truncated by bound = 1, and there is no such row:"), "{told}");
    let result: Value = serde_json::from_slice(&fs::read(place.path("run/result.json")).unwrap()).unwrap();
    let rows = result["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["hrm", "hrm-gate-0"]);
    let settings = rows[0]["settings"].as_str().unwrap();
    assert!(settings.contains("not truncated by bound = 1: layer "), "{settings}");
    assert!(!place.path("run/adapters/hrm-bound-1").exists());
}
