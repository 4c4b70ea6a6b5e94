//! The number of processes changes no bit.

use super::{finish, on, same, with_run_alone};
use serde_json::Value;
use std::fs;

#[test]
fn any_number_of_processes_ends_with_the_same_bits() {
    let place = with_run_alone(20, 4);
    for processes in [2, 3, 4] {
        let out = format!("on-{processes}");
        let finished = finish(on(&place, processes, &["fit", "config.toml", "--out", &out]));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        same(&place, "alone", &out);
        // Process 0 speaks, and the others do not.
        assert_eq!(finished.stderr.matches("run directory:").count(), 1, "{}", finished.stderr);
        assert!(finished.stderr.contains(&format!("tokens/s on {processes} processes")), "{}", finished.stderr);
        let metrics = fs::read_to_string(place.path(&out).join("metrics.jsonl")).unwrap();
        let steps = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        for step in steps.filter(|event| event["event"] == "step") {
            let moved = &step["communication"];
            assert_eq!(moved["processes"], processes);
            assert!(moved["bytes"].as_f64().unwrap() > 0.0 && moved["seconds"].as_f64().unwrap() > 0.0, "{step}");
        }
    }
    // An evaluation that is shared out gives the same scores, and is written once.
    let arguments = ["eval", "alone", "--split", "test", "--json"];
    let alone = place.run(&arguments);
    let shared = finish(on(&place, 3, &arguments));
    assert_eq!((shared.code, &shared.stdout), (Some(0), &alone.stdout), "{}", shared.stderr);
    // The launcher with one process is one process.
    let one = finish(on(&place, 1, &["eval", "alone", "--split", "test", "--json"]));
    assert_eq!(one.stdout, alone.stdout, "{}", one.stderr);
}

/// Pairs of answers, whose loss also needs the model with the adapter off: three micro-batches, on a frozen Mistral.
#[test]
fn preferences_are_learnt_with_the_same_bits() {
    let place = super::Place::new();
    let golden = |name: &str| format!("{}/../tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    place.write("config.toml", format!(
        "name = \"pairs\"\nseed = 3\n[task]\nkind = \"dpo\"\npath = {:?}\nvalidation_path = {:?}\ntokenizer = {:?}\nlength = 64\nbeta = 0.5\n\
         [backbone]\nkind = \"decoder\"\nmodel = {:?}\n\
         [train]\nsteps = 6\nbatch_size = 2\naccumulation = 3\nlr = 2e-3\nlabel_smoothing = 0.1\neval_every = 3\nlog_every = 1\ncheckpoint_every = 3\n\
         [[adapter]]\nkind = \"lora\"\nrank = 4\ndropout = 0.2\n\
         [[adapter]]\nkind = \"hrm\"\nstate_dim = 4\ngate_init = 1.0\nc_std = 0.1\n",
        golden("dpo/pairs.jsonl"),
        golden("dpo/held-out.jsonl"),
        golden("dpo/tokenizer"),
        golden("mistral/window/hf"),
    ));
    let alone = place.run(&["fit", "config.toml", "--out", "alone"]);
    assert_eq!(alone.code, Some(0), "{}", alone.stderr);
    for processes in [2, 3] {
        let out = format!("on-{processes}");
        let finished = finish(on(&place, processes, &["fit", "config.toml", "--out", &out]));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        same(&place, "alone", &out);
    }
    let held_out = golden("dpo/held-out.jsonl");
    let arguments = ["eval", "alone", "--adapter", "hrm", "--data", &held_out, "--json"];
    let alone = place.run(&arguments);
    let shared = finish(on(&place, 2, &arguments));
    assert_eq!((shared.code, &shared.stdout), (Some(0), &alone.stdout), "{}", shared.stderr);
    assert!(alone.stdout.contains("reward_margin"), "{}", alone.stdout);
}

/// More processes than micro-batches: some have nothing to do, which is said.
#[test]
fn idle_processes_change_nothing() {
    let place = super::Place::new();
    let set = ["--set", "train.accumulation=2", "--set", "train.steps=10"];
    place.fit(super::CONFIG, "alone", &set);
    let arguments = [&["fit", "config.toml", "--out", "shared"][..], &set].concat();
    let finished = finish(on(&place, 3, &arguments));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("1 of the processes have nothing to do"), "{}", finished.stderr);
    same(&place, "alone", "shared");
}

/// An adapter that diverges is left out on all processes, and none of them ends before the others.
#[test]
fn the_run_goes_on_without_an_adapter_that_diverges() {
    let place = super::Place::new();
    let broken = "kind = \"lora\"\nrank = 2\ntrain = { lr = 1e30, warmup_steps = 0, clip = 0 }\n";
    place.write("config.toml", super::CONFIG.replace("kind = \"lora\"\nrank = 2\n", broken));
    let alone = place.run(&["fit", "config.toml", "--out", "alone"]);
    let shared = finish(on(&place, 3, &["fit", "config.toml", "--out", "shared"]));
    for finished in [&alone, &shared] {
        assert_eq!(finished.code, Some(1), "{}", finished.stderr);
        assert_eq!(finished.stderr.matches("`lora` diverged: it has no row").count(), 1, "{}", finished.stderr);
    }
    same(&place, "alone", "shared");
    assert!(fs::read_to_string(place.path("shared/result.json")).unwrap().contains("\"diverged\""));
}
