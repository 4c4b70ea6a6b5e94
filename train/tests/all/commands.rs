//! The commands on small runs: what they write, print and exit with.

use crate::common::{Finished, Place, TINY};
use hankel_models::lti::norms::{FrequencyResponse, hinf_norm};
use hankel_models::reduce::hrm::linear_system;
use hankel_models::weights::system_file::StoredSystem;
use hankel_models::weights::{AdapterBytes, HrmAdapterFile, HrmLayerFile, Sensitivities, WeightSet};
use hankel_trainer::tasks::maestro::events::{Note, decode, quantize, token};
use hankel_trainer::tasks::maestro::midi;
use std::fs;
#[cfg(unix)]
use std::io::{BufRead, BufReader, Read};
#[cfg(unix)]
use std::process::{Command, Stdio};

fn json(text: &str) -> serde_json::Value {
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
fn a_trained_adapter_is_probed_and_measured() {
    let place = Place::new();
    let asked = "truncate = { total = 3 }\nprobe = [{ gate = 0.0 }, { gate = 0.5 }, { gate = 1e38 }]\nexactness = { sequences = 3 }";
    place.fit(&TINY.replace("truncate = { order = 2 }", asked), "run", &[]);
    let result = json(&fs::read_to_string(place.path("run/result.json")).unwrap());
    let rows = result["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names[..4], ["hrm", "hrm-total-3", "hrm-gate-0", "hrm-gate-0.5"]);
    // What is too large to compute with leaves figures that are not numbers, and a run that can be read.
    assert_eq!(rows[4]["validation"]["metrics"]["loss"], serde_json::Value::Null);
    for again in [&["fit", "--out", "run", "--resume"][..], &["report", "run"], &["export", "run", "--csv"]] {
        let finished = place.run(again);
        assert_eq!(finished.code, Some(0), "{again:?}: {}", finished.stderr);
    }
    let layer = |row: usize, key: &str| rows[row]["layers"][0][key].as_f64().unwrap();
    let orders = rows[1]["layers"].as_array().unwrap().iter().map(|layer| layer["order"].as_u64().unwrap());
    assert_eq!(orders.sum::<u64>(), 3);
    assert_eq!((&rows[3]["probed_from"], &rows[3]["probe"]), (&"hrm".into(), &"gate = 0.5".into()));
    assert_eq!((layer(3, "gate"), layer(2, "contribution")), (0.5, 0.0));
    // Nothing before the first adapter depends on its gate, so what it adds is proportional to it.
    let ratio = layer(3, "contribution") / layer(0, "contribution") * layer(0, "gate").abs();
    assert!(layer(0, "contribution") > 0.0 && (ratio - 0.5).abs() < 1e-6, "{ratio}");
    assert!(rows[0]["validation"]["metrics"]["loss"] != rows[3]["validation"]["metrics"]["loss"]);
    for layer in rows[0]["layers"].as_array().unwrap() {
        let exactness = &layer["exactness"];
        assert_eq!((&exactness["sequences"], &exactness["length"]), (&3.into(), &12.into()));
        for path in ["sequential", "chunked", "fft"] {
            let relative = exactness[path]["relative"].as_f64().unwrap();
            assert!(relative > 0.0 && relative < 1e-5, "{path}: {relative}");
        }
    }
    // The trained gates are still what they were.
    assert_eq!(
        place.run(&["eval", "run", "--adapter", "hrm", "--expect", "loss<=hrm+0", "--expect", "loss>=hrm-0"]).code,
        Some(0)
    );
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
fn states_are_recorded_on_real_sequences() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let record = |adapter: &str, file: &str| {
        let more = ["--sequences", "5", "--record-states", file];
        place.run(&[&["eval", "run", "--adapter", adapter][..], &more].concat())
    };
    let finished = record("hrm", "states.safetensors");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("2 layers along 5 sequences of 12 steps"), "{}", finished.stderr);
    let states = hankel_models::weights::recorded_states(&place.path("states.safetensors")).unwrap();
    let shapes: Vec<_> = states.iter().map(|(label, s)| (label.as_str(), s.states.nrows(), s.states.ncols())).collect();
    assert_eq!(shapes, [("layer 0", 60, 4), ("layer 1", 60, 4)]);
    assert!(states.values().all(|s| s.steps == 12 && s.states.norm_l2() > 0.0));
    record("none", "none.safetensors").refused(&["none", "not recurrent"]);
    record("hrm", "states.safetensors").refused(&["states.safetensors", "new file"]);
    assert!(!place.path("none.safetensors").exists());
}

#[test]
fn weights_are_fitted_to_what_an_adapter_reads() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let record = |adapter: &str, file: &str, sequences: &str| {
        let more = ["--sequences", sequences, "--record-inputs", file];
        place.run(&[&["eval", "run", "--adapter", adapter][..], &more].concat())
    };
    let finished = record("hrm", "weights.safetensors", "20");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("layer 1: autoregression of order"), "{}", finished.stderr);
    let weights = place.path("weights.safetensors");
    let (weights, _) = WeightSet::read(&weights, StoredSystem::system).unwrap();
    let adapter = HrmAdapterFile::load(&place.path("run/adapters/hrm")).unwrap();
    for layer in &adapter.layers {
        let weight = weights.of(&layer.label()).unwrap();
        // The mean has an input of its own.
        assert_eq!((weight.outputs(), weight.inputs()), (layer.width, layer.state_dim + 1));
        assert!(weight.spectral_radius().unwrap() < 1.0);
    }
    record("none", "none.safetensors", "20").refused(&["none", "no inputs to record"]);
    record("hrm", "weights.safetensors", "20").refused(&["weights.safetensors", "new file"]);
    record("hrm", "few.safetensors", "3").refused(&["3 sequences are too few"]);
    assert!(!place.path("none.safetensors").exists() && !place.path("few.safetensors").exists());
}

/// The sensitivities bound what a change of the adapter does to the loss, to first order.
#[test]
fn sensitivities_bound_the_change_of_the_loss() {
    let place = Place::new();
    place.fit(TINY, "run", &[]);
    let record = |adapter: &str, file: &str| {
        let more = ["--sequences", "16", "--record-gradients", file];
        place.run(&[&["eval", "run", "--json", "--adapter", adapter][..], &more].concat())
    };
    let finished = record("hrm", "run/gradients.json");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("sensitivities of 2 layers on 16 sequences"), "{}", finished.stderr);
    let loss = |finished: &Finished| {
        json(&finished.stdout)[0]["scores"]["metrics"]["loss"].as_f64().expect("the loss is among the metrics")
    };
    let (sensitivities, _) = Sensitivities::read(&place.path("run")).unwrap();
    assert!((sensitivities.loss / loss(&finished) - 1.0).abs() < 1e-5, "{}", sensitivities.loss);
    let folder = place.path("run/adapters/hrm");
    let adapter = HrmAdapterFile::load(&folder).unwrap();
    assert_eq!(sensitivities.adapter, AdapterBytes::read(&folder).unwrap().hashes().weights);
    // A gate that is a little wider changes every layer's transfer function by a share of its norm.
    let share = 1e-3;
    let mut changed = adapter.clone();
    for layer in &mut changed.layers {
        layer.gate *= 1.0 + share;
    }
    changed.save(&place.path("changed")).unwrap();
    fs::copy(folder.join("trained_backbone.safetensors"), place.path("changed/trained_backbone.safetensors")).unwrap();
    let norm = |layer: &HrmLayerFile| {
        let system = linear_system(layer, adapter.config.discretization).unwrap();
        hinf_norm(&FrequencyResponse::new(&system).unwrap()).unwrap().0.value * layer.gate.abs()
    };
    let bound: f64 = adapter.layers.iter().map(|l| sensitivities.of(&l.label()).unwrap() * share * norm(l)).sum();
    let after = place.run(&["eval", "run", "--json", "--adapter", "changed", "--sequences", "16"]);
    let change = (loss(&after) - loss(&finished)).abs();
    assert!(change > 0.0 && change <= 1.1 * bound, "{change} {bound}");
    record("none", "none.json").refused(&["none", "no gradients to record"]);
    record("hrm", "run/gradients.json").refused(&["gradients.json", "new file ending in .json"]);
    assert!(!place.path("none.json").exists());
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
    assert!(before == place.snapshot("both"));
    let page = fs::read_to_string(place.path("both/page.html")).unwrap();
    assert!(page.contains("hrm-order-2") && page.contains("</html>"));
}

/// Names of files need not be text; those in JSON are as near to it as can be.
#[cfg(target_os = "linux")]
#[test]
fn a_path_that_is_not_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    place.write("grid.toml", TINY);
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
