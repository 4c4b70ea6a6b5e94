//! The commands on small runs: what they write, print and exit with.

use crate::common::Finished;
use crate::common::Place;
use crate::common::TINY;
use std::fs;
#[cfg(unix)]
use std::io::BufRead;
#[cfg(unix)]
use std::io::BufReader;
#[cfg(unix)]
use std::io::Read;
#[cfg(unix)]
use std::process::Command;
#[cfg(unix)]
use std::process::Stdio;

pub fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Two factors that are both 0 get no gradient, for ever; without a learning rate nothing moves.
#[test]
fn adapters_that_cannot_learn_are_named() {
    let place = Place::new();
    let dead = TINY.replace("state_dim = 4", "state_dim = 4\ngate_init = 0.0\nc_std = 0.0");
    let told = place.fit(&dead, "dead", &[]).stderr;
    assert!(
        told.contains("warning: no value of `hrm` got a gradient in the first 10 steps: it cannot learn"),
        "{told}"
    );
    let told = place.fit(TINY, "still", &["--set", "train.lr=0"]).stderr;
    assert!(told.contains("warning: no value of `hrm` moved in the first 10 steps"), "{told}");
    let told = place.fit(TINY, "well", &[]).stderr;
    assert!(!told.contains("in the first 10 steps"), "{told}");
}

/// With no steps every row is evaluated as it is.
#[test]
fn no_steps_evaluate_only() {
    let place = Place::new();
    place.fit(TINY, "none", &["--set", "train.steps=0"]);
    let result = json(&fs::read_to_string(place.path("none/result.json")).unwrap());
    assert!(result["rows"][0]["training"].is_null() && result["rows"][0]["validation"]["metrics"]["loss"].is_f64());
    let refused = place.run(&["fit", "config.toml", "--out", "p", "--set", "pretrain.steps=0"]);
    refused.refused(&["`pretrain.steps` must be at least 1"]);
    // What is laid out for steps is left out.
    place.fit(TINY, "whole", &["--set", "train.steps=0", "--set", "adapter.hrm.reduce={order=2}"]);
    let result = json(&fs::read_to_string(place.path("whole/result.json")).unwrap());
    assert_eq!(result["rows"][0]["layers"][0]["order"], 4);
    let adalora = "kind = \"adalora\"\ninit_rank = 4\ntinit = 6\ntfinal = 6\n";
    let start = TINY.find("[[adapter]]").unwrap();
    place.fit(&format!("{}[[adapter]]\n{adalora}", &TINY[..start]), "ranks", &["--set", "train.steps=0"]);
    let evaluated = place.run(&["eval", "ranks", "--adapter", "adalora", "--expect", "loss<=adalora+1e-5"]);
    assert_eq!(evaluated.code, Some(0), "{}", evaluated.stderr);
}

/// Training ends one step behind an allocation, in which what was pruned comes back.
#[test]
fn the_adalora_that_is_scored_is_the_one_that_is_saved() {
    let adalora = "kind = \"adalora\"\ninit_rank = 4\ntarget_rank = 2\ntinit = 1\ntfinal = 0\ndelta_t = 5\n";
    let start = TINY.find("[[adapter]]").unwrap();
    let place = Place::new();
    place.fit(&format!("{}[[adapter]]\n{adalora}", &TINY[..start]), "run", &[]);
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    let layers = result["rows"][0]["layers"].as_array().unwrap();
    let ranks: u64 = layers.iter().map(|layer| layer["order"].as_u64().unwrap()).sum();
    assert_eq!(ranks, 2 * 4, "a mean of 2 over 4 projections: {layers:?}");
    let check = |expectation: &str| place.run(&["eval", "run", "--adapter", "adalora", "--expect", expectation]);
    for expectation in ["loss<=adalora+1e-5", "loss>=adalora-1e-5"] {
        let checked = check(expectation);
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    }
}

#[test]
fn what_is_forgotten_is_measured_by_eval_too() {
    let place = Place::new();
    let other = "[forgetting]\nkind = \"dfa\"\nlength = 12\ntable_seed = 7\nvalidation_sequences = 8\n";
    place.fit(&format!("{TINY}{other}"), "run", &["--set", "task.test_sequences=8"]);
    let eval = |more: &[&str]| place.run(&[&["eval", "run", "--adapter", "hrm"], more].concat());
    for expectation in ["forgetting<=hrm+1e-5", "forgetting>=hrm-1e-5"] {
        let finished = eval(&["--expect", expectation]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    }
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    assert!(result["rows"][0]["validation"]["metrics"]["forgetting"].as_f64().unwrap().abs() > 1e-3);
    // It is of validation: elsewhere it is told before anything is evaluated.
    let elsewhere = eval(&["--split", "test", "--expect", "forgetting<=1"]);
    elsewhere.refused(&["there is no metric `forgetting`; there are accuracy"]);
    assert!(elsewhere.stdout.is_empty(), "{}", elsewhere.stdout);
}

#[test]
fn a_run_leaves_what_it_should() {
    let place = Place::new();
    place.write("config.toml", TINY);
    for _ in 0..2 {
        let finished = place.run(&["fit", "config.toml"]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert!(finished.stdout.contains("hrm-order-2"), "{}", finished.stdout);
    }
    let run = place.path("runs/tiny-2");
    for file in ["config.toml", "metrics.jsonl", "result.json", "report.html", "backbone/config.json", "adapters/hrm"] {
        assert!(run.join(file).exists(), "{file}");
    }
    let result = json(&fs::read_to_string(run.join("result.json")).unwrap());
    let rows = result["rows"].as_array().unwrap();
    // 2 layers of 2 * 4 * 16 + 2 * 4 + 1 values, and a head of 6 * 16.
    assert_eq!(rows[0]["parameters"]["adapter"], 2 * (2 * 4 * 16 + 2 * 4 + 1));
    assert_eq!(rows[0]["parameters"]["head"], 96);
    assert_eq!(rows[0]["training"]["tokens"], 12 * 2 * 4 * 12);
    assert_eq!(rows[1]["truncated_from"], "hrm");
    for layer in rows[1]["layers"].as_array().unwrap() {
        assert_eq!(layer["order"], 2);
        assert!(layer["hinf_error"].as_f64().unwrap() <= layer["error_bound"].as_f64().unwrap() * (1.0 + 1e-6));
    }
    assert_eq!(result["task"]["transition_table"].as_array().unwrap().len(), 4);
    // The resolved configuration gives the same run again.
    let resolved = fs::read_to_string(run.join("config.toml")).unwrap();
    place.fit(&resolved, "again", &[]);
    let adapter = "adapters/hrm/adapter_model.safetensors";
    assert!(fs::read(run.join(adapter)).unwrap() == fs::read(place.path("again").join(adapter)).unwrap());
}

#[test]
fn regularization_lowers_the_singular_values() {
    let place = Place::new();
    let sum = |run: &str, more: &[&str]| {
        place.fit(TINY, run, more);
        let result = json(&fs::read_to_string(place.path(run).join("result.json")).unwrap());
        let layers = result["rows"][0]["layers"].as_array().unwrap().clone();
        let values = layers.iter().flat_map(|layer| layer["hankel_singular_values"].as_array().unwrap().clone());
        values.map(|value| value.as_f64().unwrap()).sum::<f64>()
    };
    let free = sum("free", &[]);
    let held = sum("held", &["--set", "adapter.hrm.hsv_regularization=10"]);
    assert!(held < 0.8 * free, "{held} {free}");
    let late =
        place.run(&["fit", "config.toml", "--out", "late", "--set", "adapter.hrm.reduce={after_epoch=9,order=2}"]);
    late.refused(&["adapter.hrm", "after_epoch = 9", "12 steps", "truncate"]);
    assert!(!place.path("late").exists());
}

#[test]
fn eval_repeats_the_figures_of_the_run() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    let finished = place.run(&["eval", "run", "--json", "--adapter", "hrm", "--adapter", "run/adapters/hrm-order-2"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let scores = json(&finished.stdout);
    for row in 0..2 {
        let value = |scores: &serde_json::Value| scores["metrics"]["loss"].as_f64().unwrap();
        let (now, then) = (value(&scores[row]["scores"]), value(&result["rows"][row]["validation"]));
        // The truncated adapter was evaluated from memory, now from its files.
        assert!((now - then).abs() < 1e-5 * then, "{now} {then}");
    }
    let all = place.run(&["eval", "run"]);
    for row in ["none", "hrm ", "hrm-order-2"] {
        assert!(all.stdout.contains(row), "{}", all.stdout);
    }
    // Without the head that was trained with it, an adapter is something else: that is said.
    fs::create_dir(place.path("bare")).unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        fs::copy(place.path("run/adapters/hrm").join(file), place.path("bare").join(file)).unwrap();
    }
    let bare = place.run(&["eval", "run", "--adapter", "bare"]);
    assert_eq!(bare.code, Some(0), "{}", bare.stderr);
    assert!(bare.stderr.contains("`bare` comes without trained_backbone.safetensors"), "{}", bare.stderr);
    place.run(&["eval", "run", "-o", "out"]).refused(&["-o: the task of run has no answers to write"]);
    let all = place.run(&["eval", "run", "--expect", "loss<=0"]);
    assert!(
        all.code == Some(1) && all.stderr.contains("hrm: loss is") && !all.stderr.contains("none: loss"),
        "{}",
        all.stderr
    );
    let check = |expectation: &str| place.run(&["eval", "run", "--adapter", "hrm", "--expect", expectation]);
    assert_eq!(check("accuracy>=hrm-0.001").code, Some(0));
    assert_eq!(check("loss<=hrm + 0.001").code, Some(0));
    // A row is a name, a sign and a number; one that is not there is told before anything is evaluated.
    check("loss<=hrm32").refused(&["--expect loss<=hrm32", "neither a number nor a row (hrm, hrm-order-2)"]);
    place.fit(TINY, "tested", &["--set", "task.test_sequences=8"]);
    let result = json(&fs::read_to_string(place.path("tested/result.json")).unwrap());
    let loss = |split: &str| result["rows"][0][split]["metrics"]["loss"].as_f64().unwrap();
    assert!((loss("test") - loss("validation")).abs() > 0.01, "the splits can be told apart");
    for (split, sign) in [("test", ">="), ("test", "<="), ("validation", ">="), ("validation", "<=")] {
        let expectation = format!("loss{sign}hrm{}1e-5", if sign == ">=" { "-" } else { "+" });
        let finished = place.run(&["eval", "tested", "--split", split, "--adapter", "hrm", "--expect", &expectation]);
        assert_eq!(finished.code, Some(0), "{split} {expectation}: {}", finished.stderr);
    }
    let train = place.run(&["eval", "tested", "--split", "train", "--adapter", "hrm", "--expect", "loss<=hrm"]);
    train.refused(&["no figures on training data"]);
    let few = place.run(&["eval", "tested", "--sequences", "3", "--adapter", "hrm", "--expect", "loss<=hrm"]);
    few.refused(&["the figure of row `hrm` is of ", " sequences, and --sequences asks for 3"]);
    // An adapter is scored by its own settings, not by those of the others.
    let own = TINY.replace("truncate = {", "train = { label_smoothing = 0.1 }\ntruncate = {");
    place.fit(&own, "smoothed", &[]);
    for row in ["hrm", "hrm-order-2"] {
        let expectation = format!("label_smoothed_loss<={row}+1e-5");
        let finished = place.run(&["eval", "smoothed", "--adapter", row, "--expect", &expectation]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    }
    let failed = check("accuracy>=hrm+0.001");
    assert_eq!(failed.code, Some(1));
    assert!(
        failed.stderr.contains("hrm: accuracy is") && failed.stderr.contains("expected at least"),
        "{}",
        failed.stderr
    );
}

#[cfg(unix)]
#[test]
fn an_interrupted_evaluation_prints_what_is_finished() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    place.run(&["eval", "run", "--sequences", "0"]).refused(&["--sequences"]);
    let config = fs::read_to_string(place.path("run/config.toml")).unwrap();
    let more = config.replace("validation_sequences = 16", "validation_sequences = 15000");
    assert!(config != more);
    place.write("run/config.toml", more);
    let mut command = place.command(&["eval", "run", "--adapter", "hrm", "--adapter", "none", "--expect", "loss<=0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Of the second adapter it is told, as it begins, that it comes without the trained head.
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert!(line.contains("`none` comes without"), "{line}");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    told.read_to_string(&mut line).unwrap();
    let finished = child.wait_with_output().unwrap();
    assert_eq!(finished.status.code(), Some(130), "{line}");
    assert!(line.contains("interrupted while `none` was evaluated") && !line.contains("saving"), "{line}");
    let printed = String::from_utf8(finished.stdout).unwrap();
    assert!(
        printed.starts_with("hrm ") && printed.contains("15000 sequences") && !printed.contains("none"),
        "{printed}"
    );
}

#[test]
fn a_reduced_adapter_is_trained_on() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let start = TINY.find("[[adapter]]").unwrap();
    let adapter = "[[adapter]]\nkind = \"hrm\"\nname = \"on\"\npath = \"run/adapters/hrm-order-2\"\n";
    place.fit(&format!("{}{adapter}", &TINY[..start]), "more", &[]);
    let result = json(&fs::read_to_string(place.path("more/result.json")).unwrap());
    let row = &result["rows"][0];
    assert_eq!(row["layers"][0]["order"], 2);
    let radius = row["layers"][0]["spectral_radius"].as_f64().unwrap();
    assert!(radius > 0.0 && radius < 1.0);
    let bytes = |run: &str, name: &str| {
        fs::read(place.path(run).join("adapters").join(name).join("adapter_model.safetensors")).unwrap()
    };
    assert!(bytes("run", "hrm-order-2") != bytes("more", "on"), "it was trained");
    // It begins with the head that was trained with it.
    let loss = |run: &str, row: usize| {
        let result = json(&fs::read_to_string(place.path(run).join("result.json")).unwrap());
        result["rows"][row]["validation"]["metrics"]["loss"].as_f64().unwrap()
    };
    let configuration = format!("{}{adapter}", &TINY[..start]);
    place.fit(&configuration, "same", &["--set", "train.steps=0"]);
    let (now, then) = (loss("same", 0), loss("run", 1));
    assert!((now - then).abs() < 1e-5 * then, "{now} {then}");
    let empty = place.run(&["fit", "config.toml", "--out", "empty", "--set", "adapter.on.hsv_regularization=0.1"]);
    empty.refused(&["`adapter.on.hsv_regularization`", "holds a truncated adapter"]);
    let frozen = place.run(&["fit", "config.toml", "--out", "frozen", "--set", "backbone.train_head=false"]);
    frozen.refused(&["`adapter.on.path` cannot be used", "trained_backbone.safetensors holds", "is frozen here"]);
    assert!(!place.path("frozen").exists());
    // Behind a checkpoint it is the head of the checkpoint.
    let often = ["--set", "train.checkpoint_every=5", "--set", "train.keep_checkpoints=9"];
    place.fit(&configuration, "again", &often);
    for entry in fs::read_dir(place.path("again/checkpoints")).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("00-on-step-000005") {
            fs::remove_dir_all(path).unwrap();
        }
    }
    let resumed = place.run(&["fit", "--out", "again", "--resume"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    assert!(resumed.stderr.contains("resuming `on` after step 5"), "{}", resumed.stderr);
    let head = |run: &str| fs::read(place.path(run).join("adapters/on/trained_backbone.safetensors")).unwrap();
    assert!(bytes("more", "on") == bytes("again", "on") && head("more") == head("again"));
}

#[test]
fn every_kind_of_adapter() {
    let start = TINY.find("[[adapter]]").unwrap();
    let kinds = [
        (
            "hrm-both",
            "kind = \"hrm\"\nstate_dim = 3\nsites = [\"attention\", \"mlp\"]\ntrain_gate = false",
            4 * (96 + 7),
        ),
        ("lora", "kind = \"lora\"\nrank = 2\ndropout = 0.1", 2 * 2 * 64),
        ("rslora", "kind = \"lora\"\nrslora = true\nrank = 2\ntargets = \"up_proj\"", 2 * 2 * 80),
        ("dora", "kind = \"dora\"\nrank = 2\ntargets = \"all-linear\"", 2 * (2 * 288 + 144)),
        (
            "adalora",
            "kind = \"adalora\"\ninit_rank = 4\ntargets = [\"up_proj\", \"down_proj\"]\ndelta_t = 1",
            2 * 4 * 162,
        ),
        ("ia3", "kind = \"ia3\"", 2 * (16 + 16 + 64)),
    ];
    let tables = kinds.map(|(name, text, _)| format!("[[adapter]]\nname = \"{name}\"\n{text}\n"));
    let place = Place::new();
    place.fit(&format!("{}{}", &TINY[..start], tables.join("\n")), "run", &[]);
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    let names: Vec<&str> = kinds.iter().map(|(name, ..)| *name).collect();
    let mut arguments = vec!["eval", "run", "--json"];
    names.iter().for_each(|name| arguments.extend(["--adapter", name]));
    let evaluated = place.run(&arguments);
    assert_eq!(evaluated.code, Some(0), "{}", evaluated.stderr);
    let evaluated = json(&evaluated.stdout);
    for (i, (name, _, parameters)) in kinds.iter().enumerate() {
        let row = &result["rows"][i];
        assert_eq!((&row["name"], &row["parameters"]["adapter"]), (&(*name).into(), &(*parameters).into()));
        let loss = |scores: &serde_json::Value| scores["metrics"]["loss"].as_f64().unwrap();
        let (now, then) = (loss(&evaluated[i]["scores"]), loss(&row["validation"]));
        // From its files, AdaLoRA is what is left of it.
        assert!((now - then).abs() < 1e-5 * then, "{name}: {now} {then}");
        let (adapter, out) = (format!("run/adapters/{name}"), format!("merged-{name}"));
        let merged = place.run(&["merge", &adapter, "--model", "run/backbone", "-o", &out]);
        if i == 0 {
            merged.refused(&["an adapter of kind \"hrm\" cannot be merged"]);
            continue;
        }
        assert_eq!(merged.code, Some(0), "{}", merged.stderr);
        // Into the backbone, the trained head as well.
        let alone = format!("{}[[adapter]]\nkind = \"none\"\n", &TINY[..start])
            .replace("dropout = 0.1\ntrain_head = true", &format!("path = \"{out}\"\ntrain_head = false"))
            .replace("layers = 2\nd_model = 16\nheads = 2\n", "");
        let run = format!("alone-{name}");
        place.fit(&alone, &run, &[]);
        let result = json(&fs::read_to_string(place.path(&run).join("result.json")).unwrap());
        let now = loss(&result["rows"][0]["validation"]);
        assert!((now - then).abs() < 1e-5 * then, "{name} merged: {now} {then}");
    }
    // A head that was trained alone is merged by itself.
    place.fit(&format!("{}[[adapter]]\nkind = \"none\"\n", &TINY[..start]), "head", &[]);
    let merged = place.run(&["merge", "head/adapters/none", "--model", "head/backbone", "-o", "merged-head"]);
    assert_eq!(merged.code, Some(0), "{}", merged.stderr);
    assert!(merged.stdout.contains("there is no update to fold in"), "{}", merged.stdout);
    let head = |path: &str| fs::read(place.path(path).join("model.safetensors")).unwrap();
    assert!(head("merged-head") != head("head/backbone"));
    let ranks: Vec<u64> =
        result["rows"][4]["layers"].as_array().unwrap().iter().map(|l| l["order"].as_u64().unwrap()).collect();
    assert!(ranks.len() == 4 && ranks.iter().sum::<u64>() <= 4 * 3, "{ranks:?}");
}

#[test]
fn a_budget_is_solved_and_a_schedule_must_fit() {
    let start = TINY.find("[[adapter]]").unwrap();
    let place = Place::new();
    let dry = |adapter: &str| {
        place.write("config.toml", format!("{}[[adapter]]\n{adapter}\n", &TINY[..start]));
        place.run(&["fit", "config.toml", "--dry-run"])
    };
    let solved = dry("kind = \"dora\"\nbudget = 1000\ntargets = \"all-linear\"");
    assert_eq!(solved.code, Some(0), "{}", solved.stderr);
    // 2 layers of 288 values a rank and 144 magnitudes.
    let told = "warning: adapter.dora: a budget of 1000 parameters gives rank = 1 with 864 parameters (-13.60 %)";
    assert!(solved.stderr.contains(told), "{}", solved.stderr);
    assert!(solved.stdout.contains("864 parameters"), "{}", solved.stdout);
    dry("kind = \"lora\"\nrank = 2\ntargets = [\"q_proj\", \"gate_proj\"]").refused(&[
        "config.toml:",
        "adapter.lora.targets",
        "\"gate_proj\" matches no projection",
        "up_proj",
    ]);
    dry("kind = \"adalora\"\ninit_rank = 2\ntinit = 6\ntfinal = 6")
        .refused(&["`adapter.adalora` cannot be attached", "tinit = 6 and tfinal = 6 leave none of the 12 steps"]);
    dry("kind = \"ia3\"\ntargets = \"v_proj\"\nfeedforward = \"down_proj\"")
        .refused(&["adapter.ia3.feedforward", "\"down_proj\", which is not among `targets`"]);
}

#[test]
fn dry_run_tells_and_trains_nothing() {
    let place = Place::new();
    place.write("config.toml", TINY);
    let finished = place.run(&["fit", "config.toml", "--dry-run"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    for part in [
        "a_max = 0.91666",
        "scan = ",
        "table_seed = 3",
        "274 parameters",
        "window_8",
        "optimizer moments",
        "memory in total",
        "first sequence:",
    ] {
        assert!(finished.stdout.contains(part), "{part} in {}", finished.stdout);
    }
    assert!(!place.path("runs").exists());
}

#[test]
fn a_loss_that_is_not_finite_stops_the_run() {
    let place = Place::new();
    place.write("config.toml", TINY);
    let set = [
        "--set",
        "train.lr=1e30",
        "--set",
        "train.clip=0",
        "--set",
        "train.warmup_steps=0",
        "--set",
        "train.checkpoint_every=1",
    ];
    let mut arguments = vec!["fit", "config.toml", "--out", "run"];
    arguments.extend(set);
    let finished = place.run(&arguments);
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    for part in [
        "`hrm` stopped at step",
        "produced a value that is not finite",
        " in layers.",
        "last good checkpoint is run/checkpoints/",
    ] {
        assert!(finished.stderr.contains(part), "{part} in {}", finished.stderr);
    }
    let metrics = fs::read_to_string(place.path("run/metrics.jsonl")).unwrap();
    assert!(metrics.lines().last().unwrap().contains("\"event\":\"stopped\""));
}

/// The last step has no next one whose loss would show what it has left.
#[test]
fn values_that_the_last_step_leaves_stop_the_run() {
    let place = Place::new();
    place.write("config.toml", TINY);
    let set = ["train.lr=1e300", "train.clip=0", "train.warmup_steps=0", "train.steps=1"];
    let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
    let finished = place.run(&[&["fit", "config.toml", "--out", "run"], &set[..]].concat());
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("`hrm` stopped at step 1") && finished.stderr.contains("(update)"),
        "{}",
        finished.stderr
    );
    assert!(!place.path("run/result.json").exists() && !place.path("run/adapters/hrm").exists());
}

/// `2>&1 | head` ends what reads, not what trains.
#[cfg(unix)]
#[test]
fn a_reader_that_has_gone_away() {
    let place = Place::new();
    place.write("config.toml", TINY);
    let mut command = place.command(&["fit", "config.toml", "--out", "run"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(place.path("run/report.html").is_file());
}

#[test]
fn one_report_of_several_runs() {
    let place = Place::new();
    place.fit(TINY, "a", &[]);
    place.fit(TINY, "b", &["--set", "seed=9"]);
    fs::create_dir(place.path("both")).unwrap();
    place.write("both/report.html", "another page");
    let finished = place.run(&["report", "a", "b", "-o", "both/page.html"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(fs::read_to_string(place.path("both/report.html")).unwrap(), "another page");
    let before = place.snapshot("both");
    place.run(&["report", "a", "-o", "both"]).refused(&["both is a directory", "both/report.html"]);
    place.run(&["report", "a", "b"]).refused(&["several directories", "-o FILE"]);
    place
        .run(&["report", "a", "-o", "both/report.html"])
        .refused(&["both/report.html", "was not written by this command"]);
    assert!(before == place.snapshot("both"));
    let page = fs::read_to_string(place.path("both/page.html")).unwrap();
    assert!(page.contains("hrm-order-2") && page.contains("</html>"));
    // The page of one is where `fit` has written it, and the same.
    let before = place.snapshot("a");
    place.write("report.html", "another page");
    let finished = place.run(&["report", "a"]);
    assert_eq!((finished.code, &*finished.stdout), (Some(0), "a/report.html\n"), "{}", finished.stderr);
    assert!(before == place.snapshot("a"));
    assert_eq!(fs::read_to_string(place.path("report.html")).unwrap(), "another page");
}

/// Names of files need not be text; those in JSON are as near to it as can be.
#[cfg(target_os = "linux")]
#[test]
fn a_path_that_is_not_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    place.write("grid.toml", format!("{TINY}\n[sweep]\n"));
    let model = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/stories260k/config.json");
    let model = model.display().to_string();
    for (arguments, option) in
        [(&["sweep", "grid.toml", "--list", "--json"][..], "--out"), (&["init-model", &model, "--json"], "--output")]
    {
        let mut command = place.command(arguments);
        let finished = Finished::new(&command.arg(option).arg(OsStr::from_bytes(b"\xff")).output().unwrap());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert!(json(&finished.stdout).to_string().contains('\u{fffd}'), "{}", finished.stdout);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_model_that_has_no_room_leaves_nothing_behind() {
    let place = Place::new();
    let model = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/stories260k/config.json");
    let mut config = json(&fs::read_to_string(model).unwrap());
    config["vocab_size"] = (1_u64 << 24).into();
    config["hidden_size"] = (1_u64 << 24).into();
    place.write("config.json", config.to_string());
    place.run(&["init-model", "config.json", "-o", "model"]).refused(&["its largest tensor takes", "are available"]);
    assert_eq!(fs::read_dir(place.path(".")).unwrap().count(), 1, "the configuration alone");
}

#[test]
#[cfg(unix)]
fn pipes_among_the_files_of_a_run_are_not_waited_for() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let pipe = |name: &str| {
        let _ = fs::remove_file(place.path(name));
        assert!(Command::new("mkfifo").arg(place.path(name)).status().unwrap().success());
    };
    fs::create_dir_all(place.path("run/predictions")).unwrap();
    pipe("run/predictions/hrm-validation.jsonl");
    assert_eq!(place.run(&["report", "run", "-o", "report.html"]).code, Some(0));
    pipe("run/metrics.jsonl");
    place.run(&["report", "run", "-o", "report.html"]).refused(&["metrics.jsonl", "a device or a pipe"]);
    pipe("trace.json");
    place.run(&["trace", "trace.json"]).refused(&["trace.json", "a device or a pipe"]);
}

#[test]
fn what_was_logged_is_exported() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let csv = place.run(&["export", "run", "--csv"]);
    assert!(csv.stdout.starts_with("stage,step,seconds,name,value\nhrm,"), "{}", csv.stdout);
    assert!(
        csv.stdout.contains(",layers/0 mlp/gate,") && csv.stdout.contains(",validation/accuracy,"),
        "{}",
        csv.stdout
    );
    let board = place.run(&["export", "run", "--tensorboard", "board"]);
    let file = board.stdout.lines().find(|line| line.starts_with("board/hrm/events.out.tfevents.")).unwrap();
    assert!(fs::metadata(place.path(file)).unwrap().len() > 1000);
    place.fit(TINY, "other", &["--set", "seed=7"]);
    place.run(&["export", "other", "--tensorboard", "board"]).refused(&["board/hrm/", "the figures of another run"]);
    assert_eq!(place.run(&["export", "run"]).code, Some(2));
}

#[test]
fn shells_complete_commands_and_options() {
    let place = Place::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let finished = place.run(&["completions", shell]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert!(["generate", "init-model", "resume"].iter().all(|word| finished.stdout.contains(word)), "{shell}");
    }
    assert_eq!(place.run(&["completions", "tcsh"]).code, Some(2));
}

#[test]
fn sweeps_need_a_table_and_a_scale() {
    let place = Place::new();
    place.write("plain.toml", TINY);
    place.run(&["sweep", "plain.toml"]).refused(&["plain.toml has no [sweep] table: `train fit plain.toml` runs it"]);
    place
        .write("scales.toml", format!("{TINY}\n[sweep.grid]\nseed = [0]\n[sweep.scales.short]\n\"train.steps\" = 2\n"));
    place.run(&["sweep", "scales.toml"]).refused(&["scales.toml has scales", "none is chosen", "--set scale=short"]);
    let done = place.run(&["sweep", "scales.toml", "--set", "scale=short"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
}

/// What `nohup` has the process ignore does not end it.
#[cfg(unix)]
#[test]
fn a_signal_that_is_ignored_ends_nothing() {
    let place = Place::new();
    place.write("config.toml", TINY.replace("steps = 12", "steps = 400\ncheckpoint_every = 5"));
    let train = env!("CARGO_BIN_EXE_train");
    let script = format!("trap '' HUP; exec '{train}' fit config.toml --out run");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(place.path("")).stdin(Stdio::null());
    let mut child = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !place.path("run/checkpoints").is_dir() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(place.path("run/result.json").is_file());
}
