//! A run that is stopped and continued ends with the same bits as one that was not.

use crate::common::{Finished, Place, TINY, collect_losses, stop_at};
use crate::mistral::small;
use hankel_models::decoder::{InitType, init_model};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn configuration() -> String {
    let pretrain = "[pretrain]\nsteps = 40\ncheckpoint_every = 7\n\n[train]\ncheckpoint_every = 5\n";
    let more = "\n[[adapter]]\nkind = \"full\"\n\n[[adapter]]\nkind = \"lora\"\nrank = 2\ndropout = 0.2\n";
    TINY.replace("[train]\n", pretrain).replace("steps = 12", "steps = 60") + more
}

/// What must not depend on interruptions: adapters and backbone as bytes, and the figures of every step.
fn essence(run: &Path) -> Vec<(String, Vec<u8>)> {
    let mut essence = Vec::new();
    for file in [
        "backbone/model.safetensors",
        "adapters/hrm/adapter_model.safetensors",
        "adapters/hrm/trained_backbone.safetensors",
        "adapters/hrm-order-2/adapter_model.safetensors",
        "adapters/full/trained_backbone.safetensors",
        "adapters/lora/adapter_model.safetensors",
    ] {
        essence.push((file.to_owned(), fs::read(run.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))));
    }
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    for line in metrics.lines() {
        let mut event: serde_json::Value = serde_json::from_str(line).unwrap();
        let kind = event["event"].as_str().unwrap().to_owned();
        if kind != "step" && kind != "eval" {
            continue;
        }
        let event = event.as_object_mut().unwrap();
        for clock in ["seconds", "tokens_per_second"] {
            event.remove(clock);
        }
        essence.push((kind, serde_json::to_vec(event).unwrap()));
    }
    essence
}

#[track_caller]
fn same(left: &Path, right: &Path) {
    let (left, right) = (essence(left), essence(right));
    assert_eq!(left.len(), right.len());
    for ((name, left), (_, right)) in left.iter().zip(&right) {
        assert!(left == right, "{name} differs: {} {}", String::from_utf8_lossy(left), String::from_utf8_lossy(right));
    }
}

#[cfg(unix)]
#[test]
fn interrupted_and_killed_runs_end_with_the_same_bits() {
    let place = Place::new();
    place.fit(&configuration(), "whole", &[]);
    place.write("config.toml", configuration());

    // Ctrl-C in the pretraining stage, what a cluster and a closed terminal send, then a kill in the adapter's, then to the end.
    let first = stop_at(&place, &["fit", "config.toml", "--out", "run"], "run", "pretrain-step-000007", "-INT");
    assert_eq!(first.code, Some(130), "{}", first.stderr);
    assert!(first.stderr.contains("continue with `train fit --out run --resume`"), "{}", first.stderr);
    let resume = ["fit", "--out", "run", "--resume"];
    for (name, signal) in [("pretrain-step-000028", "-TERM"), ("hrm-step-000005", "-HUP")] {
        let ended = stop_at(&place, &resume, "run", name, signal);
        assert_eq!(ended.code, Some(130), "{signal}: {}", ended.stderr);
        assert!(ended.stderr.contains("continue with `train fit --out run --resume`"), "{}", ended.stderr);
    }
    let second = stop_at(&place, &resume, "run", "hrm-step-000030", "-KILL");
    assert_eq!(second.code, None, "killed");
    let third = stop_at(&place, &resume, "run", "full-step-000010", "-KILL");
    assert!(third.stderr.contains("resuming `hrm` after step"), "{}", third.stderr);
    let last = place.run(&resume);
    assert_eq!(last.code, Some(0), "{}", last.stderr);
    assert!(last.stderr.contains("resuming `full` after step"), "{}", last.stderr);
    same(&place.path("whole"), &place.path("run"));

    // A finished run stays what it is, with the threads and the program that it is of.
    let result = fs::read(place.path("run/result.json")).unwrap();
    let again = place.run(&resume);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    same(&place.path("whole"), &place.path("run"));
    assert!(fs::read(place.path("run/result.json")).unwrap() == result);
    // Without its checkpoints, too.
    fs::remove_dir_all(place.path("run/checkpoints")).unwrap();
    let before = place.snapshot("run");
    assert_eq!(place.run(&resume).code, Some(0));
    assert!(before == place.snapshot("run"));
    let more = place.run(&[&resume[..], &["--set", "adapter.hrm.train.steps=90"]].concat());
    more.refused(&["run is finished, and has no checkpoint to go on from"]);
    // One that is not finished would begin anew over what it has trained.
    fs::remove_file(place.path("run/result.json")).unwrap();
    let before = place.snapshot("run");
    place.run(&resume).refused(&["the checkpoints of run are not there any more", "begin a new run"]);
    assert!(before == place.snapshot("run"));
    // Nor where its log is damaged, or gone.
    let log = fs::read(place.path("run/metrics.jsonl")).unwrap();
    fs::write(place.path("run/metrics.jsonl"), [&log[..], b"\xff\n"].concat()).unwrap();
    let before = place.snapshot("run");
    place.run(&resume).refused(&["metrics.jsonl"]);
    assert!(before == place.snapshot("run"));
    fs::remove_file(place.path("run/metrics.jsonl")).unwrap();
    let before = place.snapshot("run");
    place.run(&resume).refused(&["the checkpoints of run are not there any more"]);
    assert!(before == place.snapshot("run"));
}

/// Its relative paths lead from where it was begun, however often it is stopped before its first checkpoint and resumed elsewhere.
#[test]
fn a_run_that_begins_again_stays_where_it_was_begun() {
    let place = Place::new();
    for folder in ["home", "away"] {
        fs::create_dir(place.path(folder)).unwrap();
    }
    place.write("home/data.txt", "a line of text\n".repeat(800));
    place.write("away/data.txt", "other text\n".repeat(1100));
    let config = TINY.replace("kind = \"dfa\"", "kind = \"bytes\"\npath = \"data.txt\"");
    place.write("home/config.toml", config);
    let run = |folder: &str, arguments: &[&str]| {
        let finished = Finished::new(&place.command(arguments).current_dir(place.path(folder)).output().unwrap());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    };
    run("home", &["fit", "config.toml", "--out", "../run"]);
    let losses = || collect_losses(&place, "run", "hrm");
    let whole = losses();
    for _ in 0..2 {
        // As if it had been killed before its first checkpoint.
        let log = fs::read_to_string(place.path("run/metrics.jsonl")).unwrap();
        fs::write(place.path("run/metrics.jsonl"), log.lines().next().unwrap().to_owned() + "\n").unwrap();
        for folder in ["checkpoints", "adapters"] {
            fs::remove_dir_all(place.path("run").join(folder)).unwrap();
        }
        fs::remove_file(place.path("run/result.json")).unwrap();
        run("away", &["fit", "--out", "../run", "--resume"]);
        assert_eq!(losses(), whole, "of the data at home");
    }
}

/// Weights that the run itself has written and that changed since are noticed.
#[test]
fn damaged_weights_of_its_own_are_refused() {
    let place = Place::new();
    place.fit(&configuration(), "run", &["--set", "train.steps=20"]);
    fs::remove_file(place.path("run/result.json")).unwrap();
    let checkpoints = fs::read_dir(place.path("run/checkpoints")).unwrap();
    let newest = checkpoints.map(|entry| entry.unwrap().path()).max().unwrap().join("state.safetensors");
    for (file, problem) in [
        (newest, "state.safetensors: it is damaged"),
        (place.path("run/backbone/model.safetensors"), "is damaged: it is not what this run has pretrained"),
    ] {
        let whole = fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        let last = flipped.len() - 2;
        flipped[last] ^= 0x40;
        fs::write(&file, flipped).unwrap();
        place.run(&["fit", "--out", "run", "--resume"]).refused(&[problem]);
        fs::write(&file, whole).unwrap();
    }
    // One that is not there is not damaged.
    fs::rename(place.path("run/backbone"), place.path("aside")).unwrap();
    place.run(&["fit", "--out", "run", "--resume"]).refused(&["is missing: what this run has pretrained is there"]);
    fs::rename(place.path("aside"), place.path("run/backbone")).unwrap();
    assert_eq!(place.run(&["fit", "--out", "run", "--resume"]).code, Some(0));
}

/// Other data would be divided anew, so that what was trained on could come to be validated on.
#[cfg(unix)]
#[test]
fn a_run_goes_on_with_its_own_data_alone() {
    let place = Place::new();
    let text = |end: &str| format!("{}{end}", "to be or not to be, that is the question. ".repeat(200));
    place.write("text", text(""));
    let bytes = configuration().replace("kind = \"dfa\"", "kind = \"bytes\"\npath = \"text\"");
    let of_dfa = ["states", "table_seed", "max_window", "symbols"];
    let lines: Vec<&str> = bytes.lines().filter(|line| !of_dfa.iter().any(|key| line.starts_with(key))).collect();
    place.write("config.toml", lines.join("\n"));
    let first = stop_at(&place, &["fit", "config.toml", "--out", "run"], "run", "hrm-step-000005", "-INT");
    assert_eq!(first.code, Some(130), "{}", first.stderr);
    place.write("text", text("More."));
    let resume = ["fit", "--out", "run", "--resume"];
    let before = place.snapshot("run");
    for more in [&[][..], &["--set", "device=cpu"]] {
        let refused = place.run(&[&resume[..], more].concat());
        refused.refused(&["text is not the file that the run began with", "SHA-256", "put that file back"]);
    }
    assert!(place.snapshot("run") == before, "nothing of it is changed");
    place.run(&["eval", "run"]).refused(&["text is not the file that the run was trained with"]);
    place.write("text", text(""));
    assert_eq!(place.run(&resume).code, Some(0));
}

/// A model that was replaced meanwhile would be another backbone for what is left.
#[cfg(unix)]
#[test]
fn a_run_goes_on_with_its_own_model_alone() {
    let place = Place::new();
    init_model(&small(), 1, InitType::F32, &place.path("model")).unwrap();
    place.write("text", "the quick brown fox jumps over the lazy dog; ".repeat(60));
    place.write(
        "config.toml",
        "name = \"own-model\"\n[task]\nkind = \"bytes\"\npath = \"text\"\nlength = 16\ntrain_sequences = 32\n\
         validation_sequences = 2\ntest_sequences = 2\n[backbone]\nkind = \"mistral\"\nmodel = \"model\"\n[train]\nsteps = 60\n\
         batch_size = 2\ncheckpoint_every = 5\n[[adapter]]\nkind = \"hrm\"\nstate_dim = 4\n",
    );
    let first = stop_at(&place, &["fit", "config.toml", "--out", "run"], "run", "hrm-step-000005", "-INT");
    assert_eq!(first.code, Some(130), "{}", first.stderr);
    let weights = fs::read(place.path("model/model.safetensors")).unwrap();
    let mut other = weights.clone();
    *other.last_mut().unwrap() ^= 1;
    fs::write(place.path("model/model.safetensors"), other).unwrap();
    // What has nothing to do with it may come.
    fs::write(place.path("model/notes.txt"), "of my own").unwrap();
    let resume = ["fit", "--out", "run", "--resume"];
    let newest = place.snapshot("run/checkpoints");
    place.run(&resume).refused(&["model.safetensors is not the file that the run began with", "put that file back"]);
    assert!(place.snapshot("run/checkpoints") == newest);
    place.run(&["fit", "--out", "run", "--resume", "--set", "train.epochs=3"]).refused(&[
        "train.epochs=3",
        "counts steps",
        "set `train.steps` instead",
    ]);
    fs::write(place.path("model/model.safetensors"), weights).unwrap();
    // With all that it is of, the run may lie elsewhere.
    let elsewhere = Place::new();
    for name in ["model", "text", "run"] {
        fs::rename(place.path(name), elsewhere.path(name)).unwrap();
    }
    let resumed = elsewhere.run(&resume);
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    // Whoever uses its adapters on another one is told.
    let eval = || elsewhere.run(&["eval", "run"]);
    let replaced = "model.safetensors is not the model file model.safetensors that run was trained with";
    assert!(!eval().stderr.contains("warning"));
    let mut other = fs::read(elsewhere.path("model/model.safetensors")).unwrap();
    *other.last_mut().unwrap() ^= 1;
    elsewhere.write("model/model.safetensors", other);
    assert!(eval().stderr.contains(replaced), "{}", eval().stderr);
    fs::remove_file(elsewhere.path("run/result.json")).unwrap();
    assert!(eval().stderr.contains(replaced), "{}", eval().stderr);
}

/// What lies in files between the stages is not rounded.
#[cfg(unix)]
#[test]
fn runs_in_doubles_end_with_the_same_bits() {
    let place = Place::new();
    let begun_in = |precision: &str, run: &str| {
        let set = format!("precision={precision}");
        let killed =
            stop_at(&place, &["fit", "config.toml", "--out", run, "--set", &set], run, "hrm-step-000010", "-KILL");
        assert_eq!(killed.code, None, "killed");
    };
    place.fit(&configuration(), "whole", &["--set", "precision=f64"]);
    begun_in("f64", "run");
    // Where none is named the run stays in its own.
    let last = place.run(&["fit", "config.toml", "--out", "run", "--resume", "--set", "precision=auto"]);
    assert_eq!(last.code, Some(0), "{}", last.stderr);
    assert!(!last.stderr.contains("precision"), "{}", last.stderr);
    same(&place.path("whole"), &place.path("run"));
    let checkpoints = |run: &str| {
        let log = fs::read_to_string(place.path(run).join("metrics.jsonl")).unwrap();
        log.matches("\"event\":\"checkpoint\"").count()
    };
    assert_eq!(checkpoints("whole"), checkpoints("run"));
    begun_in("bf16", "other");
    let last = place.run(&["fit", "--out", "other", "--resume", "--set", "precision=f32"]);
    assert_eq!(last.code, Some(0), "{}", last.stderr);
    assert!(last.stderr.contains("resuming with products in f32; they were in bf16 before"), "{}", last.stderr);
}

/// What data gave is found again: the frozen backbone and the sequences are what they were.
#[cfg(unix)]
#[test]
fn a_start_from_data_survives_a_kill() {
    let start = "init = \"empirical-bt\"\ninit_states = 9\ntruncate = { order = 2 }\n";
    let configuration =
        TINY.replace("steps = 12", "steps = 40\ncheckpoint_every = 5").replace("truncate = { order = 2 }\n", start);
    let place = Place::new();
    let whole = place.fit(&configuration, "whole", &[]);
    let told =
        "hrm: begins as the balanced truncation of adapters of 9 9 states to 4 4, by Gramians of 64 training sequences";
    assert!(whole.stderr.contains(told), "{}", whole.stderr);
    let arguments = ["fit", "config.toml", "--out", "run"];
    assert_eq!(stop_at(&place, &arguments, "run", "hrm-step-000020", "-KILL").code, None, "killed");
    let last = place.run(&["fit", "--out", "run", "--resume"]);
    assert_eq!(last.code, Some(0), "{}", last.stderr);
    for file in ["adapters/hrm", "adapters/hrm-order-2"] {
        let file = format!("{file}/adapter_model.safetensors");
        let read = |run: &str| fs::read(place.path(run).join(&file)).unwrap();
        assert!(read("whole") == read("run"), "{file}");
    }
    let result: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(place.path("run/result.json")).unwrap()).unwrap();
    assert!(result["rows"][0]["settings"].as_str().unwrap().contains("empirical-bt of 9 states"), "{result}");
    assert!(result["rows"][0]["layers"][1]["input_alignment"].as_f64().is_some_and(|share| share <= 1.0));
    // It is an adapter like any other: it goes on from its file, and the drawn one is another.
    place.write(
        "config.toml",
        format!("{}path = \"run/adapters/hrm\"\n", configuration.replace(start, "").replace("state_dim = 4\n", "")),
    );
    let more = place.run(&["fit", "config.toml", "--out", "more"]);
    assert_eq!(more.code, Some(0), "{}", more.stderr);
    place.write("config.toml", configuration.replace(start, &format!("{start}hsv_regularization = 0.1\n")));
    place.run(&["fit", "config.toml", "--out", "no"]).refused(&["hsv_regularization", "begins as a truncated one"]);
}

#[cfg(unix)]
#[test]
fn a_truncation_in_training_survives_a_kill_before_and_behind_it() {
    // 8 steps are an epoch: truncation after step 16.
    let reduce =
        "reduce = { after_epoch = 2, order = 2, warmup_steps = 3 }\nhsv_regularization = 0.01\nmode = \"signed\"\n";
    let configuration =
        TINY.replace("steps = 12", "steps = 40\ncheckpoint_every = 5").replace("truncate = { order = 2 }\n", reduce);
    let place = Place::new();
    let whole = place.fit(&configuration, "whole", &[]);
    assert!(whole.stderr.contains("truncated by order = 2: 4 4 states to 2 2"), "{}", whole.stderr);
    let arguments = ["fit", "config.toml", "--out", "run"];
    assert_eq!(stop_at(&place, &arguments, "run", "hrm-step-000010", "-KILL").code, None, "killed");
    let resume = ["fit", "--out", "run", "--resume"];
    assert_eq!(stop_at(&place, &resume, "run", "hrm-step-000020", "-KILL").code, None, "killed");
    let last = place.run(&resume);
    assert_eq!(last.code, Some(0), "{}", last.stderr);
    for file in ["adapters/hrm", "adapters/hrm-reduced-in-training"] {
        let file = format!("{file}/adapter_model.safetensors");
        let read = |run: &str| fs::read(place.path(run).join(&file)).unwrap();
        assert!(read("whole") == read("run"), "{file}");
    }
    assert!(place.path("run/adapters/hrm-reduced-in-training/certificate.json").is_file());
    let result = fs::read_to_string(place.path("run/result.json")).unwrap();
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    assert!(result["rows"][0]["layers"].as_array().unwrap().iter().all(|layer| layer["order"] == 2));
}

/// The best evaluation is what a stage ends with, whenever the process was killed.
#[cfg(unix)]
#[test]
fn the_best_parameters_survive_a_kill() {
    let configuration = TINY
        .replace("steps = 12", "steps = 60\neval_every = 4\ncheckpoint_every = 5\nschedule = \"constant\"")
        .replace("lr = 1e-2", "lr = 0.3");
    let place = Place::new();
    let whole = place.fit(&configuration, "whole", &[]);
    let result = |run: &str| -> serde_json::Value {
        serde_json::from_slice(&fs::read(place.path(run).join("result.json")).unwrap()).unwrap()
    };
    let row = result("whole")["rows"][0].clone();
    let (training, kept) = (&row["training"], &row["training"]["kept"]);
    let (step, value, last) =
        (kept["step"].as_u64().unwrap(), kept["value"].as_f64().unwrap(), kept["last"].as_f64().unwrap());
    assert!(step < 60 && value > last, "this configuration is to get worse: {training}");
    assert_eq!(
        (&kept["metric"], &kept["evaluations"], &training["steps"]),
        (&"accuracy".into(), &15.into(), &60.into())
    );
    assert!(
        whole.stdout.contains(&format!("hrm is as it was after step {step}, the best of 15 evaluations")),
        "{}",
        whole.stdout
    );
    // What is kept is what was evaluated.
    let again = place.run(&["eval", "whole", "--adapter", "hrm", "--sequences", "8", "--json"]);
    let scores: serde_json::Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(scores[0]["scores"]["metrics"]["accuracy"], kept["value"]);

    let stop = |arguments: &[&str], at: u64| {
        let name = format!("hrm-step-{at:06}");
        assert_eq!(stop_at(&place, arguments, "run", &name, "-KILL").code, None, "killed");
    };
    let resume = ["fit", "--out", "run", "--resume"];
    // Before the best evaluation, and behind it.
    stop(&["fit", "config.toml", "--out", "run"], 5);
    stop(&resume, (step / 5 * 5 + 10).min(55));
    let finished = place.run(&resume);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let file = "adapters/hrm/adapter_model.safetensors";
    assert!(fs::read(place.path("whole").join(file)).unwrap() == fs::read(place.path("run").join(file)).unwrap());
    assert_eq!(result("run")["rows"][0]["training"]["kept"], *kept);

    // The last ones are others, and patience ends where the best was followed by so many that are no better.
    place.fit(&configuration, "last", &["--set", "train.keep=last"]);
    assert!(fs::read(place.path("last").join(file)).unwrap() != fs::read(place.path("run").join(file)).unwrap());
    assert!(result("last")["rows"][0]["training"]["kept"].is_null());
    let early = place.fit(&configuration, "early", &["--set", "train.patience=2"]);
    let stopped = result("early")["rows"][0]["training"].clone();
    let (steps, kept) = (stopped["steps"].as_u64().unwrap(), stopped["kept"]["step"].as_u64().unwrap());
    assert!(steps == kept + 8 && stopped["planned_steps"] == 60, "{stopped}");
    assert!(early.stdout.contains(&format!("hrm stopped after {steps} of 60 steps")), "{}", early.stdout);
    assert!(early.stderr.contains("2 evaluations without a better accuracy: stopped after"), "{}", early.stderr);
}

/// What evaluates to NaN is neither the best nor a result, whatever its accuracy.
#[test]
fn a_model_whose_loss_is_not_finite_is_no_result() {
    let place = Place::new();
    let start = TINY.find("[[adapter]]").unwrap();
    let lora = format!("{}[[adapter]]\nkind = \"lora\"\nrank = 2\n", &TINY[..start]);
    // The rate is 0 in the first step. What the second one leaves is too large to compute with.
    let steps = ["steps=2", "warmup_steps=1", "eval_every=1", "lr=1e30", "clip=0"].map(|set| format!("train.{set}"));
    let set: Vec<&str> = steps.iter().flat_map(|set| ["--set", set.as_str()]).collect();
    place.fit(&lora, "best", &set);
    let result =
        serde_json::from_str::<serde_json::Value>(&fs::read_to_string(place.path("best/result.json")).unwrap())
            .unwrap();
    let row = &result["rows"][0];
    assert_eq!(row["training"]["kept"]["step"], 1, "{row}");
    assert!(row["validation"]["metrics"]["loss"].as_f64().unwrap() < 10.0, "{row}");
    let last = place.run(&[&["fit", "config.toml", "--out", "last", "--set", "train.keep=last"], &set[..]].concat());
    assert_eq!(last.code, Some(1), "{}", last.stderr);
    let told = "`lora` stopped at step 2: the loss on the validation split is NaN; the last good checkpoint is";
    assert!(last.stderr.contains(told), "{}", last.stderr);
}

#[cfg(unix)]
#[test]
fn an_edited_configuration_is_not_gone_on_with() {
    let place = Place::new();
    place.write("config.toml", configuration());
    let begin = ["fit", "config.toml", "--out", "run"];
    assert_eq!(stop_at(&place, &begin, "run", "hrm-step-000010", "-KILL").code, None, "killed");
    let resume = ["fit", "--out", "run", "--resume"];
    let begun = fs::read_to_string(place.path("run/config.toml")).unwrap();
    let edited = |key: &str, value: toml::Value| {
        let mut table: toml::Table = begun.parse().unwrap();
        table["train"].as_table_mut().unwrap().insert(key.to_owned(), value).unwrap();
        place.write("run/config.toml", table.to_string());
        place.run(&resume)
    };
    edited("lr", 0.5.into())
        .refused(&["run/config.toml was edited: it has [train] lr = 0.5, and the newest checkpoint"]);
    edited("steps", 90.into()).refused(&["the schedule of the learning rate of `hrm` was laid out for 60 steps"]);
    place.write("run/config.toml", format!("# Written otherwise\n{begun}"));
    let last = place.run(&resume);
    assert_eq!(last.code, Some(0), "{}", last.stderr);
}

/// Evaluations before a truncation in training are of what the stage is not to end with.
#[test]
fn patience_waits_for_a_truncation() {
    let place = Place::new();
    let reduced = TINY.replace("truncate = { order = 2 }", "reduce = { after_epoch = 1, order = 2 }");
    // An epoch has 8 steps. With a rate of 0 no evaluation is better than the first.
    let set = ["steps=40", "eval_every=1", "patience=2", "lr=0"].map(|set| format!("train.{set}"));
    place.fit(&reduced, "run", &set.iter().flat_map(|set| ["--set", set.as_str()]).collect::<Vec<_>>());
    let result = fs::read_to_string(place.path("run/result.json")).unwrap();
    let row = serde_json::from_str::<serde_json::Value>(&result).unwrap()["rows"][0].clone();
    assert_eq!(row["layers"][0]["order"], 2, "{row}");
    let steps = row["training"]["steps"].as_u64().unwrap();
    assert!((8..40).contains(&steps), "{steps}");
}

/// Moments of before a truncation would make steps of any size beside second ones that begin anew.
#[test]
fn the_step_after_a_truncation_is_no_larger_than_the_rate() {
    let place = Place::new();
    let reduce = "reduce = { after_epoch = 1, order = 2, warmup_steps = 1 }";
    let reduced = TINY.replace("truncate = { order = 2 }", reduce);
    // An epoch has 8 steps.
    let set = ["steps=9", "lr=3e-3", "schedule=\"constant\"", "weight_decay=0"].map(|set| format!("train.{set}"));
    place.fit(&reduced, "run", &set.iter().flat_map(|set| ["--set", set.as_str()]).collect::<Vec<_>>());
    let tensors = |name: &str| -> BTreeMap<String, Vec<f64>> {
        let file = place.path("run/adapters").join(name).join("adapter_model.safetensors");
        let bytes = fs::read(file).unwrap();
        let values = |view: &TensorView| match view.dtype() {
            Dtype::F64 => view.data().chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
            _ => view.data().chunks(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect(),
        };
        let file = SafeTensors::deserialize(&bytes).unwrap();
        file.tensors().into_iter().map(|(name, view)| (name, values(&view))).collect()
    };
    let (before, after) = (tensors("hrm-reduced-in-training"), tensors("hrm"));
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    let pairs = || before.values().flatten().zip(after.values().flatten());
    let largest = pairs().map(|(before, after)| (before - after).abs()).fold(0.0, f64::max);
    assert!(largest > 1e-5 && largest < 3.1e-3, "{largest}");
}

/// AdaLoRA between two allocations, with its scores and masks; DoRA with dropout.
#[cfg(unix)]
#[test]
fn adapters_with_a_memory_survive_a_kill() {
    let start = TINY.find("[[adapter]]").unwrap();
    let configuration = TINY[..start].replace("steps = 12", "steps = 40\ncheckpoint_every = 5")
        + "[[adapter]]\nkind = \"adalora\"\ninit_rank = 4\ntarget_rank = 2\ntargets = \"all-linear\"\ndropout = 0.1\n\
           tinit = 4\ntfinal = 10\ndelta_t = 3\n\
           [[adapter]]\nkind = \"dora\"\nrank = 2\ndropout = 0.1\n";
    let place = Place::new();
    place.fit(&configuration, "whole", &[]);
    let arguments = ["fit", "config.toml", "--out", "run"];
    // Allocations come after steps 7, 10, ... 28 and, the last, 31.
    assert_eq!(stop_at(&place, &arguments, "run", "adalora-step-000015", "-KILL").code, None, "killed");
    let resume = ["fit", "--out", "run", "--resume"];
    assert_eq!(stop_at(&place, &resume, "run", "adalora-step-000035", "-KILL").code, None, "killed");
    assert_eq!(stop_at(&place, &resume, "run", "dora-step-000020", "-KILL").code, None, "killed");
    let last = place.run(&resume);
    assert_eq!(last.code, Some(0), "{}", last.stderr);
    for name in ["adalora", "dora"] {
        for file in ["adapter_model.safetensors", "adapter_config.json", "trained_backbone.safetensors"] {
            let read = |run: &str| fs::read_to_string(place.path(run).join("adapters").join(name).join(file));
            let bytes = |run: &str| fs::read(place.path(run).join("adapters").join(name).join(file)).unwrap();
            // The configuration names the backbone of its own run.
            let named = |run: &str| read(run).unwrap().replace(&format!("{run}/backbone"), "backbone");
            let same =
                if file.ends_with("json") { named("whole") == named("run") } else { bytes("whole") == bytes("run") };
            assert!(same, "{name}: {file}");
        }
    }
    let ranks = |run: &str| -> Vec<(u64, u64)> {
        let text = fs::read_to_string(place.path(run).join("metrics.jsonl")).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let allocations = events.filter(|event| event["event"] == "layers" && event["layers"][0]["rank"].is_u64());
        allocations
            .map(|event| {
                let ranks = event["layers"].as_array().unwrap().iter().map(|layer| layer["rank"].as_u64().unwrap());
                (event["step"].as_u64().unwrap(), ranks.sum())
            })
            .collect()
    };
    let whole = ranks("whole");
    assert_eq!(whole, ranks("run"));
    let steps: Vec<u64> = whole.iter().map(|&(step, _)| step).collect();
    assert_eq!(steps, [7, 10, 13, 16, 19, 22, 25, 28, 31]);
    // 12 projections, from rank 4 each to 2 on average.
    assert!(whole.iter().all(|&(_, sum)| sum < 48) && whole.last().unwrap().1 <= 24, "{whole:?}");
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let place = Place::new();
    place.fit(&configuration(), "whole", &[]);
    for threads in ["1", "3"] {
        let out = format!("threads-{threads}");
        let mut command = place.command(&["fit", "config.toml", "--out", &out]);
        let finished = Finished::new(&command.env("RAYON_NUM_THREADS", threads).output().unwrap());
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        same(&place.path("whole"), &place.path(&out));
    }
}

/// The backbone trained further is a row of its own, from which the rows behind it start no differently.
#[test]
fn full_training_is_a_row_and_leaves_the_backbone_as_it_was() {
    let place = Place::new();
    let lora = "\n[[adapter]]\nkind = \"lora\"\nrank = 2\n";
    place.fit(&(TINY.to_owned() + lora), "without", &[]);
    place.fit(&(TINY.to_owned() + "\n[[adapter]]\nkind = \"full\"\n" + lora), "with", &[]);
    let file = |run: &str, file: &str| fs::read(place.path(run).join(file)).unwrap();
    for name in ["backbone/model.safetensors", "adapters/lora/adapter_model.safetensors"] {
        assert!(file("without", name) == file("with", name), "{name}");
    }
    let result: serde_json::Value = serde_json::from_slice(&file("with", "result.json")).unwrap();
    let full = &result["rows"][2];
    assert_eq!((&full["name"], &full["kind"]), (&"full".into(), &"full".into()));
    let counts = &full["parameters"];
    let [adapter, trainable, frozen] = ["adapter", "trainable", "frozen"].map(|role| counts[role].as_u64().unwrap());
    assert_eq!((adapter, frozen), (0, 0));
    assert_eq!(trainable, result["backbone"]["parameters"].as_u64().unwrap());
    let parts = ["head", "embeddings", "backbone"].map(|role| counts[role].as_u64().unwrap());
    assert!(parts.iter().all(|&part| part > 0) && parts.iter().sum::<u64>() == trainable, "{counts}");
    assert_eq!(full["training"]["steps"], 12);
    assert_ne!(full["validation"]["metrics"]["loss"], result["rows"][0]["validation"]["metrics"]["loss"]);
    let saved = place.run(&["eval", "with", "--adapter", "full", "--json"]);
    let saved: serde_json::Value = serde_json::from_str(&saved.stdout).unwrap();
    assert_eq!(saved[0]["scores"], full["validation"]);
}

#[test]
fn the_seed_changes_everything() {
    let place = Place::new();
    place.fit(TINY, "a", &[]);
    place.fit(TINY, "b", &[]);
    place.fit(TINY, "c", &["--set", "seed=4"]);
    let adapter = |run: &str| fs::read(place.path(run).join("adapters/hrm/adapter_model.safetensors")).unwrap();
    assert!(adapter("a") == adapter("b"));
    assert!(adapter("a") != adapter("c"));
}
